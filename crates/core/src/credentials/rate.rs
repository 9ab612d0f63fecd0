//! Rate limits: a token bucket stored as one number (the generic cell rate algorithm), without a clock of its own.

use std::time::Duration;

/// A number of units per second; 0 means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rate(pub u64);

/// The usage of a rate, stored as the time at which all of it is available again, in nanoseconds on the caller's clock.
///
/// At most one second's worth of the rate can be used at once. Excess usage is kept as a debt, so that a request can be charged for its
/// size after it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bucket(u64);

const SECOND: u64 = 1_000_000_000;

impl Bucket {
    /// Checks whether anything may be used at `now`.
    ///
    /// # Errors
    /// The time to wait.
    pub fn check(&self, rate: Rate, now: u64) -> Result<(), Duration> {
        if rate.0 == 0 {
            return Ok(());
        }
        // The time at which at least one unit of the burst of one second is available.
        let unit = SECOND / rate.0.min(SECOND);
        let from = self.0.saturating_add(unit).saturating_sub(SECOND);
        if now >= from { Ok(()) } else { Err(Duration::from_nanos(from - now)) }
    }

    /// Uses `units` at `now`, even if fewer are available.
    pub fn charge(&mut self, rate: Rate, now: u64, units: u64) {
        if rate.0 == 0 {
            return;
        }
        let cost = u128::from(units) * u128::from(SECOND) / u128::from(rate.0);
        self.0 = self.0.max(now).saturating_add(u64::try_from(cost).unwrap_or(u64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(rate: Rate, bucket: &mut Bucket, now: u64) -> bool {
        let allowed = bucket.check(rate, now).is_ok();
        if allowed {
            bucket.charge(rate, now, 1);
        }
        allowed
    }

    #[test]
    fn a_second_of_a_rate_is_allowed_at_once_and_then_as_it_is_earned() {
        let (rate, mut bucket, start) = (Rate(10), Bucket::default(), 5 * SECOND);
        assert_eq!((0..30).filter(|_| taken(rate, &mut bucket, start)).count(), 10);
        assert_eq!(bucket.check(rate, start), Err(Duration::from_millis(100)));
        assert!(taken(rate, &mut bucket, start + SECOND / 10));
        assert!(!taken(rate, &mut bucket, start + SECOND / 10));
        assert_eq!((0..30).filter(|_| taken(rate, &mut bucket, start + 10 * SECOND)).count(), 10);
    }

    #[test]
    fn what_was_used_beyond_the_rate_is_a_debt_that_time_pays() {
        let (rate, mut bucket, start) = (Rate(1_000), Bucket::default(), SECOND);
        bucket.charge(rate, start, 5_000);
        let wait = bucket.check(rate, start).expect_err("in debt");
        assert!(wait > Duration::from_secs(3) && wait <= Duration::from_millis(4_001), "{wait:?}");
        assert!(bucket.check(rate, start + 4 * SECOND + SECOND / 1_000).is_ok());
    }

    #[test]
    fn no_rate_is_no_limit() {
        let mut bucket = Bucket::default();
        bucket.charge(Rate(0), 1, u64::MAX);
        assert_eq!(bucket.check(Rate(0), 1), Ok(()));
    }
}
