//! Leases: which process runs a task that several processes could run.
//!
//! A lease provides liveness: if a process dies, another one runs its tasks a few seconds later. Safety comes from the epoch, which the
//! task writes with everything that it stores. A process that lost its lease without noticing expects an epoch that is no longer stored, so
//! it stores nothing.
//!
//! If processes share a store, a process does not renew each lease. It renews one record per tenant, its *heartbeat* ([`ProcessRecord`]),
//! which contains the number of the process's *life*. A lease names its holder and the life on which it rests.
//!
//! 1. INVARIANT: a lease that rests on a life is in force only while the heartbeat of its holder has that life and has not expired.
//! 2. INVARIANT: a life that has ended never comes back. It has ended once its heartbeat is deleted or has another life. A process renews
//!    its heartbeat only if the heartbeat still has the life that the process began. Otherwise the process was *deposed*: it has lost all
//!    its leases, and its next ones rest on a new life, whose number is greater.
//! 3. INVARIANT: a lease is taken from another process only if its life has ended, or in the batch that deletes its heartbeat as it was
//!    read. A holder that renewed its heartbeat in the meantime therefore keeps all its leases, and one that is deposed loses all of them.
//! 4. INVARIANT: each ownership of a task has a greater epoch than the previous ones, and no write of a task depends on a lease or a clock,
//!    only on the epoch. Clocks that disagree, jump, or stop with their process therefore cannot let two owners store something.
//!
//! The time in a heartbeat comes from the clock of its process. Another process therefore deletes the heartbeat only after it has observed
//! for most of a lease, by its own clock, that it is not renewed. Clocks that disagree or jump do not move tasks too early. A process that
//! was stopped, or that cannot write for that long, loses its tasks. Processes may have leases of different lengths; the longer one counts.
//!
//! A missing heartbeat, for example because the collection was dropped, means that the life has ended. Its process notices this at its next
//! renewal, and begins another life. The name of a process is drawn at random, so it is never that of another process.
//!
//! A lease without a life ends by itself, at `until`. Such leases come from builds without heartbeats, or were given to another process,
//! which has until then to take them over.

use bson::DateTime;
use serde::{Deserialize, Serialize};

use crate::spread::ProcessRecord;
use crate::{Condition, Expected, RecordChange, RecordType, Timestamp};

/// The `until` of a lease that rests on a life: the end of the year 9999, so that a build without heartbeats does not take it over.
const NOT_BY_ITSELF: DateTime = DateTime::from_millis(253_402_300_799_000);

/// The stored form of a lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The task.
    #[serde(rename = "_id")]
    pub task: String,
    /// The process that runs it.
    pub holder: String,
    /// The number of the ownership; each one is greater than the previous ones.
    pub epoch: i64,
    /// When another process may take over. Far in the future while the lease rests on a life.
    pub until: DateTime,
    /// The holder's life on which it rests; none for a lease that ends by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub life: Option<i64>,
}

impl RecordType for Lease {
    const COLLECTION: &'static str = "annals-leases";
}

impl Lease {
    /// Returns the lease with which a process takes over a task whose lease is `found`. It rests on a life of the process.
    pub fn resting_on(life: i64, task: &str, holder: &str, found: Option<&Self>) -> Self {
        Self { until: NOT_BY_ITSELF, life: Some(life), ..Self::ending(Timestamp::from_millis(0), task, holder, found) }
    }

    /// Returns the lease with which a process takes over a task whose lease is `found`. It ends by itself at this time.
    pub fn ending(until: Timestamp, task: &str, holder: &str, found: Option<&Self>) -> Self {
        let epoch = found.map_or(1, |found| found.epoch + 1);
        Self { task: task.to_owned(), holder: holder.to_owned(), epoch, until: date(until), life: None }
    }

    /// Returns whether it is in force at this time, if processes share the store. `heartbeat` is that of its holder, if there is one.
    pub fn is_in_force(&self, heartbeat: Option<&ProcessRecord>, now: Timestamp) -> bool {
        match self.life {
            _ if self.is_released() => false,
            None => self.until() > now,
            Some(life) => heartbeat.is_some_and(|it| it.life == life && it.until() > now),
        }
    }

    /// Returns the change that must accompany taking this lease from a holder that no longer renews its heartbeat. The change ends the life
    /// on which the lease rests, unless the heartbeat was renewed since it was read. None if that life has already ended.
    pub fn deposing(&self, heartbeat: Option<&ProcessRecord>) -> Option<RecordChange> {
        if self.is_released() {
            return None;
        }
        let found = heartbeat.filter(|it| self.life == Some(it.life))?;
        let as_read = Condition::and([Condition::eq("life", found.life), Condition::eq("until", found.until)]);
        let process = found.process.as_str();
        Some(RecordChange::delete_if(ProcessRecord::COLLECTION, process, Expected::Matching(as_read)))
    }

    /// Returns the same lease, ended: any process may take over.
    pub fn released(&self) -> Self {
        Self { until: DateTime::from_millis(0), life: None, ..self.clone() }
    }

    /// Returns the same lease, given to another process, which has until this time to take it over.
    #[must_use]
    pub fn given(&self, to: &str, until: Timestamp) -> Self {
        Self { holder: to.to_owned(), until: date(until), life: None, ..self.clone() }
    }

    /// Returns whether its holder gave it back.
    pub fn is_released(&self) -> bool {
        self.until == DateTime::from_millis(0)
    }

    /// Returns when another process may take over, unless the lease rests on a life.
    pub fn until(&self) -> Timestamp {
        Timestamp::from_millis(self.until.timestamp_millis())
    }
}

fn date(time: Timestamp) -> DateTime {
    DateTime::from_millis(time.as_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn heartbeat(process: &str, life: i64, until: i64) -> ProcessRecord {
        ProcessRecord::new(process, at(until), life, Vec::new())
    }

    #[test]
    fn every_ownership_has_a_greater_epoch() {
        let first = Lease::resting_on(1, "handler/a", "one", None);
        assert_eq!((first.epoch, first.life), (1, Some(1)));
        let second = Lease::resting_on(4, "handler/a", "two", Some(&first));
        assert_eq!((second.epoch, second.life, &*second.holder), (2, Some(4), "two"));
        let third = Lease::ending(at(4_000), "handler/a", "two", Some(&second.released()));
        assert_eq!((third.epoch, third.life, third.until()), (3, None, at(4_000)));
    }

    #[test]
    fn a_lease_is_in_force_while_the_heartbeat_of_its_life_has_not_expired() {
        let lease = Lease::resting_on(2, "handler/a", "one", None);
        assert!(lease.is_in_force(Some(&heartbeat("one", 2, 4_000)), at(3_999)));
        assert!(!lease.is_in_force(Some(&heartbeat("one", 2, 4_000)), at(4_000)), "it has expired");
        assert!(!lease.is_in_force(Some(&heartbeat("one", 3, 4_000)), at(0)), "another life has begun");
        assert!(!lease.is_in_force(None, at(0)), "it was deposed");
        assert!(!lease.released().is_in_force(Some(&heartbeat("one", 2, 4_000)), at(1)), "it was given back");
        // A build without heartbeats must not take it meanwhile.
        assert!(lease.until() > at(4_102_444_800_000));
    }

    #[test]
    fn a_lease_without_a_life_is_in_force_until_it_ends() {
        let earlier = Lease::ending(at(4_000), "handler/a", "one", None);
        assert!(earlier.is_in_force(None, at(3_999)));
        assert!(!earlier.is_in_force(None, at(4_000)));
        let given = Lease::resting_on(1, "handler/a", "one", None).given("two", at(5_000));
        assert_eq!((&*given.holder, given.epoch), ("two", 1));
        assert!(given.is_in_force(None, at(4_999)), "it is kept for the other one");
        assert!(!given.is_in_force(None, at(5_000)), "which did not take it");
        assert_eq!(given.deposing(Some(&heartbeat("two", 0, 0))), None, "nothing rests on a life");
    }

    #[test]
    fn only_a_life_that_is_not_over_is_ended() {
        let lease = Lease::resting_on(2, "handler/a", "one", None);
        let Some(RecordChange::Delete { collection, id, expected }) = lease.deposing(Some(&heartbeat("one", 2, 4_000)))
        else {
            panic!("the heartbeat is deleted");
        };
        assert_eq!((&*collection, id), (ProcessRecord::COLLECTION, "one".into()));
        let as_read = [Condition::eq("life", 2_i64), Condition::eq("until", DateTime::from_millis(4_000))];
        assert_eq!(expected, Expected::Matching(Condition::and(as_read)));
        assert_eq!(lease.deposing(Some(&heartbeat("one", 3, 4_000))), None);
        assert_eq!(lease.deposing(None), None);
        assert_eq!(lease.released().deposing(Some(&heartbeat("one", 2, 4_000))), None);
    }

    #[test]
    fn a_lease_of_a_build_without_heartbeats_can_be_read() {
        let stored =
            bson::doc! { "_id": "handler/a", "holder": "one", "epoch": 7_i64, "until": DateTime::from_millis(9) };
        let read: Lease = bson::deserialize_from_document(stored).expect("a lease");
        assert_eq!((read.epoch, read.life, read.until()), (7, None, at(9)));
    }
}
