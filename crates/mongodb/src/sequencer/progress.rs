//! How the work of the process that leads goes on, as the others are told.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use annals_system::Instant;

/// Work that makes no progress for so long is told to people.
const STUCK: Duration = Duration::from_secs(10);

/// How the work goes on.
#[derive(Default)]
pub(super) struct Progress {
    /// How long the newest commit that got numbers had been stored by then, in milliseconds; 0 when the stream has nothing more.
    pub(super) lag: AtomicU64,
    /// Since when the work that is under way has made no progress; none while there is none.
    still: Mutex<Option<Instant>>,
}

impl Progress {
    /// Something is under way, and has come further.
    pub(super) fn moves(&self) {
        *self.still.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Nothing is under way.
    pub(super) fn rests(&self) {
        *self.still.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// What is the matter, where the work stands still.
    pub(super) fn stuck(&self) -> Option<String> {
        let still = *self.still.lock().unwrap_or_else(PoisonError::into_inner);
        let time = still.map(|since| since.elapsed()).filter(|time| *time >= STUCK)?;
        Some(format!("the work in flight has made no progress for {} s", time.as_secs()))
    }

    pub(super) fn lag(&self) -> u64 {
        self.lag.load(Ordering::Relaxed)
    }
}
