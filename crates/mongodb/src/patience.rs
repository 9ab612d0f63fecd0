//! How long a store that is being closed waits for MongoDB: what is under way gets some time for its answer, and is then given up. Whether
//! it happened is unknown, and said to be.

use std::future::Future;

use annals_core::StoreError;
use tokio::sync::watch;

/// What it is for: requests wait under it, closing ends it.
pub(crate) struct Patience(watch::Sender<bool>);

impl Default for Patience {
    fn default() -> Self {
        Self(watch::Sender::new(false))
    }
}

impl Patience {
    /// Gives up whatever waits now or later.
    pub(crate) fn end(&self) {
        self.0.send_replace(true);
    }

    /// What comes of the work; none where it was given up first.
    pub(crate) async fn during<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut ended = self.0.subscribe();
        tokio::select! {
            biased;
            done = work => Some(done),
            // The sender is not dropped while it is borrowed.
            _ = ended.wait_for(|ended| *ended) => None,
        }
    }
}

/// The answer to what was given up.
pub(crate) fn given_up() -> StoreError {
    StoreError::Unreachable("the store was closed before MongoDB answered".to_owned())
}
