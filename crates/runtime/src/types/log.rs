//! A log whose commits are checked against the registry.

use std::sync::Arc;

use annals_core::{
    Aggregate, AggregateCommits, AggregateIdsQuery, AggregateNamesQuery, AggregateQuery, ByteString, CommitCopy,
    CommitError, CommitOutcome, EventLog, KnownAggregate, LogPage, LogQuery, LogStats, NewCommit, NewTransaction,
    ReadError, ScanQuery, SequenceNumber, TransactionError, Version, Visit,
};
use async_trait::async_trait;

use super::registry::Registry;

/// A log, and the registry against which its commits are checked. Copies of commits are not checked, because their events are recorded
/// already.
pub(super) struct TypedLog {
    pub inner: Arc<dyn EventLog>,
    pub registry: Arc<Registry>,
}

#[async_trait]
impl EventLog for TypedLog {
    async fn commit(&self, commit: NewCommit) -> Result<CommitOutcome, CommitError> {
        let known = self.registry.current().await?;
        if !known.is_empty() {
            commit.events.iter().enumerate().try_for_each(|(at, event)| known.check(at, event))?;
        }
        self.inner.commit(commit).await
    }

    async fn transact(&self, transaction: NewTransaction) -> Result<Vec<CommitOutcome>, TransactionError> {
        let known = self.registry.current().await?;
        if !known.is_empty() {
            for (place, commit) in transaction.commits.iter().enumerate() {
                let checked = commit.events.iter().enumerate().try_for_each(|(at, event)| known.check(at, event));
                checked.map_err(|invalid| invalid.inside(&format!("commits[{place}]")))?;
            }
        }
        self.inner.transact(transaction).await
    }

    async fn read_aggregate(&self, query: AggregateQuery) -> Result<AggregateCommits, ReadError> {
        self.inner.read_aggregate(query).await
    }

    async fn aggregate_version(&self, aggregate: &Aggregate) -> Result<Version, ReadError> {
        self.inner.aggregate_version(aggregate).await
    }

    async fn request_exists(&self, aggregate: &Aggregate, request_id: &str) -> Result<bool, ReadError> {
        self.inner.request_exists(aggregate, request_id).await
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

    async fn scan(&self, query: ScanQuery, visit: &mut Visit<'_>) -> Result<SequenceNumber, ReadError> {
        self.inner.scan(query, visit).await
    }

    fn scans_ranges(&self) -> bool {
        self.inner.scans_ranges()
    }

    async fn head(&self) -> Result<SequenceNumber, ReadError> {
        self.inner.head().await
    }

    async fn wait_past(&self, head: SequenceNumber) -> Result<SequenceNumber, ReadError> {
        self.inner.wait_past(head).await
    }

    async fn read_copies(&self, from: SequenceNumber) -> Result<Vec<CommitCopy>, ReadError> {
        self.inner.read_copies(from).await
    }

    async fn store_copies(&self, copies: Vec<CommitCopy>) -> Result<(), CommitError> {
        self.inner.store_copies(copies).await
    }

    async fn stats(&self, progress: &mut (dyn FnMut(u64, u64) + Send)) -> Result<LogStats, ReadError> {
        self.inner.stats(progress).await
    }
}
