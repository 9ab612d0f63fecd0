//! Another writer, which changes records at a moment that a case chooses: between a read and the following write.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use annals_core::{RecordChange, RecordError, Records, Revision};
use async_trait::async_trait;

use crate::tap::TapRecords;

/// Another writer of a collection, whose changes come before the next batches that change it.
pub(crate) struct Rival {
    collection: &'static str,
    changes: Mutex<VecDeque<RecordChange>>,
}

impl Rival {
    pub fn of(collection: &'static str) -> Arc<Self> {
        Arc::new(Self { collection, changes: Mutex::default() })
    }

    /// Queues a change, which is applied just before the next batch that changes the collection. Each batch has one change before it.
    pub fn will(&self, change: RecordChange) {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner).push_back(change);
    }

    fn next(&self) -> Option<RecordChange> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    /// Returns whether it has applied all its changes.
    pub fn is_done(&self) -> bool {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

#[async_trait]
impl TapRecords for Rival {
    async fn write(&self, records: &dyn Records, changes: Vec<RecordChange>) -> Result<Vec<Revision>, RecordError> {
        let is_its = |change: &RecordChange| {
            change.collection() == self.collection && !matches!(change, RecordChange::Check { .. })
        };
        let faster = if changes.iter().any(is_its) { self.next() } else { None };
        if let Some(change) = faster {
            records.write(vec![change]).await?;
        }
        records.write(changes).await
    }
}
