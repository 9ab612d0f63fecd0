//! A real store with a tap on its log: reads are counted and can be made to fail, commits can be held back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use annals_core::*;
use annals_embedded::disk::MemoryDisk;
use async_trait::async_trait;
use tokio::sync::watch;

use crate::running::store_on;

/// What happens to a read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    Pass,
    Fail,
    Panic,
}

/// The store.
pub struct Tapped {
    inner: Arc<dyn Store>,
    pub tap: Arc<Tap>,
}

/// The tap.
pub struct Tap {
    pub reads: AtomicU64,
    pub commits_begun: watch::Sender<u64>,
    pub reading: watch::Sender<Reads>,
    pub commits_held: watch::Sender<bool>,
    pub stats_held: watch::Sender<bool>,
}

impl Tapped {
    pub fn store() -> (Arc<dyn Store>, Arc<Tap>) {
        let tap = Arc::new(Tap {
            reads: AtomicU64::new(0),
            commits_begun: watch::Sender::new(0),
            reading: watch::Sender::new(Reads::Pass),
            commits_held: watch::Sender::new(false),
            stats_held: watch::Sender::new(false),
        });
        let inner = store_on(Arc::new(MemoryDisk::default()), annals_embedded::Options::default());
        (Arc::new(Self { inner, tap: Arc::clone(&tap) }), tap)
    }
}

#[async_trait]
impl Store for Tapped {
    fn log(&self, tenant: &str, scope: &str) -> Result<Arc<dyn EventLog>, UnknownLog> {
        Ok(annals_conformance::tap::Tapped::new(self.inner.log(tenant, scope)?, Arc::clone(&self.tap)))
    }

    fn streams(&self, tenant: &str, scope: &str) -> Result<Arc<dyn Streams>, UnknownLog> {
        self.inner.streams(tenant, scope)
    }

    fn records(&self, tenant: &str) -> Result<Arc<dyn Records>, UnknownLog> {
        self.inner.records(tenant)
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

#[async_trait]
impl annals_conformance::tap::Tap for Tap {
    async fn commit(&self, log: &dyn EventLog, commit: NewCommit) -> Result<CommitOutcome, CommitError> {
        self.hold().await;
        log.commit(commit).await
    }

    async fn transact(
        &self,
        log: &dyn EventLog,
        transaction: NewTransaction,
    ) -> Result<Vec<CommitOutcome>, TransactionError> {
        self.hold().await;
        log.transact(transaction).await
    }

    async fn read(&self, log: &dyn EventLog, query: LogQuery) -> Result<LogPage, ReadError> {
        self.reads.fetch_add(1, SeqCst);
        let reading = *self.reading.borrow();
        match reading {
            Reads::Pass => log.read(query).await,
            Reads::Fail => Err(StoreError::Io("the tap says so".to_owned()).into()),
            Reads::Panic => panic!("the tap says so"),
        }
    }

    async fn stats(
        &self,
        log: &dyn EventLog,
        progress: &mut (dyn FnMut(u64, u64) + Send),
    ) -> Result<LogStats, ReadError> {
        self.stats_held.subscribe().wait_for(|held| !held).await.expect("the tap lives");
        log.stats(progress).await
    }
}

impl Tap {
    /// Counts a commit and waits while commits are held back.
    async fn hold(&self) {
        self.commits_begun.send_modify(|begun| *begun += 1);
        self.commits_held.subscribe().wait_for(|held| !held).await.expect("the tap lives");
    }
}
