//! A store that counts what is asked of its records.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use annals_core::{
    EventLog, GroupPage, GroupQuery, Identity, LogStatus, PrepareKeys, Queries, RecordChange, RecordError, RecordPage,
    RecordQuery, Records, Revision, Snapshots, Store, StreamDefinitions, Streams, UnknownLog,
};
use async_trait::async_trait;

use crate::tap::{TapRecords, TappedRecords};

/// Counts, by collection: writes, and queries of several records.
#[derive(Default)]
pub(super) struct Calls {
    writes: Mutex<BTreeMap<String, usize>>,
    queries: Mutex<BTreeMap<String, usize>>,
}

impl Calls {
    /// How many records of a collection were to be changed.
    pub fn writes(&self, collection: &str) -> usize {
        self.writes.lock().expect("sound").get(collection).copied().unwrap_or(0)
    }

    /// How often a collection was queried.
    pub fn queries(&self, collection: &str) -> usize {
        self.queries.lock().expect("sound").get(collection).copied().unwrap_or(0)
    }

    fn note_query(&self, collection: &str) {
        *self.queries.lock().expect("sound").entry(collection.to_owned()).or_default() += 1;
    }
}

#[async_trait]
impl TapRecords for Calls {
    async fn write(&self, records: &dyn Records, changes: Vec<RecordChange>) -> Result<Vec<Revision>, RecordError> {
        for change in &changes {
            *self.writes.lock().expect("sound").entry(change.collection().to_owned()).or_default() += 1;
        }
        records.write(changes).await
    }

    async fn find(&self, records: &dyn Records, query: RecordQuery) -> Result<RecordPage, RecordError> {
        self.note_query(&query.collection);
        records.find(query).await
    }

    async fn group(&self, records: &dyn Records, query: GroupQuery) -> Result<GroupPage, RecordError> {
        self.note_query(&query.collection);
        records.group(query).await
    }
}

/// A store whose records are asked through a count.
pub(super) struct Counted {
    pub inner: Arc<dyn Store>,
    pub calls: Arc<Calls>,
}

#[async_trait]
impl Store for Counted {
    fn log(&self, tenant: &str, scope: &str) -> Result<Arc<dyn EventLog>, UnknownLog> {
        self.inner.log(tenant, scope)
    }

    fn records(&self, tenant: &str) -> Result<Arc<dyn Records>, UnknownLog> {
        Ok(TappedRecords::new(self.inner.records(tenant)?, Arc::clone(&self.calls)))
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
