//! The system's clock and randomness, where nobody gives others.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use annals_core::{Clock, Randomness, Timestamp};

/// The system's clock.
pub(crate) struct SystemClock;

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

/// Random bits for pauses, which need not be good ones: hashes of a counter by the keys that the standard library's maps have.
#[derive(Default)]
pub(crate) struct SystemRandomness {
    keys: RandomState,
    count: AtomicU64,
}

impl Randomness for SystemRandomness {
    fn bits(&self) -> u128 {
        let half = || u128::from(self.keys.hash_one(self.count.fetch_add(1, Ordering::Relaxed)));
        half() << 64 | half()
    }
}
