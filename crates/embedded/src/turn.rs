//! How long one reader works before others have their turn.

use std::time::{Duration, Instant};

/// Others wait for so long at most, and giving way costs little beside it.
const TURN: Duration = Duration::from_micros(500);

/// One turn of a reader.
pub(crate) struct Turn(Instant);

impl Turn {
    #[expect(
        clippy::disallowed_methods,
        reason = "it says when others have their turn, and nothing that is answered depends on it"
    )]
    pub(crate) fn begin() -> Self {
        Self(Instant::now())
    }

    /// Whether others have their turn now.
    pub(crate) fn is_over(&self) -> bool {
        self.0.elapsed() >= TURN
    }
}
