//! Limits how long one reader works before it yields to other tasks.

use std::time::Duration;

use annals_system::Instant;

/// Other tasks wait at most this long, and yielding costs little in comparison.
const TURN: Duration = Duration::from_micros(500);

/// One turn of a reader.
pub(crate) struct Turn(Instant);

impl Turn {
    pub(crate) fn begin() -> Self {
        Self(Instant::now())
    }

    /// Returns whether it is time to yield.
    pub(crate) fn is_over(&self) -> bool {
        self.0.elapsed() >= TURN
    }
}
