//! A log that records its calls and its answers.

use std::sync::Arc;

use annals_core::{
    Aggregate, AggregateCommits, AggregateIdsQuery, AggregateQuery, CommitError, CommitOutcome, EventLog,
    KnownAggregate, LogPage, LogQuery, NewCommit, NewTransaction, ReadError, SequenceNumber, TransactionError,
};
use async_trait::async_trait;

use super::History;
use super::record::{CommitsSeen, PageSeen, What};

pub(super) struct Watched {
    pub history: Arc<History>,
    pub client: Arc<str>,
    pub log: Arc<dyn EventLog>,
}

impl Watched {
    fn begin(&self, what: What) -> usize {
        self.history.record().begin(&self.client, what)
    }

    /// Records a sequence number that was returned. A refused read has no information.
    fn end_number(&self, call: usize, told: &Result<SequenceNumber, ReadError>) {
        let mut record = self.history.record();
        match told {
            Ok(number) => record.end(call, |what| match what {
                What::Head { answer } | What::WaitPast { answer, .. } => *answer = Some(*number),
                _ => {}
            }),
            Err(_) => record.end_untold(call),
        }
    }
}

#[async_trait]
impl EventLog for Watched {
    async fn commit(&self, commit: NewCommit) -> Result<CommitOutcome, CommitError> {
        let call = self.begin(What::Commit { commit: Arc::new(commit.clone()), answer: None });
        let result = self.log.commit(commit).await;
        self.history.record().end(call, |what| {
            if let What::Commit { answer, .. } = what {
                *answer = Some(result.clone());
            }
        });
        result
    }

    async fn transact(&self, transaction: NewTransaction) -> Result<Vec<CommitOutcome>, TransactionError> {
        let call = self.begin(What::Transact { transaction: Arc::new(transaction.clone()), answer: None });
        let result = self.log.transact(transaction).await;
        self.history.record().end(call, |what| {
            if let What::Transact { answer, .. } = what {
                *answer = Some(result.clone());
            }
        });
        result
    }

    async fn read_aggregate(&self, query: AggregateQuery) -> Result<AggregateCommits, ReadError> {
        let call = self.begin(What::ReadAggregate { query: query.clone(), answer: None });
        let result = self.log.read_aggregate(query).await;
        let mut record = self.history.record();
        let Ok(read) = &result else {
            record.end_untold(call);
            return result;
        };
        let seen = read.commits.iter().map(|commit| {
            let first = commit.events.first().map_or(SequenceNumber::MAX, |event| event.sequence_number);
            (commit.info.version, first, commit.events.len())
        });
        let seen = CommitsSeen { version: read.version, commits: seen.collect() };
        record.end(call, |what| {
            if let What::ReadAggregate { answer, .. } = what {
                *answer = Some(seen);
            }
        });
        read.commits.iter().flat_map(|commit| &commit.events).for_each(|event| record.show(call, event));
        drop(record);
        result
    }

    async fn request_exists(&self, aggregate: &Aggregate, request_id: &str) -> Result<bool, ReadError> {
        let (of, id) = (aggregate.clone(), request_id.to_owned());
        let call = self.begin(What::RequestExists { aggregate: of, request_id: id, answer: None });
        let result = self.log.request_exists(aggregate, request_id).await;
        let mut record = self.history.record();
        match (&result, call) {
            (Ok(exists), call) => record.end(call, |what| {
                if let What::RequestExists { answer, .. } = what {
                    *answer = Some(*exists);
                }
            }),
            (Err(_), call) => record.end_untold(call),
        }
        drop(record);
        result
    }

    async fn aggregate_ids(&self, query: AggregateIdsQuery) -> Result<Vec<KnownAggregate>, ReadError> {
        let call = self.begin(What::AggregateIds { query: query.clone(), answer: None });
        let result = self.log.aggregate_ids(query).await;
        let mut record = self.history.record();
        match &result {
            Ok(known) => record.end(call, |what| {
                if let What::AggregateIds { answer, .. } = what {
                    *answer = Some(known.clone());
                }
            }),
            Err(_) => record.end_untold(call),
        }
        drop(record);
        result
    }

    async fn read(&self, query: LogQuery) -> Result<LogPage, ReadError> {
        let call = self.begin(What::Read { query: query.clone(), answer: None });
        let result = self.log.read(query).await;
        let mut record = self.history.record();
        let Ok(page) = &result else {
            record.end_untold(call);
            return result;
        };
        let numbers = page.events.iter().map(|event| event.sequence_number).collect();
        let seen = PageSeen { numbers, next: page.next, head: page.head };
        record.end(call, |what| {
            if let What::Read { answer, .. } = what {
                *answer = Some(seen);
            }
        });
        page.events.iter().for_each(|event| record.show(call, event));
        drop(record);
        result
    }

    async fn head(&self) -> Result<SequenceNumber, ReadError> {
        let call = self.begin(What::Head { answer: None });
        let result = self.log.head().await;
        self.end_number(call, &result);
        result
    }

    async fn wait_past(&self, head: SequenceNumber) -> Result<SequenceNumber, ReadError> {
        let call = self.begin(What::WaitPast { head, answer: None });
        let result = self.log.wait_past(head).await;
        self.end_number(call, &result);
        result
    }
}
