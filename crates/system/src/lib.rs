//! The machine's clock, the time of the process, and randomness. `annals-core` must not access any of them, while every adapter and the
//! runtime need them by default; hence this crate. Nothing else in the product reads the time or requests random bits. Lines, in which
//! tasks wait for each other, are here because `annals-core` has no tasks, and seals, which need a random key.

mod instant;
mod lines;
mod seal;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use annals_core::{Clock, Randomness, Sleep, Timestamp};
use siphasher::sip128::SipHasher13;

pub use instant::{Instant, sleep};
pub use lines::{InLine, Lines};
pub use seal::Seal;

/// The shortest interval at which a sleep checks the wall clock, so that a sleep until a time notices that the clock was set. With more
/// than a minute to go, the interval is a 60th of the remaining time, so that a long sleep does not wake its task every second.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The longest interval. After a suspend, or after the clock was set, no sleep overruns by more than this.
const LOOK_AT_LEAST: Duration = Duration::from_secs(30);

/// The machine's clock. Sleeping needs a Tokio runtime.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the port's implementation")]
    fn now(&self) -> Timestamp {
        let millis = match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => since.as_millis() as i64,
            Err(before) => -(before.duration().as_millis() as i64),
        };
        Timestamp::from_millis(millis).nearest_writable()
    }

    fn sleep_until(&self, at: Timestamp) -> Sleep<'_> {
        Box::pin(async move {
            loop {
                let left = at.since(self.now());
                if left.is_zero() {
                    return;
                }
                sleep(until_look(left)).await;
            }
        })
    }

    /// Sleeps on the monotonic clock: setting the wall clock neither shortens nor prolongs it.
    fn sleep(&self, time: Duration) -> Sleep<'_> {
        Box::pin(sleep(time))
    }
}

/// Returns how long a sleep with this much time left sleeps before it checks the wall clock.
fn until_look(left: Duration) -> Duration {
    left.min((left / 60).clamp(LOOK_EVERY, LOOK_AT_LEAST))
}

/// Returns the machine's time in nanoseconds since 1970, for measurements and display only. Nothing must be decided by it.
#[expect(clippy::disallowed_methods, reason = "this is where the system's clock is read")]
pub fn unix_nanos() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns random bytes from the system's own generator, for secrets.
///
/// # Errors
/// Returns a sentence if the system provides none. A secret must then not be derived from anything else.
pub fn secret_bytes<const N: usize>() -> Result<[u8; N], String> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| format!("the system gives no random bytes: {error}"))?;
    Ok(bytes)
}

/// Random bits derived from a key that the system provides once, and a counter. A number costs neither a lock nor a system call.
#[derive(Debug)]
pub struct SystemRandomness {
    key: [u8; 16],
    count: AtomicU64,
}

impl SystemRandomness {
    /// Reads a fresh key from the system.
    ///
    /// # Panics
    /// Panics if the system has no randomness, which every supported system provides.
    pub fn new() -> Self {
        let mut key = [0; 16];
        getrandom::fill(&mut key).expect("the operating system provides random bytes");
        Self { key, count: AtomicU64::new(0) }
    }
}

impl Default for SystemRandomness {
    fn default() -> Self {
        Self::new()
    }
}

impl Randomness for SystemRandomness {
    fn bits(&self) -> u128 {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        SipHasher13::new_with_key(&self.key).hash(&count.to_le_bytes()).as_u128()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_sleep_until_a_past_time_returns_at_once_and_one_until_a_future_time_returns_after_it() {
        let clock = SystemClock;
        clock.sleep_until(clock.now()).await;
        let at = clock.now().plus(Duration::from_millis(20));
        clock.sleep_until(at).await;
        assert!(clock.now() >= at);
    }

    #[test]
    fn a_sleep_looks_at_the_clock_every_second_and_more_rarely_while_its_end_is_far_away() {
        let seconds = |left| until_look(Duration::from_secs(left)).as_secs();
        assert_eq!([30, 60, 3_600, 86_400].map(seconds), [1, 1, 30, 30]);
        let short = Duration::from_millis(20);
        assert_eq!(until_look(short), short, "no sleep is longer than what is left");
    }

    #[test]
    fn random_bits_differ_between_calls_and_between_instances() {
        let one = SystemRandomness::new();
        assert_ne!(one.bits(), one.bits());
        assert_ne!(SystemRandomness::new().bits(), SystemRandomness::new().bits());
    }
}
