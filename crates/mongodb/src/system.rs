//! The system's clock and randomness: the only place in the store that asks for them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use annals_core::{Clock, Randomness, Timestamp};
use siphasher::sip128::SipHasher13;

/// The system's clock.
pub struct SystemClock;

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "this is the port's implementation")]
    fn now(&self) -> Timestamp {
        let millis = match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => since.as_millis() as i64,
            Err(before) => -(before.duration().as_millis() as i64),
        };
        Timestamp::from_millis(millis)
    }
}

/// Random bits from a key that the system gave once and a counter: no lock and no system call per number.
pub struct SystemRandomness {
    key: [u8; 16],
    count: AtomicU64,
}

impl SystemRandomness {
    /// Asks the system for a fresh key.
    ///
    /// # Panics
    /// When the system has no randomness to give, which no supported system does.
    pub fn new() -> Self {
        let mut key = [0; 16];
        getrandom::fill(&mut key).expect("the operating system gives random bytes");
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
