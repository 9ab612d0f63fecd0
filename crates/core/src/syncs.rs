//! Durations of syncs.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Inclusive upper bounds of the buckets of [`SyncTimes`], in microseconds.
pub const SYNC_BUCKETS: [u64; 14] =
    [100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 5_000_000];

/// The durations of a log's syncs since it was opened: of the disk, or of acknowledgements by a majority of a replica set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SyncTimes {
    /// The number of syncs in each of [`SYNC_BUCKETS`]. A sync that took longer than the last bound is in none.
    pub buckets: [u64; SYNC_BUCKETS.len()],
    /// The number of syncs.
    pub count: u64,
    /// The total duration of all syncs, in microseconds.
    pub micros: u64,
}

/// Counts syncs as they happen.
#[derive(Debug, Default)]
pub struct SyncCounter {
    buckets: [AtomicU64; SYNC_BUCKETS.len()],
    count: AtomicU64,
    micros: AtomicU64,
}

impl SyncCounter {
    /// Counts a sync of this duration.
    pub fn synced(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        if let Some(bucket) = SYNC_BUCKETS.iter().position(|end| micros <= *end) {
            self.buckets[bucket].fetch_add(1, Relaxed);
        }
        self.count.fetch_add(1, Relaxed);
        self.micros.fetch_add(micros, Relaxed);
    }

    /// Returns the counts so far.
    pub fn times(&self) -> SyncTimes {
        let buckets: [u64; SYNC_BUCKETS.len()] = std::array::from_fn(|place| self.buckets[place].load(Relaxed));
        // Read the count last, so that a concurrent sync cannot leave it smaller than the sum of the buckets.
        let count = self.count.load(Relaxed).max(buckets.iter().sum());
        SyncTimes { buckets, count, micros: self.micros.load(Relaxed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_is_counted_in_the_bucket_of_its_time_and_a_very_long_one_in_none() {
        let counter = SyncCounter::default();
        for micros in [100, 101, 900, 6_000_000] {
            counter.synced(Duration::from_micros(micros));
        }
        let times = counter.times();
        assert_eq!(times.buckets[..4], [1, 1, 0, 1]);
        assert_eq!(times.buckets.iter().sum::<u64>(), 3);
        assert_eq!((times.count, times.micros), (4, 6_001_101));
    }
}
