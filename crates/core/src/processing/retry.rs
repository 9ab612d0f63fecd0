//! The retry policy: when a failed event is handed out again, and what happens once its attempts are exhausted.

use serde::{Deserialize, Serialize};

use crate::{Code, Invalid};

/// The longest delay between two attempts: 30 days.
pub(super) const DELAY_MAX_MS: u64 = 30 * 24 * 60 * 60 * 1_000;
/// The most attempts that a policy can allow.
const ATTEMPTS_MAX: u32 = 1_000_000;

/// The delays between attempts: `first_ms`, then each `factor` times the previous one, at most `max_ms`, each varied by up to `jitter`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProcessingRetry {
    /// The delay after the first failure, in milliseconds.
    pub first_ms: u64,
    /// The factor from each delay to the next; at least 1.
    pub factor: f64,
    /// The longest delay, in milliseconds.
    pub max_ms: u64,
    /// The share by which a delay varies, 0 to 1: 0.1 means from 90 % to 110 %.
    pub jitter: f64,
    /// The number of attempts before `then` applies; unlimited if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// What happens after the last attempt.
    pub then: Then,
}

/// What happens to an event once its attempts are exhausted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Then {
    /// Its partition stays at the event until an operator retries, skips or parks it.
    #[default]
    Block,
    /// The event is parked, and its partition continues with the next one.
    Park,
}

impl Default for ProcessingRetry {
    /// Returns 1 s, doubled up to 1 minute, varied by 10 %, with unlimited attempts.
    fn default() -> Self {
        Self { first_ms: 1_000, factor: 2.0, max_ms: 60_000, jitter: 0.1, attempts: None, then: Then::Block }
    }
}

impl ProcessingRetry {
    /// Returns the delay after this many failures in a row, from 1, in milliseconds. `random` determines the jitter.
    pub fn delay_ms(&self, failures: u32, random: u64) -> u64 {
        let exponent = f64::from(failures.saturating_sub(1).min(1_000));
        let exact = (self.first_ms as f64 * self.factor.powf(exponent)).min(self.max_ms as f64);
        let share = (random as f64 / u64::MAX as f64) * 2.0 - 1.0;
        // INVARIANT: a delay never exceeds `max_ms`, even with jitter.
        (exact * (1.0 + self.jitter * share)).min(self.max_ms as f64).max(0.0) as u64
    }

    /// Returns whether an event that has failed this often has no attempts left.
    pub fn is_exhausted(&self, failures: u32) -> bool {
        self.attempts.is_some_and(|most| failures >= most)
    }

    /// Checks the numbers.
    ///
    /// # Errors
    /// `invalid_handler`, with the path below `retry`.
    pub fn validate(&self) -> Result<(), Invalid> {
        let invalid =
            |field: &str, message: String| Err(Invalid::new(Code::InvalidHandler, format!("retry.{field}"), message));
        if self.max_ms > DELAY_MAX_MS || self.max_ms == 0 {
            return invalid("max_ms", format!("{} is not between 1 and {DELAY_MAX_MS} ms (30 days)", self.max_ms));
        }
        if self.first_ms > self.max_ms {
            return invalid("first_ms", format!("{} ms exceed max_ms, {} ms", self.first_ms, self.max_ms));
        }
        if !(1.0..=100.0).contains(&self.factor) {
            return invalid("factor", format!("{} is not between 1 and 100", self.factor));
        }
        if !(0.0..=1.0).contains(&self.jitter) {
            return invalid("jitter", format!("{} is not between 0 and 1", self.jitter));
        }
        match self.attempts {
            Some(attempts) if !(1..=ATTEMPTS_MAX).contains(&attempts) => invalid(
                "attempts",
                format!("{attempts} is not between 1 and {ATTEMPTS_MAX}; leave it out for no limit"),
            ),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_by_the_factor_up_to_the_longest() {
        let policy = ProcessingRetry { first_ms: 10, factor: 2.0, max_ms: 65, jitter: 0.0, ..Default::default() };
        assert_eq!([1, 2, 3, 4, 5, u32::MAX].map(|failures| policy.delay_ms(failures, 7)), [10, 20, 40, 65, 65, 65]);
    }

    #[test]
    fn jitter_varies_a_delay_by_its_share_and_never_exceeds_the_longest() {
        let policy = ProcessingRetry { first_ms: 100, factor: 1.0, max_ms: 105, jitter: 0.5, ..Default::default() };
        assert_eq!((policy.delay_ms(1, 0), policy.delay_ms(1, u64::MAX)), (50, 105));
    }

    #[test]
    fn a_policy_that_cannot_be_followed_is_refused_with_its_path() {
        let default = ProcessingRetry::default();
        assert_eq!(default.validate(), Ok(()));
        for (wrong, path) in [
            (ProcessingRetry { max_ms: 0, ..default }, "retry.max_ms"),
            (ProcessingRetry { first_ms: 60_001, ..default }, "retry.first_ms"),
            (ProcessingRetry { factor: 0.5, ..default }, "retry.factor"),
            (ProcessingRetry { factor: f64::NAN, ..default }, "retry.factor"),
            (ProcessingRetry { jitter: 1.1, ..default }, "retry.jitter"),
            (ProcessingRetry { attempts: Some(0), ..default }, "retry.attempts"),
        ] {
            let refused = wrong.validate().expect_err(path);
            assert_eq!((refused.code, &*refused.path), (Code::InvalidHandler, path));
        }
    }
}
