//! A store whose records another writer changes at a moment that a case chooses: between a read and the write that follows it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use annals_core::types::EventTypes;
use annals_core::{
    EventLog, Identity, LogStatus, PrepareKeys, Queries, RecordChange, RecordError, Records, Revision, Snapshots,
    Store, StreamDefinitions, Streams, UnknownLog,
};
use async_trait::async_trait;

use crate::tap::{TapRecords, TappedRecords};

/// Another writer of a collection, which is faster than the next batches that change it.
pub(crate) struct Rival {
    collection: &'static str,
    changes: Mutex<VecDeque<RecordChange>>,
}

impl Rival {
    pub fn of(collection: &'static str) -> Arc<Self> {
        Arc::new(Self { collection, changes: Mutex::default() })
    }

    /// Queues a change, which is made just before the next batch that changes the collection: one change for each batch.
    pub fn will(&self, change: RecordChange) {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner).push_back(change);
    }

    fn next(&self) -> Option<RecordChange> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    /// Whether it has made all its changes.
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

/// A store with a rival.
pub(crate) struct Contested {
    pub inner: Arc<dyn Store>,
    pub rival: Arc<Rival>,
}

#[async_trait]
impl Store for Contested {
    fn log(&self, tenant: &str, scope: &str) -> Result<Arc<dyn EventLog>, UnknownLog> {
        self.inner.log(tenant, scope)
    }

    fn records(&self, tenant: &str) -> Result<Arc<dyn Records>, UnknownLog> {
        Ok(TappedRecords::new(self.inner.records(tenant)?, Arc::clone(&self.rival)))
    }

    fn snapshots(&self, tenant: &str) -> Result<Arc<dyn Snapshots>, UnknownLog> {
        self.inner.snapshots(tenant)
    }

    fn queries(&self, tenant: &str) -> Result<Arc<dyn Queries>, UnknownLog> {
        self.inner.queries(tenant)
    }

    fn prepare_keys(&self, tenant: &str) -> Result<Arc<dyn PrepareKeys>, UnknownLog> {
        self.inner.prepare_keys(tenant)
    }

    fn event_types(&self, tenant: &str) -> Result<Arc<dyn EventTypes>, UnknownLog> {
        self.inner.event_types(tenant)
    }

    fn streams(&self, tenant: &str, scope: &str) -> Result<Arc<dyn Streams>, UnknownLog> {
        self.inner.streams(tenant, scope)
    }

    fn stream_definitions(&self, tenant: &str, scope: &str) -> Result<Arc<dyn StreamDefinitions>, UnknownLog> {
        self.inner.stream_definitions(tenant, scope)
    }

    fn is_shared(&self) -> bool {
        self.inner.is_shared()
    }

    fn tenants(&self) -> Vec<String> {
        self.inner.tenants()
    }

    fn identity(&self, tenant: &str) -> Option<Identity> {
        self.inner.identity(tenant)
    }

    fn status(&self) -> Vec<LogStatus> {
        self.inner.status()
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}
