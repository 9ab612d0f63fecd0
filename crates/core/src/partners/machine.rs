//! The state machine of attempts. It is pure: the current time is an argument, and the next one is a result.
//!
//! ```text
//!  PENDING ─▶ PROCESSING (leased) ─┬─ delivered ───────────────────────────▶ SUCCESS
//!                 ▲                ├─ failed, attempts left ─▶ FAILED, due later ─┐
//!                 │                ├─ failed five times ─────▶ FAILED, exhausted  │
//!                 │                └─ cannot heal ───────────▶ FAILED, refused    │
//!                 └───────────────────────────────────────────────────────────────┘
//! ```

use std::time::Duration;

use super::Ending;
use crate::Timestamp;

/// The number of attempts of an event, until it is resent manually.
pub const ATTEMPTS_MAX: i32 = 5;
/// The longest wait that a partner can ask for.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// The time between the first two attempts; it doubles with each further one.
const FIRST_DELAY: Duration = Duration::from_secs(5);

/// The outcome of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The partner accepted the event, or the received event is committed.
    Delivered {
        /// The status of the response; `None` for a commit.
        status: Option<u16>,
    },
    /// A later attempt may succeed.
    Failed {
        /// Why, for people.
        reason: String,
        /// The status of the response, if there was one.
        status: Option<u16>,
        /// The wait that the partner asks for.
        retry_after: Option<Duration>,
    },
    /// It cannot succeed unless either side changes something.
    Refused {
        /// Why, for people.
        reason: String,
        /// The status of the response, if there was one.
        status: Option<u16>,
    },
}

/// The consequence of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The event is final.
    End(Ending),
    /// The event is attempted again at this time.
    Retry(Timestamp),
}

/// Returns the time between the attempt with this number, from 1, and the next one: 5, 10, 20 and 40 s.
pub fn retry_delay(attempt: i32) -> Duration {
    FIRST_DELAY * 2_u32.pow(u32::try_from(attempt - 1).unwrap_or(0).min(16))
}

/// Returns the consequence of an attempt that has just ended. `attempt` counts from when the event was recorded or resent.
pub fn after_attempt(attempt: i32, outcome: &Outcome, now: Timestamp) -> Next {
    match outcome {
        Outcome::Delivered { .. } => Next::End(Ending::Success),
        Outcome::Refused { .. } => Next::End(Ending::Refused),
        Outcome::Failed { .. } if attempt >= ATTEMPTS_MAX => Next::End(Ending::Exhausted),
        Outcome::Failed { retry_after, .. } => {
            let asked = retry_after.unwrap_or_default().min(RETRY_AFTER_MAX);
            Next::Retry(now.plus(retry_delay(attempt).max(asked)))
        }
    }
}

/// Returns the outcome that a response with this status means. Of the 4xx statuses, only 408, 409, 425 and 429 are retried.
pub fn of_answer(status: u16, retry_after: Option<Duration>, said: &str) -> Outcome {
    let reason = if said.is_empty() { format!("answered {status}") } else { format!("answered {status}: {said}") };
    match status {
        200..=299 => Outcome::Delivered { status: Some(status) },
        408 | 409 | 425 | 429 => Outcome::Failed { reason, status: Some(status), retry_after },
        400..=499 => Outcome::Refused { reason, status: Some(status) },
        300..=399 => {
            let reason = format!("answered {status}; redirects are not followed, so change the partner's url");
            Outcome::Failed { reason, status: Some(status), retry_after }
        }
        _ => Outcome::Failed { reason, status: Some(status), retry_after },
    }
}

/// Stops sending to a partner after consecutive failures, so that its events keep their attempts. After a wait, a single event probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Breaker {
    failures: u32,
    opened: Option<Timestamp>,
}

impl Breaker {
    /// Returns until when the breaker stays open; `None` while it is closed.
    pub fn opens_until(&self, wait: Duration) -> Option<Timestamp> {
        self.opened.map(|at| at.plus(wait))
    }

    /// Returns how many attempts may be in flight, given the usual limit: none while the breaker is open, one once it may probe.
    pub fn admits(&self, now: Timestamp, concurrency: usize, wait: Duration) -> usize {
        match self.opens_until(wait) {
            None => concurrency,
            Some(until) if until <= now => 1,
            Some(_) => 0,
        }
    }

    /// Records the outcome of an attempt that has just ended. A refusal closes the breaker too, because it shows that the partner is
    /// reachable. So do the statuses 409 and 425.
    pub fn note(&mut self, outcome: &Outcome, now: Timestamp, failures_max: u32) {
        match outcome {
            Outcome::Failed { status: Some(409 | 425), .. } | Outcome::Delivered { .. } | Outcome::Refused { .. } => {
                *self = Self::default();
            }
            Outcome::Failed { .. } => {
                self.failures = self.failures.saturating_add(1);
                if self.failures >= failures_max {
                    self.opened = Some(now);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed() -> Outcome {
        Outcome::Failed { reason: "down".into(), status: None, retry_after: None }
    }

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);

    #[test]
    fn delays_are_5_10_20_and_40_s_and_the_fifth_failure_is_the_last() {
        for (attempt, seconds) in [(1, 5), (2, 10), (3, 20), (4, 40)] {
            let due = NOW.plus(Duration::from_secs(seconds));
            assert_eq!(after_attempt(attempt, &failed(), NOW), Next::Retry(due));
        }
        assert_eq!(after_attempt(5, &failed(), NOW), Next::End(Ending::Exhausted));
    }

    #[test]
    fn retry_after_is_honoured_where_it_is_longer_and_up_to_a_day() {
        let asked = |seconds| Outcome::Failed {
            reason: String::new(),
            status: Some(429),
            retry_after: Some(Duration::from_secs(seconds)),
        };
        for (asks, waits) in [(1, 5), (60, 60), (10_000_000, 86_400)] {
            let due = NOW.plus(Duration::from_secs(waits));
            assert_eq!(after_attempt(1, &asked(asks), NOW), Next::Retry(due));
        }
    }

    #[test]
    fn an_answer_that_blames_the_request_ends_early_unless_it_can_heal() {
        for status in [400, 401, 403, 404, 410, 413, 415, 422, 451] {
            assert!(matches!(of_answer(status, None, ""), Outcome::Refused { .. }), "{status}");
        }
        for status in [301, 302, 307, 408, 409, 425, 429, 500, 502, 503, 504, 599] {
            assert!(matches!(of_answer(status, None, ""), Outcome::Failed { .. }), "{status}");
        }
        assert_eq!(of_answer(204, None, ""), Outcome::Delivered { status: Some(204) });
    }

    #[test]
    fn a_breaker_opens_after_failures_in_a_row_and_probes_with_one() {
        let (mut breaker, wait) = (Breaker::default(), Duration::from_secs(30));
        breaker.note(&failed(), NOW, 2);
        assert_eq!(breaker.admits(NOW, 8, wait), 8);
        breaker.note(&failed(), NOW, 2);
        assert_eq!(breaker.admits(NOW, 8, wait), 0);
        let later = NOW.plus(wait);
        assert_eq!(breaker.admits(later, 8, wait), 1);
        breaker.note(&failed(), later, 2);
        assert_eq!(breaker.admits(later, 8, wait), 0, "the probe failed");
        breaker.note(&Outcome::Delivered { status: Some(200) }, later, 2);
        assert_eq!(breaker.admits(later, 8, wait), 8);
    }
}
