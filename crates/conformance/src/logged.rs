//! A log whose commits are answered once they are in the log: what most statements are written for, because they read what they wrote.

use std::sync::Arc;

use annals_core::{
    Aggregate, AggregateCommits, AggregateIdsQuery, AggregateNamesQuery, AggregateQuery, ByteString, CommitCopy,
    CommitError, CommitOutcome, EventLog, KnownAggregate, LogPage, LogQuery, LogStats, NewCommit, NewTransaction,
    Reached, ReadError, ScanQuery, SequenceNumber, TransactionError, Version, Visit,
};
use async_trait::async_trait;

/// Asks for [`Reached::Logged`] with every commit, and hands everything else on.
pub(crate) struct Logged(Arc<dyn EventLog>);

impl Logged {
    pub(crate) fn over(log: Arc<dyn EventLog>) -> Arc<dyn EventLog> {
        Arc::new(Self(log))
    }
}

#[async_trait]
impl EventLog for Logged {
    async fn commit(&self, commit: NewCommit) -> Result<CommitOutcome, CommitError> {
        self.0.commit(commit.wait_until(Reached::Logged)).await
    }

    async fn transact(&self, transaction: NewTransaction) -> Result<Vec<CommitOutcome>, TransactionError> {
        self.0.transact(transaction.wait_until(Reached::Logged)).await
    }

    async fn read_aggregate(&self, query: AggregateQuery) -> Result<AggregateCommits, ReadError> {
        self.0.read_aggregate(query).await
    }

    async fn request_exists(&self, aggregate: &Aggregate, request_id: &str) -> Result<bool, ReadError> {
        self.0.request_exists(aggregate, request_id).await
    }

    async fn aggregate_version(&self, aggregate: &Aggregate) -> Result<Version, ReadError> {
        self.0.aggregate_version(aggregate).await
    }

    async fn request_outcome(
        &self,
        aggregate: &Aggregate,
        request_id: &str,
    ) -> Result<Option<CommitOutcome>, ReadError> {
        self.0.request_outcome(aggregate, request_id).await
    }

    async fn aggregate_names(&self, query: AggregateNamesQuery) -> Result<Vec<ByteString>, ReadError> {
        self.0.aggregate_names(query).await
    }

    async fn aggregate_ids(&self, query: AggregateIdsQuery) -> Result<Vec<KnownAggregate>, ReadError> {
        self.0.aggregate_ids(query).await
    }

    async fn read(&self, query: LogQuery) -> Result<LogPage, ReadError> {
        self.0.read(query).await
    }

    async fn scan(&self, query: ScanQuery, visit: &mut Visit<'_>) -> Result<SequenceNumber, ReadError> {
        self.0.scan(query, visit).await
    }

    async fn head(&self) -> Result<SequenceNumber, ReadError> {
        self.0.head().await
    }

    async fn wait_past(&self, head: SequenceNumber) -> Result<SequenceNumber, ReadError> {
        self.0.wait_past(head).await
    }

    async fn read_copies(&self, from: SequenceNumber) -> Result<Vec<CommitCopy>, ReadError> {
        self.0.read_copies(from).await
    }

    async fn store_copies(&self, copies: Vec<CommitCopy>) -> Result<(), CommitError> {
        self.0.store_copies(copies).await
    }

    async fn stats(&self, progress: &mut (dyn FnMut(u64, u64) + Send)) -> Result<LogStats, ReadError> {
        self.0.stats(progress).await
    }
}
