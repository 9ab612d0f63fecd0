//! Time and randomness that a test decides.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};

use annals_core::{Clock, Randomness, Timestamp};

/// A clock that stands still until it is moved.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// A clock that stands at `time`.
    pub fn at(time: Timestamp) -> Self {
        Self(AtomicI64::new(time.as_millis()))
    }

    /// Moves it on by so many milliseconds.
    pub fn advance_millis(&self, millis: i64) {
        self.0.fetch_add(millis, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }
}

/// Random bits that are the same in every run.
#[derive(Debug)]
pub struct SeededRandomness(Mutex<fastrand::Rng>);

impl SeededRandomness {
    /// The bits that follow from `seed`.
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(fastrand::Rng::with_seed(seed)))
    }
}

impl Randomness for SeededRandomness {
    fn bits(&self) -> u128 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).u128(..)
    }
}
