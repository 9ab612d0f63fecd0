//! Leases: which process runs a task, where several could.
//!
//! A lease gives liveness: a task of a process that died is run by another one a few seconds later. Safety comes from its epoch, which
//! the task writes with everything it stores: a process that lost its lease without noticing expects an epoch that is not there any
//! more, and stores nothing.

use std::time::Duration;

use bson::DateTime;
use serde::{Deserialize, Serialize};

use crate::{RecordType, Timestamp};

/// A lease as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The task.
    #[serde(rename = "_id")]
    pub task: String,
    /// The process that runs it.
    pub holder: String,
    /// Counts the ownerships of the task; each has a greater one than those before it.
    pub epoch: i64,
    /// When another process may take over.
    pub until: DateTime,
}

impl RecordType for Lease {
    const COLLECTION: &'static str = "annals-leases";
}

impl Lease {
    /// What `holder` writes to take over a task whose lease is `found`, at this time for this long. None while another process holds it,
    /// which can only be where processes share the store: elsewhere the holder that is named is gone.
    pub fn takeover(
        found: Option<&Self>,
        task: &str,
        holder: &str,
        now: Timestamp,
        time: Duration,
        shared: bool,
    ) -> Option<Self> {
        let epoch = match found {
            Some(other) if shared && other.holder != holder && other.until() > now => return None,
            Some(other) => other.epoch + 1,
            None => 1,
        };
        Some(Self { task: task.to_owned(), holder: holder.to_owned(), epoch, until: date(now.plus(time)) })
    }

    /// The same lease for another while.
    pub fn renewed(&self, now: Timestamp, time: Duration) -> Self {
        Self { until: date(now.plus(time)), ..self.clone() }
    }

    /// The same lease, ended: any process may take over.
    pub fn released(&self) -> Self {
        Self { until: DateTime::from_millis(0), ..self.clone() }
    }

    /// The same lease in the hands of another process, which has this long to take it over.
    #[must_use]
    pub fn given(&self, to: &str, now: Timestamp, time: Duration) -> Self {
        Self { holder: to.to_owned(), until: date(now.plus(time)), ..self.clone() }
    }

    /// Whether its holder gave it back.
    pub fn is_released(&self) -> bool {
        self.until == DateTime::from_millis(0)
    }

    /// When another process may take over.
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

    const TIME: Duration = Duration::from_secs(4);

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn a_lease_is_taken_over_once_it_has_ended_and_every_ownership_has_a_greater_epoch() {
        let take = |found: Option<&Lease>, holder: &str, now: i64, shared: bool| {
            Lease::takeover(found, "handler/a", holder, at(now), TIME, shared)
        };
        let first = take(None, "one", 0, true).expect("free");
        assert_eq!((first.epoch, first.until()), (1, at(4_000)));
        assert_eq!(take(Some(&first), "two", 3_999, true), None);
        assert_eq!(take(Some(&first), "two", 4_000, true).map(|lease| lease.epoch), Some(2));
        assert_eq!(take(Some(&first), "one", 1, true).map(|lease| lease.epoch), Some(2), "its own, after a restart");
        assert_eq!(take(Some(&first), "two", 1, false).map(|lease| lease.epoch), Some(2), "nobody else can be there");
        let renewed = first.renewed(at(3_000), TIME);
        assert_eq!((renewed.epoch, renewed.until()), (1, at(7_000)));
        assert_eq!(take(Some(&renewed.released()), "two", 3_001, true).map(|lease| lease.epoch), Some(2));
        let given = renewed.given("two", at(3_001), TIME);
        assert_eq!(take(Some(&given), "three", 3_002, true), None, "it was given to another one");
        assert_eq!(take(Some(&given), "two", 3_002, true).map(|lease| lease.epoch), Some(2));
        assert_eq!(take(Some(&given), "three", 7_001, true).map(|lease| lease.epoch), Some(2), "which did not take it");
    }
}
