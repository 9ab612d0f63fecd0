//! A store as a process sees it that is killed at one of its writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use annals_core::bson::Bson;
use annals_core::{
    ChangeNumber, ChangesError, Collection, CommitError, CommitOutcome, Condition, EventLog, Explained, GroupPage,
    GroupQuery, Identity, LogStatus, NewCommit, PrepareKeys, Queries, Record, RecordChange, RecordError, RecordPage,
    RecordQuery, RecordedChange, Records, Revision, Snapshots, Store, StoreError, StreamDefinitions, Streams,
    UnknownLog,
};
use async_trait::async_trait;

use crate::tap::{Tap, Tapped};

/// How long a process lives: for so many writes of partners and of the log.
pub(super) struct Life {
    left: AtomicI64,
    /// Whether its last write reaches the store, whose answer it never sees.
    applied: bool,
    over: AtomicBool,
}

enum Write {
    Goes,
    Last,
    Never,
}

impl Life {
    /// Ends at the write after this many. That write is applied without an answer, or not at all.
    pub fn of(writes: i64, applied: bool) -> Arc<Self> {
        Arc::new(Self { left: AtomicI64::new(writes), applied, over: AtomicBool::default() })
    }

    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    fn next(&self) -> Write {
        match self.left.fetch_sub(1, Ordering::SeqCst) {
            1.. => Write::Goes,
            0 => Write::Last,
            _ => Write::Never,
        }
    }

    /// Makes a write, if the process lives. None once it does not.
    async fn write<T>(&self, write: impl Future<Output = T>) -> Option<T> {
        match self.next() {
            Write::Goes => Some(write.await),
            Write::Never => None,
            Write::Last => {
                if self.applied {
                    write.await;
                }
                self.over.store(true, Ordering::SeqCst);
                None
            }
        }
    }
}

#[async_trait]
impl Tap for Life {
    async fn commit(&self, log: &dyn EventLog, commit: NewCommit) -> Result<CommitOutcome, CommitError> {
        self.write(log.commit(commit)).await.unwrap_or(Err(CommitError::Store(StoreError::Closed)))
    }
}

fn is_of_partners(collection: &str) -> bool {
    ["partner_events", "annals-partner"].iter().any(|beginning| collection.starts_with(beginning))
}

struct MortalRecords {
    inner: Arc<dyn Records>,
    life: Arc<Life>,
}

#[async_trait]
impl Records for MortalRecords {
    async fn declare(&self, collection: Collection) -> Result<(), RecordError> {
        self.inner.declare(collection).await
    }

    async fn collections(&self) -> Result<Vec<Collection>, RecordError> {
        self.inner.collections().await
    }

    async fn write(&self, changes: Vec<RecordChange>) -> Result<Vec<Revision>, RecordError> {
        let closed = || Err(StoreError::Closed.into());
        if changes.iter().any(|change| is_of_partners(change.collection())) {
            return self.life.write(self.inner.write(changes)).await.unwrap_or_else(closed);
        }
        // Leases and what other features keep go on while the process lives, and are no steps.
        if self.life.is_over() { closed() } else { self.inner.write(changes).await }
    }

    async fn get(&self, collection: &str, id: &Bson) -> Result<Option<Record>, RecordError> {
        self.inner.get(collection, id).await
    }

    async fn find(&self, query: RecordQuery) -> Result<RecordPage, RecordError> {
        self.inner.find(query).await
    }

    async fn explain(&self, query: RecordQuery) -> Result<Explained, RecordError> {
        self.inner.explain(query).await
    }

    async fn count(&self, collection: &str, condition: &Condition) -> Result<u64, RecordError> {
        self.inner.count(collection, condition).await
    }

    async fn group(&self, query: GroupQuery) -> Result<GroupPage, RecordError> {
        self.inner.group(query).await
    }

    async fn changes(
        &self,
        collection: &str,
        after: ChangeNumber,
        limit: usize,
    ) -> Result<Vec<RecordedChange>, ChangesError> {
        self.inner.changes(collection, after, limit).await
    }

    async fn last_change(&self, collection: &str) -> Result<ChangeNumber, ChangesError> {
        self.inner.last_change(collection).await
    }

    async fn wait_past_change(&self, collection: &str, after: ChangeNumber) -> Result<ChangeNumber, ChangesError> {
        self.inner.wait_past_change(collection, after).await
    }
}

/// A store whose writes end with a life.
pub(super) struct Mortal {
    pub inner: Arc<dyn Store>,
    pub life: Arc<Life>,
}

#[async_trait]
impl Store for Mortal {
    fn log(&self, tenant: &str, scope: &str) -> Result<Arc<dyn EventLog>, UnknownLog> {
        Ok(Tapped::new(self.inner.log(tenant, scope)?, Arc::clone(&self.life)))
    }

    fn records(&self, tenant: &str) -> Result<Arc<dyn Records>, UnknownLog> {
        Ok(Arc::new(MortalRecords { inner: self.inner.records(tenant)?, life: Arc::clone(&self.life) }))
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
