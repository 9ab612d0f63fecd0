//! How long one reader works before others have their turn.

use std::time::Duration;

use annals_system::Instant;

/// Others wait for so long at most, and giving way costs little beside it.
const TURN: Duration = Duration::from_micros(500);

/// One turn of a reader.
pub(crate) struct Turn(Instant);

impl Turn {
    pub(crate) fn begin() -> Self {
        Self(Instant::now())
    }

    /// Whether others have their turn now.
    pub(crate) fn is_over(&self) -> bool {
        self.0.elapsed() >= TURN
    }
}
