//! A log in which another writer commits to the same aggregate first, as often as a test chooses.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use annals_core::{CommitError, CommitOutcome, EventLog, NewCommit};
use async_trait::async_trait;
use tokio::time::Instant;

use crate::tap::{Tap, Tapped};

/// Another writer that commits first.
pub struct Racing {
    /// How many more times it is first.
    races: AtomicU32,
    other: NewCommit,
    /// When commits arrived.
    tried: Mutex<Vec<Instant>>,
}

impl Racing {
    /// Commits `other`, which expects no version, before each of the next `races` commits.
    pub fn over(log: Arc<dyn EventLog>, races: u32, other: NewCommit) -> Arc<Tapped<Self>> {
        Tapped::new(log, Arc::new(Self { races: AtomicU32::new(races), other, tried: Mutex::default() }))
    }

    /// Returns the milliseconds between commits.
    ///
    /// # Panics
    /// When a commit has panicked.
    pub fn pauses(&self) -> Vec<u128> {
        let tried = self.tried.lock().expect("not poisoned");
        tried.windows(2).map(|pair| (pair[1] - pair[0]).as_millis()).collect()
    }
}

#[async_trait]
impl Tap for Racing {
    async fn commit(&self, log: &dyn EventLog, commit: NewCommit) -> Result<CommitOutcome, CommitError> {
        self.tried.lock().expect("not poisoned").push(Instant::now());
        let raced = self.races.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |races| races.checked_sub(1));
        if raced.is_ok() {
            log.commit(self.other.clone()).await?;
        }
        log.commit(commit).await
    }
}
