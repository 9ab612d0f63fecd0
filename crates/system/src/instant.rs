//! The monotonic time of this process, for the pace of work and for deadlines towards servers, sockets and other processes.
//!
//! It is deliberately not a port. What is awaited here happens outside of the process, so with a clock that stands still a test would
//! wait forever. What is stored, and every wait that tests shorten, uses the [`Clock`](annals_core::Clock).

use std::future::Future;
use std::ops::{Add, Sub};
use std::time::Duration;

use tokio::time::{Sleep, sleep_until, timeout_at};

/// A moment in this process, like `std::time::Instant`, with waits. It never goes back, and has no meaning in another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(std::time::Instant);

impl Instant {
    /// Returns the current moment.
    #[expect(clippy::disallowed_methods, reason = "this is where the time of the process is read")]
    pub fn now() -> Self {
        Self(std::time::Instant::now())
    }

    /// Returns the time since this moment, or zero if it is in the future.
    pub fn elapsed(self) -> Duration {
        Self::now() - self
    }

    /// Returns the moment this much earlier, or `None` if the machine's monotonic time does not reach back that far.
    pub fn earlier_by(self, time: Duration) -> Option<Self> {
        self.0.checked_sub(time).map(Self)
    }

    /// Waits until this moment.
    pub async fn comes(self) {
        sleep_until(self.0.into()).await;
    }

    /// Returns the output of `work`, or `None` if it takes longer than until this moment; it is then dropped.
    pub async fn limit<F: Future>(self, work: F) -> Option<F::Output> {
        timeout_at(self.0.into(), work).await.ok()
    }
}

/// Waits for this long. Cancel-safe.
pub fn sleep(time: Duration) -> Sleep {
    tokio::time::sleep(time)
}

impl Add<Duration> for Instant {
    type Output = Self;

    /// Adds a duration. If the sum cannot be represented, the result is a century away.
    fn add(self, time: Duration) -> Self {
        const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 3_600);
        Self(self.0.checked_add(time).unwrap_or_else(|| self.0 + CENTURY))
    }
}

impl Sub for Instant {
    type Output = Duration;

    /// Returns the time between the two, or zero if the first is the earlier one.
    fn sub(self, earlier: Self) -> Duration {
        self.0.saturating_duration_since(earlier.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_moment_limits_what_takes_longer_and_lets_the_rest_through() {
        let soon = Instant::now() + Duration::from_millis(20);
        assert_eq!(soon.limit(async { 7 }).await, Some(7));
        assert_eq!(soon.limit(std::future::pending::<()>()).await, None);
        assert!(
            Instant::now() >= soon && soon.earlier_by(Duration::from_millis(1)).is_some_and(|before| before < soon)
        );
        soon.comes().await;
    }

    #[tokio::test]
    async fn a_sleep_takes_at_least_its_time() {
        let begun = Instant::now();
        sleep(Duration::from_millis(20)).await;
        assert!(begun.elapsed() >= Duration::from_millis(20));
    }

    #[test]
    fn sums_and_differences_have_no_bounds_to_mind() {
        let now = Instant::now();
        assert!(now + Duration::MAX > now);
        assert_eq!(now - (now + Duration::from_secs(1)), Duration::ZERO);
    }
}
