//! A log that counts the commits that are read from it, as commits of an aggregate.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use annals_core::{
    Aggregate, AggregateCommits, AggregateIdsQuery, AggregateNamesQuery, AggregateQuery, ByteString, CommitError,
    CommitOutcome, EventLog, KnownAggregate, LogPage, LogQuery, NewCommit, NewTransaction, ReadError, SequenceNumber,
    TransactionError, Version,
};
use async_trait::async_trait;

pub(crate) struct Counted {
    inner: Arc<dyn EventLog>,
    commits: AtomicU64,
}

impl Counted {
    pub fn over(inner: Arc<dyn EventLog>) -> Arc<Self> {
        Arc::new(Self { inner, commits: AtomicU64::new(0) })
    }

    /// How many commits were read since the last time.
    pub fn taken(&self) -> u64 {
        self.commits.swap(0, Ordering::SeqCst)
    }
}

#[async_trait]
impl EventLog for Counted {
    async fn commit(&self, commit: NewCommit) -> Result<CommitOutcome, CommitError> {
        self.inner.commit(commit).await
    }

    async fn transact(&self, transaction: NewTransaction) -> Result<Vec<CommitOutcome>, TransactionError> {
        self.inner.transact(transaction).await
    }

    async fn read_aggregate(&self, query: AggregateQuery) -> Result<AggregateCommits, ReadError> {
        let found = self.inner.read_aggregate(query).await?;
        self.commits.fetch_add(found.commits.len() as u64, Ordering::SeqCst);
        Ok(found)
    }

    async fn request_exists(&self, aggregate: &Aggregate, request_id: &str) -> Result<bool, ReadError> {
        self.inner.request_exists(aggregate, request_id).await
    }

    async fn aggregate_version(&self, aggregate: &Aggregate) -> Result<Version, ReadError> {
        self.inner.aggregate_version(aggregate).await
    }

    async fn request_outcome(
        &self,
        aggregate: &Aggregate,
        request_id: &str,
    ) -> Result<Option<CommitOutcome>, ReadError> {
        self.inner.request_outcome(aggregate, request_id).await
    }

    async fn aggregate_names(&self, query: AggregateNamesQuery) -> Result<Vec<ByteString>, ReadError> {
        self.inner.aggregate_names(query).await
    }

    async fn aggregate_ids(&self, query: AggregateIdsQuery) -> Result<Vec<KnownAggregate>, ReadError> {
        self.inner.aggregate_ids(query).await
    }

    async fn read(&self, query: LogQuery) -> Result<LogPage, ReadError> {
        self.inner.read(query).await
    }

    async fn head(&self) -> Result<SequenceNumber, ReadError> {
        self.inner.head().await
    }

    async fn wait_past(&self, head: SequenceNumber) -> Result<SequenceNumber, ReadError> {
        self.inner.wait_past(head).await
    }
}
