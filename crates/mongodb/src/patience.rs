//! Limits how long a store that is being closed waits for MongoDB: requests in flight get some time, and are then given up. Their outcome
//! is unknown, and reported as such.

use std::future::Future;

use annals_core::StoreError;
use tokio::sync::watch;

/// Waited on by requests in flight, and ended when the store closes.
pub(crate) struct Patience(watch::Sender<bool>);

impl Default for Patience {
    fn default() -> Self {
        Self(watch::Sender::new(false))
    }
}

impl Patience {
    /// Gives up all requests that wait now or later.
    pub(crate) fn end(&self) {
        self.0.send_replace(true);
    }

    /// Runs the work; returns `None` if it was given up first.
    pub(crate) async fn during<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut ended = self.0.subscribe();
        tokio::select! {
            biased;
            done = work => Some(done),
            // The sender lives at least as long as this borrow.
            _ = ended.wait_for(|ended| *ended) => None,
        }
    }
}

/// Returns the error for a request that was given up.
pub(crate) fn given_up() -> StoreError {
    StoreError::Unreachable("the store was closed before MongoDB answered".to_owned())
}
