//! The progress of the leader, as other processes see it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use annals_system::Instant;

/// Work that makes no progress for this long is reported.
const STUCK: Duration = Duration::from_secs(10);

/// The progress of the leader's work.
#[derive(Default)]
pub(super) struct Progress {
    /// How long the newest numbered commit had been stored before it got its numbers, in milliseconds; 0 when the stream has nothing more.
    pub(super) lag: AtomicU64,
    /// When the work in flight last made progress; `None` while idle.
    still: Mutex<Option<Instant>>,
}

impl Progress {
    /// Records progress of the work in flight.
    pub(super) fn moves(&self) {
        *self.still.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Records that the sequencer is idle.
    pub(super) fn rests(&self) {
        *self.still.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Returns a message if the work in flight is stuck.
    pub(super) fn stuck(&self) -> Option<String> {
        let still = *self.still.lock().unwrap_or_else(PoisonError::into_inner);
        let time = still.map(|since| since.elapsed()).filter(|time| *time >= STUCK)?;
        Some(format!("what is under way has made no progress for {} s", time.as_secs()))
    }

    pub(super) fn lag(&self) -> u64 {
        self.lag.load(Ordering::Relaxed)
    }
}
