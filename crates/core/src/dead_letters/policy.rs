//! When a dead letter is retried, and how often.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Code, Invalid, Timestamp};

/// The maximum delay of a policy: 30 days.
const DELAY_MAX_MS: u64 = 30 * 24 * 60 * 60 * 1_000;
/// The maximum number of retries of a policy.
const RETRIES_MAX: u32 = 1_000_000;

/// How the delays of a policy develop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// Retries at once.
    Immediate,
    /// Each delay is the previous one multiplied by a factor.
    ExponentialBackoff,
    /// Every delay is the first one.
    FixedInterval,
    /// Every delay is the first one, as with [`FixedInterval`](Self::FixedInterval).
    Scheduled,
    /// Waits for a person.
    Manual,
}

/// When letters are retried, and how often.
///
/// ```json
/// {"strategy": "exponential_backoff", "max_retries": 5, "base_delay_ms": 30000, "max_delay_ms": 300000, "multiplier": 2, "jitter": 0.1}
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LetterPolicy {
    /// How the delays develop.
    pub strategy: Strategy,
    /// The number of retries of a letter before it is discarded.
    pub max_retries: u32,
    /// The first delay, in milliseconds.
    pub base_delay_ms: u64,
    /// The maximum delay, in milliseconds.
    pub max_delay_ms: u64,
    /// The factor between delays; at least 1.
    pub multiplier: f64,
    /// The fraction by which an exponential delay varies, 0 to 1. The maximum delay is never exceeded.
    pub jitter: f64,
}

/// The next step of a letter according to a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plan {
    /// It is retried at this time.
    At(Timestamp),
    /// It waits for a person.
    Waits,
    /// Its retries are used up.
    Exhausted,
}

impl Default for LetterPolicy {
    /// Returns the default: 5 retries, 1 minute doubled up to 1 hour, varied by 10 %.
    fn default() -> Self {
        Self::exponential(5, 60_000, 3_600_000, 2.0)
    }
}

impl LetterPolicy {
    /// Creates a policy with delays that grow from `base_delay_ms` to `max_delay_ms`, varied by 10 %.
    pub fn exponential(max_retries: u32, base_delay_ms: u64, max_delay_ms: u64, multiplier: f64) -> Self {
        let strategy = Strategy::ExponentialBackoff;
        Self { strategy, max_retries, base_delay_ms, max_delay_ms, multiplier, jitter: 0.1 }
    }

    /// Creates a policy that retries at once.
    pub fn immediate(max_retries: u32) -> Self {
        Self { strategy: Strategy::Immediate, ..Self::exponential(max_retries, 0, 0, 1.0) }
    }

    /// Creates a policy that waits for a person.
    pub fn manual() -> Self {
        Self { strategy: Strategy::Manual, ..Self::exponential(0, 0, 0, 1.0) }
    }

    /// Returns the policy of the topics of a category.
    pub fn of_category(category: &str) -> Self {
        match category {
            "execution" | "command" => Self::exponential(5, 30_000, 300_000, 2.0),
            "pod" => Self::exponential(3, 60_000, 600_000, 3.0),
            "result" => Self::immediate(3),
            _ => Self::exponential(4, 60_000, 1_800_000, 2.5),
        }
    }

    /// Returns the next step of a letter after this many retries. `random` determines the jitter.
    pub fn plan(&self, retry_count: u32, now: Timestamp, random: u64) -> Plan {
        match self.strategy {
            Strategy::Manual => Plan::Waits,
            _ if retry_count >= self.max_retries => Plan::Exhausted,
            _ => Plan::At(now.plus(Duration::from_millis(self.delay_ms(retry_count, random)))),
        }
    }

    /// Returns the delay before the next retry after this many, in milliseconds.
    pub fn delay_ms(&self, retry_count: u32, random: u64) -> u64 {
        match self.strategy {
            Strategy::Immediate | Strategy::Manual => 0,
            Strategy::FixedInterval | Strategy::Scheduled => self.base_delay_ms.min(self.max_delay_ms),
            Strategy::ExponentialBackoff => {
                let (base, cap) = (self.base_delay_ms as f64, self.max_delay_ms as f64);
                let exact = (base * self.multiplier.powf(f64::from(retry_count.min(1_000)))).min(cap);
                let share = (random as f64 / u64::MAX as f64) * 2.0 - 1.0;
                (exact * (1.0 + self.jitter * share)).clamp(0.0, cap) as u64
            }
        }
    }

    /// Checks the numbers.
    ///
    /// # Errors
    /// `invalid_policy`, with the name of the field.
    pub fn validate(&self) -> Result<(), Invalid> {
        let invalid = |path: &str, message: String| Err(Invalid::new(Code::InvalidPolicy, path, message));
        if self.max_retries > RETRIES_MAX {
            return invalid("max_retries", format!("{} is more than {RETRIES_MAX}", self.max_retries));
        }
        if self.max_delay_ms > DELAY_MAX_MS {
            return invalid(
                "max_delay_ms",
                format!("{} ms are more than {DELAY_MAX_MS} ms (30 days)", self.max_delay_ms),
            );
        }
        if self.base_delay_ms > self.max_delay_ms {
            let message = format!("{} ms exceed max_delay_ms, {} ms", self.base_delay_ms, self.max_delay_ms);
            return invalid("base_delay_ms", message);
        }
        if !(1.0..=100.0).contains(&self.multiplier) {
            return invalid("multiplier", format!("{} is not between 1 and 100", self.multiplier));
        }
        if !(0.0..=1.0).contains(&self.jitter) {
            return invalid("jitter", format!("{} is not between 0 and 1", self.jitter));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The least and the greatest delay of each retry, in seconds.
    fn ranges(category: &str) -> Vec<(u64, u64)> {
        let policy = LetterPolicy::of_category(category);
        let at = |retry, random| policy.delay_ms(retry, random) / 1_000;
        (0..policy.max_retries).map(|retry| (at(retry, 0), at(retry, u64::MAX))).collect()
    }

    #[test]
    fn each_category_has_the_delays_of_integr8scode_and_jitter_never_exceeds_the_cap() {
        let aggressive = [(27, 33), (54, 66), (108, 132), (216, 264), (270, 300)];
        assert_eq!((ranges("execution"), ranges("command")), (aggressive.to_vec(), aggressive.to_vec()));
        assert_eq!(ranges("pod"), [(54, 66), (162, 198), (486, 594)]);
        assert_eq!(ranges("result"), [(0, 0), (0, 0), (0, 0)]);
        assert_eq!(ranges("saga"), [(54, 66), (135, 165), (337, 412), (843, 1_031)]);
        for random in (0..=u64::MAX).step_by(usize::MAX / 400) {
            for retry in [0, 3, 4, 40, u32::MAX] {
                assert!(LetterPolicy::of_category("execution").delay_ms(retry, random) <= 300_000);
            }
        }
    }

    #[test]
    fn fixed_and_scheduled_delays_do_not_vary_and_a_manual_letter_waits_however_often_it_was_retried() {
        let now = Timestamp::from_millis(1_000);
        for strategy in [Strategy::FixedInterval, Strategy::Scheduled] {
            let policy = LetterPolicy { strategy, ..LetterPolicy::exponential(2, 10, 100, 2.0) };
            assert_eq!([(0, 0), (1, 7), (1, u64::MAX)].map(|(count, random)| policy.delay_ms(count, random)), [10; 3]);
            assert_eq!(policy.plan(2, now, 0), Plan::Exhausted);
        }
        assert_eq!([0, 7].map(|count| LetterPolicy::manual().plan(count, now, 0)), [Plan::Waits; 2]);
        assert_eq!(LetterPolicy::immediate(3).plan(2, now, 9), Plan::At(now));
    }

    #[test]
    fn a_policy_that_cannot_be_followed_is_refused_with_its_path() {
        let policy = LetterPolicy::default();
        assert_eq!(policy.validate(), Ok(()));
        for (wrong, path) in [
            (LetterPolicy { max_delay_ms: DELAY_MAX_MS + 1, ..policy }, "max_delay_ms"),
            (LetterPolicy { base_delay_ms: 3_600_001, ..policy }, "base_delay_ms"),
            (LetterPolicy { multiplier: 0.5, ..policy }, "multiplier"),
            (LetterPolicy { jitter: f64::NAN, ..policy }, "jitter"),
            (LetterPolicy { max_retries: u32::MAX, ..policy }, "max_retries"),
        ] {
            let refused = wrong.validate().expect_err(path);
            assert_eq!((refused.code, &*refused.path), (Code::InvalidPolicy, path));
        }
    }
}
