//! Steps of the sequencer that are taken whole when its process stops.
//!
//! A request that is broken off may reach the server after all, and after what was to undo it: a lease would be taken by a process that
//! is gone, and a transaction would be begun that nobody ends, which holds up the next sequencer for a minute.

use std::time::Duration;

use tokio::sync::{RwLock, RwLockReadGuard};

/// How long a stop waits for steps. A server that does not answer must not keep a process from ending.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// The steps that are under way.
#[derive(Default)]
pub(super) struct Steps(RwLock<()>);

impl Steps {
    /// Begins a step, which lasts until the guard is dropped. None begins while a stop waits.
    pub(super) async fn begin(&self) -> RwLockReadGuard<'_, ()> {
        self.0.read().await
    }

    /// Waits until no step is under way, or for as long as a stop may.
    pub(super) async fn ended(&self) {
        // INVARIANT: the lock is fair, so a step that has not begun waits behind this.
        let _ = tokio::time::timeout(WAIT_MAX, self.0.write()).await;
    }
}
