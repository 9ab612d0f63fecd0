//! The heartbeats of other processes, and for how long each has been unchanged by the clock of this process.
//!
//! The time in a heartbeat comes from the clock of its process. A process whose clock is ahead by more than a lease finds every heartbeat
//! expired. If it relied on that alone, it would end the life of every process for whose tasks it stands by. So it also watches: it takes
//! over once a heartbeat has expired and has been unchanged for most of a lease, or once it has been unchanged for a whole lease. If the
//! lease of the other process is longer than its own, the longer one counts.
//!
//! Processes renew their heartbeats, and read those of others, several times per lease. So if clocks agree, a process that stands by has
//! watched for most of a lease when the heartbeat of a dead process expires, and takes over at once.

use std::collections::BTreeMap;
use std::time::Duration;

use annals_core::Timestamp;
use annals_core::spread::ProcessRecord;

/// Heartbeats that were not read for this long are forgotten. A heartbeat that has been unchanged for this long can be deleted, because
/// its process is gone.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// The heartbeats of other processes, as last read.
#[derive(Default)]
pub(super) struct Watched(BTreeMap<String, Seen>);

struct Seen {
    life: i64,
    until: Timestamp,
    looked: Timestamp,
    /// For how long it has been unchanged.
    same_for: Duration,
    /// Whether a renewal was observed. If so, a heartbeat that looks expired does not mean that its process died long ago.
    renewed: bool,
    /// The longest time that its process may take to renew it, as far as the record states it.
    lease: Duration,
}

impl Seen {
    /// Returns whether the process counts as gone.
    fn is_silent(&self, lease: Duration) -> bool {
        let (lease, has_expired) = (lease.max(self.lease), self.until <= self.looked);
        self.same_for >= lease || has_expired && self.same_for >= lease * 5 / 8
    }
}

impl Watched {
    /// Records a heartbeat that was read at this time or later. Returns whether its process counts as gone.
    pub fn look(&mut self, found: &ProcessRecord, now: Timestamp, lease: Duration) -> bool {
        let (life, until) = (found.life, found.until());
        if let Some(seen) = self.0.get_mut(&found.process)
            && (seen.life, seen.until) == (life, until)
        {
            // Between two reads the clock may have jumped, or this process may have been suspended. A jump just before a renewal must not
            // suffice, so a read counts for no longer than the time between two renewals.
            seen.same_for += now.since(seen.looked).min(lease / 4);
            // Several tasks read concurrently, and the one that records last may have read first. A clock that was set back differs by
            // more than a lease.
            if now > seen.looked || seen.looked.since(now) > lease {
                seen.looked = now;
            }
            return seen.is_silent(lease);
        }
        self.0.retain(|_, seen| now.since(seen.looked) < FORGOTTEN_AFTER.max(lease));
        let renewed = self.0.get(&found.process).is_some_and(|seen| seen.life == life);
        let (same_for, lease) = (Duration::ZERO, found.lease());
        self.0.insert(found.process.clone(), Seen { life, until, looked: now, same_for, renewed, lease });
        false
    }

    /// Records a heartbeat that was read at this time or later. Returns whether its process is alive: it does not count as gone, and
    /// either its heartbeat has not expired by the clock of this process or a renewal was observed.
    pub fn lives(&mut self, found: &ProcessRecord, now: Timestamp, lease: Duration) -> bool {
        let is_gone = self.look(found, now, lease);
        let is_renewed = self.0.get(&found.process).is_some_and(|seen| seen.renewed);
        !is_gone && (found.until() > now || is_renewed)
    }

    /// Returns whether a heartbeat has been unchanged for so long that it can be deleted. As in [`look`](Self::look), the time in it is
    /// not sufficient.
    pub fn is_long_gone(&self, process: &str, lease: Duration) -> bool {
        let seen = self.0.get(process);
        seen.is_some_and(|seen| seen.same_for > FORGOTTEN_AFTER.max(lease).max(seen.lease))
    }

    /// Returns whether the life of a process was observed so recently that another read would not add anything.
    pub fn is_fresh(&self, process: &str, life: i64, now: Timestamp, lease: Duration) -> bool {
        let Some(seen) = self.0.get(process).filter(|seen| seen.life == life && seen.looked <= now) else {
            return false;
        };
        let passed = now.since(seen.looked);
        let suffices = passed < lease / 16 || seen.until > now && passed < lease / 4;
        suffices && !seen.is_silent(lease)
    }

    /// Forgets a process whose life is over.
    pub fn forget(&mut self, process: &str) {
        self.0.remove(process);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(4);

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    /// A heartbeat that was written at this time of the clock of its process.
    fn written(millis: i64) -> ProcessRecord {
        ProcessRecord::new("one", at(millis).plus(LEASE), 1, Vec::new())
    }

    /// Looks at the same heartbeat at these times, and returns the first at which its process counts as gone.
    fn gone_at(watched: &mut Watched, found: &ProcessRecord, looks: impl IntoIterator<Item = i64>) -> Option<i64> {
        looks.into_iter().find(|now| watched.look(found, at(*now), LEASE))
    }

    #[test]
    fn where_clocks_agree_a_process_is_gone_when_its_heartbeat_expires() {
        // It was renewed last at 0. The other process sees that at different times, and looks every half second from then on.
        for first in [0, 400, 999, 1_499] {
            let looks = (0..20).map(|n| first + n * 500);
            let gone = gone_at(&mut Watched::default(), &written(0), looks).expect("it is gone");
            assert!((4_000..4_500).contains(&gone), "{gone} after a first look at {first}");
        }
    }

    #[test]
    fn a_process_that_renews_its_heartbeat_is_not_gone_whatever_the_clocks_say() {
        for skew in [-3_600_000, -5_000, 0, 5_000, 3_600_000] {
            let mut watched = Watched::default();
            for now in (0..60_000).step_by(250) {
                let renewed = written(now / 1_000 * 1_000);
                assert!(
                    !watched.look(&renewed, at(now + skew), LEASE),
                    "at {now}, with a clock that is {skew} ms ahead"
                );
            }
        }
    }

    #[test]
    fn a_process_that_is_silent_is_gone_within_a_lease_of_the_first_look_whatever_the_clocks_say() {
        for skew in [-3_600_000, -5_000, 5_000, 3_600_000] {
            let looks = (0..20).map(|n| skew + n * 500);
            let gone = gone_at(&mut Watched::default(), &written(0), looks).expect("it is gone") - skew;
            assert_eq!(gone, if skew > 0 { 2_500 } else { 4_000 }, "with a clock that is {skew} ms ahead");
        }
    }

    #[test]
    fn a_clock_that_jumps_ends_no_life() {
        for jump in [-3_600_000, 3_600_000] {
            let mut watched = Watched::default();
            assert_eq!(gone_at(&mut watched, &written(0), [0, 500, 1_000]), None);
            assert_eq!(gone_at(&mut watched, &written(0), [jump]), None, "a jump by {jump} ms");
            assert_eq!(gone_at(&mut watched, &written(1_000), [jump + 500, jump + 1_000]), None, "it was renewed");
        }
    }

    #[test]
    fn a_process_with_a_longer_lease_has_that_long() {
        let patient = ProcessRecord::new("one", at(40_000), 1, Vec::new()).lasting(LEASE * 10);
        let looks = (0..200).map(|n| n * 500);
        assert_eq!(gone_at(&mut Watched::default(), &patient, looks), Some(40_000));
        // By a clock that is behind.
        let looks = (0..200).map(|n| n * 500 - 3_600_000);
        assert_eq!(gone_at(&mut Watched::default(), &patient, looks), Some(40_000 - 3_600_000));
    }

    #[test]
    fn a_process_that_was_seen_to_renew_its_heartbeat_is_there_until_it_is_silent() {
        let mut watched = Watched::default();
        let mut lives = |renewed: i64, now: i64| watched.lives(&written(renewed), at(3_600_000 + now), LEASE);
        assert!(!lives(0, 0), "it may have died an hour ago");
        assert!(!lives(0, 900), "it was not renewed since");
        assert!(lives(1_000, 1_000));
        assert!(lives(1_000, 2_000));
        assert!(lives(1_000, 3_000));
        assert!(!lives(1_000, 4_000), "it is silent");
        assert!(lives(2_000, 5_000), "it was only slow");
        assert!(
            Watched::default().lives(&written(0), at(3_999), LEASE),
            "by a clock that agrees, the first look tells"
        );
    }

    #[test]
    fn a_heartbeat_is_deleted_only_after_many_looks() {
        let mut watched = Watched::default();
        for now in [0, 3_600_000] {
            watched.look(&written(0), at(now), LEASE);
        }
        assert!(!watched.is_long_gone("one", LEASE), "the clock jumped by an hour");
        for second in 1..=61 {
            watched.look(&written(0), at(3_600_000 + 1_000 * second), LEASE);
        }
        assert!(watched.is_long_gone("one", LEASE));
        watched.look(&written(1_000), at(3_700_000), LEASE);
        assert!(!watched.is_long_gone("one", LEASE), "it was renewed");
    }

    #[test]
    fn looks_of_several_tasks_at_the_same_time_count_once() {
        let mut watched = Watched::default();
        let looks = (0..1_000).map(|n| if n % 2 == 0 { 5_100 } else { 5_000 });
        assert_eq!(gone_at(&mut watched, &written(0), looks), None);
    }

    #[test]
    fn a_look_suffices_for_a_while_unless_the_process_may_be_gone() {
        let mut watched = Watched::default();
        assert!(!watched.is_fresh("one", 1, at(0), LEASE), "it was never seen");
        watched.look(&written(0), at(0), LEASE);
        assert!(watched.is_fresh("one", 1, at(999), LEASE));
        assert!(!watched.is_fresh("one", 1, at(1_000), LEASE), "it is due to be renewed");
        assert!(!watched.is_fresh("one", 2, at(999), LEASE), "another life");
        assert!(!watched.is_fresh("one", 1, at(-1), LEASE), "the clock was set back");
        watched.look(&written(0), at(3_900), LEASE);
        assert!(watched.is_fresh("one", 1, at(3_999), LEASE));
        assert!(watched.is_fresh("one", 1, at(4_100), LEASE), "each task need not look again");
        assert!(!watched.is_fresh("one", 1, at(4_150), LEASE), "it has expired");
        assert!(gone_at(&mut watched, &written(0), [4_500, 5_000, 5_500]).is_some());
        assert!(!watched.is_fresh("one", 1, at(5_501), LEASE), "the next task reads that its life is over");
        watched.forget("one");
        assert!(!watched.look(&written(0), at(9_000), LEASE), "as if it was never seen");
    }
}
