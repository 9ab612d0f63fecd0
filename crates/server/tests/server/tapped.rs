//! A real store with a tap on its log: reads are counted and can be made to fail, commits can be held back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use annals_conformance::tap::TappedStore;
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

/// The tap.
pub struct Tap {
    pub reads: AtomicU64,
    pub commits_begun: watch::Sender<u64>,
    pub reading: watch::Sender<Reads>,
    pub commits_held: watch::Sender<bool>,
    pub stats_held: watch::Sender<bool>,
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
    /// A store with a tap on its log.
    pub fn store() -> (Arc<dyn Store>, Arc<Self>) {
        let tap = Arc::new(Self {
            reads: AtomicU64::new(0),
            commits_begun: watch::Sender::new(0),
            reading: watch::Sender::new(Reads::Pass),
            commits_held: watch::Sender::new(false),
            stats_held: watch::Sender::new(false),
        });
        let inner = store_on(Arc::new(MemoryDisk::default()), annals_embedded::Options::default());
        (Arc::new(TappedStore::new(inner).with_log(&tap)), tap)
    }

    /// Counts a commit and waits while commits are held back.
    async fn hold(&self) {
        self.commits_begun.send_modify(|begun| *begun += 1);
        self.commits_held.subscribe().wait_for(|held| !held).await.expect("the tap lives");
    }
}
