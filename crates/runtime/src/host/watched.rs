//! The heartbeats of other processes, and for how long each has been the same by the clock of this one.
//!
//! The time in a heartbeat is of the clock of its process. A process whose clock is ahead by more than a lease finds every heartbeat
//! expired; if it relied on that, it would end the life of each process for whose tasks it stands by. So it also watches: it takes over
//! once a heartbeat has expired and has been the same for most of a lease, or once it has been the same for a whole lease.
//!
//! Processes renew their heartbeats, and look at those of others, several times in a lease. So where clocks agree, a process that stands by
//! has watched for most of a lease when the heartbeat of a process that died expires, and takes over at once.

use std::collections::BTreeMap;
use std::time::Duration;

use annals_core::Timestamp;
use annals_core::spread::ProcessRecord;

/// What was not looked at for so long is forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// The heartbeats of other processes, as they were read last.
#[derive(Default)]
pub(super) struct Watched(BTreeMap<String, Seen>);

struct Seen {
    life: i64,
    until: Timestamp,
    looked: Timestamp,
    /// For how long it has been the same.
    same_for: Duration,
}

impl Seen {
    /// Whether the process counts as gone.
    fn is_silent(&self, lease: Duration) -> bool {
        let has_expired = self.until <= self.looked;
        self.same_for >= lease || has_expired && self.same_for >= lease * 5 / 8
    }
}

impl Watched {
    /// Notes a heartbeat that was read at this time, or later. Returns whether its process counts as gone.
    pub fn look(&mut self, found: &ProcessRecord, now: Timestamp, lease: Duration) -> bool {
        let (life, until) = (found.life, found.until());
        if let Some(seen) = self.0.get_mut(&found.process)
            && (seen.life, seen.until) == (life, until)
        {
            // Between two looks the clock may have jumped, or this process may have been stopped. A jump just before a heartbeat is renewed
            // must not suffice, so a look counts for no longer than the time between two renewals.
            seen.same_for += now.since(seen.looked).min(lease / 4);
            // Several tasks look at the same time, and what is noted last may have been read first. A clock that was set back is further
            // off.
            if now > seen.looked || seen.looked.since(now) > lease {
                seen.looked = now;
            }
            return seen.is_silent(lease);
        }
        self.0.retain(|_, seen| now.since(seen.looked) < FORGOTTEN_AFTER);
        self.0.insert(found.process.clone(), Seen { life, until, looked: now, same_for: Duration::ZERO });
        false
    }

    /// Whether the life of a process was seen so lately that another look would tell nothing new.
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
