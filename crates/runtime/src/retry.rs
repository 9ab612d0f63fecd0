//! How long to wait before an event is tried again.

use std::time::Duration;

/// The delays between attempts: `first`, then each twice the one before, never more than `max`. There is no last attempt, because
/// giving up on an event would skip it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The delay after the first failure.
    pub first: Duration,
    /// The longest delay.
    pub max: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { first: Duration::from_millis(100), max: Duration::from_secs(30) }
    }
}

impl RetryPolicy {
    /// The delay after this many failures in a row, counted from 1.
    pub fn delay(&self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        self.first.saturating_mul(1 << doublings).min(self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_longest() {
        let policy = RetryPolicy { first: Duration::from_millis(10), max: Duration::from_millis(65) };
        let delays: Vec<_> = [1, 2, 3, 4, 5, u32::MAX].map(|failures| policy.delay(failures).as_millis()).into();
        assert_eq!(delays, [10, 20, 40, 65, 65, 65]);
    }
}
