//! Issues the revisions of records.
//!
//! INVARIANTS:
//! - A revision is greater than the previous one of its record.
//! - A process issues each revision once, whatever its clock does.
//! - Two processes issue the same revision for one `_id` only if the record was deleted in between and the second process's clock, at the
//!   reinsertion, shows the exact microsecond of the first one's write. Each process therefore writes in microseconds of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use annals_core::{Clock, Randomness, Revision};

const MICROS_IN_MILLI: u64 = 1_000;
/// How far a revision may be ahead of the clock to count as another process's time. One further ahead was written by other software.
const AHEAD_MAX: u64 = 24 * 60 * 60 * 1_000 * MICROS_IN_MILLI;

/// Issues the revisions of one process.
pub(super) struct Revisions {
    clock: Arc<dyn Clock>,
    /// The microsecond within each millisecond that belongs to this process.
    own: u64,
    issued: AtomicU64,
}

impl Revisions {
    pub(super) fn new(clock: Arc<dyn Clock>, random: &dyn Randomness) -> Self {
        Self { clock, own: random.bits() as u64 % MICROS_IN_MILLI, issued: AtomicU64::new(0) }
    }

    /// Issues the revision of a write to a record that has `previous`; 0 if it is absent.
    pub(super) fn after(&self, previous: Revision) -> Revision {
        const MAX: u64 = i64::MAX as u64;
        let millis = u64::try_from(self.clock.now().as_millis()).unwrap_or(0);
        let now = millis.saturating_mul(MICROS_IN_MILLI).saturating_add(self.own).min(MAX / 2);
        let next = previous.saturating_add(1);
        let seen = if next <= now + AHEAD_MAX { next } else { 0 };
        let issue = |issued: u64| Some(now.max(seen).max(issued + 1));
        // It never refuses, and the value before an update leads to the same value after it.
        let issued = match self.issued.fetch_update(Ordering::SeqCst, Ordering::SeqCst, issue) {
            Ok(before) | Err(before) => issue(before).unwrap_or(before),
        };
        issued.max(next).min(MAX)
    }
}

#[cfg(test)]
mod tests {
    use annals_core::Timestamp;

    use super::*;

    struct At(AtomicU64);

    impl Clock for At {
        fn now(&self) -> Timestamp {
            Timestamp::from_millis(self.0.load(Ordering::SeqCst) as i64)
        }

        fn sleep_until(&self, _: Timestamp) -> annals_core::Sleep<'_> {
            Box::pin(std::future::pending())
        }
    }

    struct Bits(u128);

    impl Randomness for Bits {
        fn bits(&self) -> u128 {
            self.0
        }
    }

    #[test]
    fn a_revision_is_greater_than_the_records_and_none_is_issued_twice() {
        let clock = Arc::new(At(AtomicU64::new(5_000)));
        let revisions = Revisions::new(clock.clone(), &Bits(7));
        assert_eq!(revisions.after(0), 5_000_007);
        assert_eq!(revisions.after(3), 5_000_008);
        // Another process's clock is ahead.
        assert_eq!(revisions.after(9_000_000), 9_000_001);
        // The record was deleted and is inserted again.
        assert_eq!(revisions.after(0), 9_000_002);
        clock.0.store(1, Ordering::SeqCst);
        assert_eq!(revisions.after(0), 9_000_003);
        clock.0.store(10_000, Ordering::SeqCst);
        assert_eq!(revisions.after(0), 10_000_007);
    }

    #[test]
    fn a_number_of_other_software_does_not_move_the_others() {
        let revisions = Revisions::new(Arc::new(At(AtomicU64::new(5_000))), &Bits(1_001));
        assert_eq!(revisions.after(1 << 62), (1 << 62) + 1);
        assert_eq!(revisions.after(u64::MAX), i64::MAX as u64);
        assert_eq!(revisions.after(0), 5_000_003);
    }
}
