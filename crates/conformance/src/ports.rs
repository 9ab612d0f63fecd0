//! Time and randomness that a test controls.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use annals_core::{Clock, Randomness, Sleep, Timestamp};
use tokio::sync::watch;

/// A clock that stands still until it is advanced.
#[derive(Debug)]
pub struct ManualClock(watch::Sender<Timestamp>);

impl Default for ManualClock {
    fn default() -> Self {
        Self::at(Timestamp::default())
    }
}

impl ManualClock {
    /// Returns a clock that stands at `time`.
    pub fn at(time: Timestamp) -> Self {
        Self(watch::Sender::new(time))
    }

    /// Advances the clock by this many milliseconds, and wakes everything that sleeps until then.
    pub fn advance_millis(&self, millis: i64) {
        self.0.send_modify(|now| *now = Timestamp::from_millis(now.as_millis() + millis));
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        *self.0.borrow()
    }

    fn sleep_until(&self, at: Timestamp) -> Sleep<'_> {
        Box::pin(async move {
            // The sender lives as long as `self`, so waiting cannot fail.
            let _ = self.0.subscribe().wait_for(|now| *now >= at).await;
        })
    }

    /// Counts only how far the clock advances, like the machine's clock: setting it back does not prolong the sleep.
    fn sleep(&self, time: Duration) -> Sleep<'_> {
        let mut changes = self.0.subscribe();
        let (mut left, mut before) = (time, *changes.borrow_and_update());
        Box::pin(async move {
            while !left.is_zero() {
                // The sender lives as long as `self`, so waiting cannot fail.
                let _ = changes.changed().await;
                let now = *changes.borrow_and_update();
                left = left.saturating_sub(now.since(before));
                before = now;
            }
        })
    }
}

/// Random bits that are the same in every run.
#[derive(Debug)]
pub struct SeededRandomness(Mutex<fastrand::Rng>);

impl SeededRandomness {
    /// Returns the bits that follow from `seed`.
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(fastrand::Rng::with_seed(seed)))
    }
}

impl Randomness for SeededRandomness {
    fn bits(&self) -> u128 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).u128(..)
    }
}
