//! To a client, a server that was stopped is one that cannot be reached; the suite knows that its store was closed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use annals::{
    Aggregate, AggregateCommits, AggregateIdsQuery, AggregateNamesQuery, AggregateQuery, ByteString, Client,
    CommitError, CommitOutcome, EventLog, KnownAggregate, LogPage, LogQuery, NewCommit, NewTransaction, ReadError,
    SequenceNumber, StoreError, TransactionError, Version,
};
use async_trait::async_trait;

/// A client until its server is stopped; from then on, what cannot be reached is closed.
pub struct Until {
    pub client: Client,
    pub closed: Arc<AtomicBool>,
}

impl Until {
    fn judge(&self, error: StoreError) -> StoreError {
        match error {
            StoreError::Unreachable(_) if self.closed.load(Ordering::SeqCst) => StoreError::Closed,
            other => other,
        }
    }

    fn refusal(&self, error: CommitError) -> CommitError {
        match error {
            CommitError::Store(error) => CommitError::Store(self.judge(error)),
            other => other,
        }
    }

    fn told<T>(&self, result: Result<T, ReadError>) -> Result<T, ReadError> {
        result.map_err(|error| match error {
            ReadError::Store(error) => ReadError::Store(self.judge(error)),
            other => other,
        })
    }
}

#[async_trait]
impl EventLog for Until {
    async fn commit(&self, commit: NewCommit) -> Result<CommitOutcome, CommitError> {
        self.client.commit(commit).await.map_err(|error| self.refusal(error))
    }

    async fn transact(&self, transaction: NewTransaction) -> Result<Vec<CommitOutcome>, TransactionError> {
        let refused = |refusal: TransactionError| TransactionError { error: self.refusal(refusal.error), ..refusal };
        self.client.transact(transaction).await.map_err(refused)
    }

    async fn read_aggregate(&self, query: AggregateQuery) -> Result<AggregateCommits, ReadError> {
        self.told(self.client.read_aggregate(query).await)
    }

    async fn request_exists(&self, aggregate: &Aggregate, request_id: &str) -> Result<bool, ReadError> {
        self.told(self.client.request_exists(aggregate, request_id).await)
    }

    async fn aggregate_version(&self, aggregate: &Aggregate) -> Result<Version, ReadError> {
        self.told(self.client.aggregate_version(aggregate).await)
    }

    async fn request_outcome(
        &self,
        aggregate: &Aggregate,
        request_id: &str,
    ) -> Result<Option<CommitOutcome>, ReadError> {
        self.told(self.client.request_outcome(aggregate, request_id).await)
    }

    async fn aggregate_names(&self, query: AggregateNamesQuery) -> Result<Vec<ByteString>, ReadError> {
        self.told(self.client.aggregate_names(query).await)
    }

    async fn aggregate_ids(&self, query: AggregateIdsQuery) -> Result<Vec<KnownAggregate>, ReadError> {
        self.told(self.client.aggregate_ids(query).await)
    }

    async fn read(&self, query: LogQuery) -> Result<LogPage, ReadError> {
        self.told(self.client.read(query).await)
    }

    async fn head(&self) -> Result<SequenceNumber, ReadError> {
        self.told(self.client.head().await)
    }

    async fn wait_past(&self, head: SequenceNumber) -> Result<SequenceNumber, ReadError> {
        self.told(self.client.wait_past(head).await)
    }
}
