//! Steps of the sequencer that are completed before its process stops.
//!
//! A cancelled request may still reach the server, even after the request that was to undo it. The lease would then be held by a process
//! that is gone, or a transaction would stay open and block the next leader for a minute.

use std::time::Duration;

use tokio::sync::{RwLock, RwLockReadGuard};

/// How long a stop waits for steps. A server that does not respond must not keep a process from exiting.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// The steps in flight.
#[derive(Default)]
pub(super) struct Steps(RwLock<()>);

impl Steps {
    /// Begins a step, which lasts until the guard is dropped. No step begins while a stop is waiting.
    pub(super) async fn begin(&self) -> RwLockReadGuard<'_, ()> {
        self.0.read().await
    }

    /// Waits until no step is in flight, at most [`WAIT_MAX`].
    pub(super) async fn ended(&self) {
        // INVARIANT: the lock is fair, so a step that has not begun queues after this writer.
        let _ = tokio::time::timeout(WAIT_MAX, self.0.write()).await;
    }
}
