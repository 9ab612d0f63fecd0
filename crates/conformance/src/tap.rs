//! Ports and stores in front of others, for tests that intercept calls between a caller and a store.

mod definitions;
mod receiving;
mod records;
mod store;
mod streams;

use std::sync::Arc;

use annals_core::{
    Aggregate, AggregateCommits, AggregateIdsQuery, AggregateNamesQuery, AggregateQuery, ByteString, CommitCopy,
    CommitError, CommitOutcome, EventLog, KnownAggregate, LogPage, LogQuery, LogStats, NewCommit, NewTransaction,
    ReadError, ScanQuery, SequenceNumber, TransactionError, Version, Visit,
};
use async_trait::async_trait;
pub use definitions::{TapDefinitions, TappedDefinitions};
pub use receiving::{TapReceiving, TappedReceiving};
pub use records::{TapRecords, TappedRecords};
pub use store::TappedStore;
pub use streams::{TapStreams, TappedStreams};

/// Intercepts the calls between a caller and a log. By default, each method forwards to the log.
#[async_trait]
pub trait Tap: Send + Sync + 'static {
    /// Forwards a commit.
    ///
    /// # Errors
    /// Those of the log, or of the tap.
    async fn commit(&self, log: &dyn EventLog, commit: NewCommit) -> Result<CommitOutcome, CommitError> {
        log.commit(commit).await
    }

    /// Forwards a transaction.
    ///
    /// # Errors
    /// Those of the log, or of the tap.
    async fn transact(
        &self,
        log: &dyn EventLog,
        transaction: NewTransaction,
    ) -> Result<Vec<CommitOutcome>, TransactionError> {
        log.transact(transaction).await
    }

    /// Forwards a read of an aggregate.
    ///
    /// # Errors
    /// Those of the log, or of the tap.
    async fn read_aggregate(&self, log: &dyn EventLog, query: AggregateQuery) -> Result<AggregateCommits, ReadError> {
        log.read_aggregate(query).await
    }

    /// Forwards a read of a page.
    ///
    /// # Errors
    /// Those of the log, or of the tap.
    async fn read(&self, log: &dyn EventLog, query: LogQuery) -> Result<LogPage, ReadError> {
        log.read(query).await
    }

    /// Forwards a request for statistics.
    ///
    /// # Errors
    /// Those of the log, or of the tap.
    async fn stats(
        &self,
        log: &dyn EventLog,
        progress: &mut (dyn FnMut(u64, u64) + Send),
    ) -> Result<LogStats, ReadError> {
        log.stats(progress).await
    }
}

/// A log behind a tap. Calls that the tap does not intercept are forwarded.
pub struct Tapped<T> {
    inner: Arc<dyn EventLog>,
    /// The tap in front of the log.
    pub tap: Arc<T>,
}

impl<T: Tap> Tapped<T> {
    /// Puts `tap` in front of `log`.
    pub fn new(log: Arc<dyn EventLog>, tap: Arc<T>) -> Arc<Self> {
        Arc::new(Self { inner: log, tap })
    }
}

#[async_trait]
impl<T: Tap> EventLog for Tapped<T> {
    async fn commit(&self, commit: NewCommit) -> Result<CommitOutcome, CommitError> {
        self.tap.commit(&*self.inner, commit).await
    }

    async fn transact(&self, transaction: NewTransaction) -> Result<Vec<CommitOutcome>, TransactionError> {
        self.tap.transact(&*self.inner, transaction).await
    }

    async fn read_aggregate(&self, query: AggregateQuery) -> Result<AggregateCommits, ReadError> {
        self.tap.read_aggregate(&*self.inner, query).await
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
        self.tap.read(&*self.inner, query).await
    }

    async fn scan(&self, query: ScanQuery, visit: &mut Visit<'_>) -> Result<SequenceNumber, ReadError> {
        self.inner.scan(query, visit).await
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
        self.tap.stats(&*self.inner, progress).await
    }
}
