//! One operation on a log, and its answer.

use std::sync::Arc;

use annals_core::{
    Aggregate, AggregateCommits, AggregateIdsQuery, AggregateQuery, ByteString, CommitError, CommitOutcome, EventLog,
    KnownAggregate, LogPage, LogQuery, NewCommit, NewTransaction, ReadError, SequenceNumber, TransactionError,
};

/// An operation on a log.
#[expect(clippy::large_enum_variant, reason = "operations are made and run one at a time, and most are commits")]
#[derive(Debug, Clone)]
pub enum Operation {
    /// [`EventLog::commit`].
    Commit(NewCommit),
    /// [`EventLog::transact`].
    Transact(NewTransaction),
    /// [`EventLog::read_aggregate`].
    ReadAggregate(AggregateQuery),
    /// [`EventLog::request_exists`].
    RequestExists(Aggregate, ByteString),
    /// [`EventLog::aggregate_ids`].
    AggregateIds(AggregateIdsQuery),
    /// [`EventLog::read`].
    Read(LogQuery),
    /// [`EventLog::head`].
    Head,
}

/// The answer to an [`Operation`].
#[derive(Debug)]
pub enum Answer {
    /// To [`Operation::Commit`].
    Commit(Result<CommitOutcome, CommitError>),
    /// To [`Operation::Transact`].
    Transact(Result<Vec<CommitOutcome>, TransactionError>),
    /// To [`Operation::ReadAggregate`].
    Commits(Result<AggregateCommits, ReadError>),
    /// To [`Operation::RequestExists`].
    Exists(Result<bool, ReadError>),
    /// To [`Operation::AggregateIds`].
    Ids(Result<Vec<KnownAggregate>, ReadError>),
    /// To [`Operation::Read`].
    Page(Result<LogPage, ReadError>),
    /// To [`Operation::Head`].
    Head(Result<SequenceNumber, ReadError>),
}

impl Operation {
    /// Sends the operation to the log.
    pub async fn run(&self, log: &Arc<dyn EventLog>) -> Answer {
        match self.clone() {
            Self::Commit(commit) => Answer::Commit(log.commit(commit).await),
            Self::Transact(transaction) => Answer::Transact(log.transact(transaction).await),
            Self::ReadAggregate(query) => Answer::Commits(log.read_aggregate(query).await),
            Self::RequestExists(aggregate, request) => Answer::Exists(log.request_exists(&aggregate, &request).await),
            Self::AggregateIds(query) => Answer::Ids(log.aggregate_ids(query).await),
            Self::Read(query) => Answer::Page(log.read(query).await),
            Self::Head => Answer::Head(log.head().await),
        }
    }
}
