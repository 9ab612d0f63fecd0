//! A log at which somebody else commits to the same aggregate first, as often as a test says.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use annals_core::{
    Aggregate, AggregateCommits, AggregateIdsQuery, AggregateQuery, CommitError, CommitOutcome, EventLog,
    KnownAggregate, LogPage, LogQuery, NewCommit, NewTransaction, ReadError, TransactionError,
};
use async_trait::async_trait;
use tokio::time::Instant;

/// A log in front of another, at which somebody else is first.
pub struct Racing {
    inner: Arc<dyn EventLog>,
    /// How often somebody else is first from now on.
    races: AtomicU32,
    other: NewCommit,
    /// When it was committed to.
    tried: Mutex<Vec<Instant>>,
}

impl Racing {
    /// Before each of so many commits, `other` is committed, which expects no version.
    pub fn new(inner: Arc<dyn EventLog>, races: u32, other: NewCommit) -> Arc<Self> {
        Arc::new(Self { inner, races: AtomicU32::new(races), other, tried: Mutex::default() })
    }

    /// The milliseconds between commits.
    ///
    /// # Panics
    /// When a commit has panicked.
    pub fn pauses(&self) -> Vec<u128> {
        let tried = self.tried.lock().expect("not poisoned");
        tried.windows(2).map(|pair| (pair[1] - pair[0]).as_millis()).collect()
    }
}

#[async_trait]
impl EventLog for Racing {
    async fn commit(&self, commit: NewCommit) -> Result<CommitOutcome, CommitError> {
        self.tried.lock().expect("not poisoned").push(Instant::now());
        let raced = self.races.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |races| races.checked_sub(1));
        if raced.is_ok() {
            self.inner.commit(self.other.clone()).await?;
        }
        self.inner.commit(commit).await
    }

    async fn transact(&self, transaction: NewTransaction) -> Result<Vec<CommitOutcome>, TransactionError> {
        self.inner.transact(transaction).await
    }

    async fn read_aggregate(&self, query: AggregateQuery) -> Result<AggregateCommits, ReadError> {
        self.inner.read_aggregate(query).await
    }

    async fn request_exists(&self, aggregate: &Aggregate, request_id: &str) -> Result<bool, ReadError> {
        self.inner.request_exists(aggregate, request_id).await
    }

    async fn aggregate_ids(&self, query: AggregateIdsQuery) -> Result<Vec<KnownAggregate>, ReadError> {
        self.inner.aggregate_ids(query).await
    }

    async fn read(&self, query: LogQuery) -> Result<LogPage, ReadError> {
        self.inner.read(query).await
    }

    async fn head(&self) -> Result<u64, ReadError> {
        self.inner.head().await
    }

    async fn wait_past(&self, head: u64) -> Result<u64, ReadError> {
        self.inner.wait_past(head).await
    }
}
