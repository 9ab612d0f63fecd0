//! A batch whose write is held back for as long as a case chooses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use annals_core::{RecordChange, RecordError, Records, Revision};
use async_trait::async_trait;
use tokio::sync::watch;

use crate::tap::TapRecords;

/// Holds back one batch that changes a collection.
pub(crate) struct Withheld {
    collection: &'static str,
    /// Whether the next batch is the one to hold.
    holds: AtomicBool,
    arrived: watch::Sender<bool>,
    let_go: watch::Sender<bool>,
}

impl Withheld {
    pub fn of(collection: &'static str) -> Arc<Self> {
        let (arrived, let_go) = (watch::Sender::new(false), watch::Sender::new(false));
        Arc::new(Self { collection, holds: AtomicBool::new(false), arrived, let_go })
    }

    /// Holds the next batch. Works once only.
    pub fn hold_next(&self) {
        self.holds.store(true, Ordering::SeqCst);
    }

    /// Waits until the batch has arrived.
    pub async fn has_arrived(&self) {
        let _ = self.arrived.subscribe().wait_for(|arrived| *arrived).await;
    }

    pub fn let_go(&self) {
        self.let_go.send_replace(true);
    }
}

#[async_trait]
impl TapRecords for Withheld {
    async fn write(&self, records: &dyn Records, changes: Vec<RecordChange>) -> Result<Vec<Revision>, RecordError> {
        let is_its = changes.iter().any(|change| change.collection() == self.collection);
        if is_its && self.holds.swap(false, Ordering::SeqCst) {
            self.arrived.send_replace(true);
            let _ = self.let_go.subscribe().wait_for(|let_go| *let_go).await;
        }
        records.write(changes).await
    }
}
