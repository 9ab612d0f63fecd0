//! Random operations that interact: few aggregates, repeated request ids with the same or other content, and correct and wrong versions
//! and append conditions. There are foreign tenantIds, prepare keys that are taken and released, transactions, and reads of all kinds.

mod commits;
mod keys;

use std::collections::{HashMap, VecDeque};

use annals_core::{
    Aggregate, AggregateIdsQuery, AggregateQuery, CommitError, CommitOutcome, LogQuery, SequenceNumber, Timestamp,
    Version,
};

use super::{Answer, Operation};
use crate::words::{IDS, NAMES, any_filter, pick};

/// Ids of the same length.
const UNIFORM_IDS: &[&str] = &["1", "3", "4", "5", "6"];

/// The initial time of the clock of the log under test, so that reservations expire during the test.
pub const EPOCH: Timestamp = Timestamp::from_millis(1_700_000_000_000);

/// The size of random operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Most events in a usual commit. One commit in thirty has up to twenty times as many.
    pub events_max: u64,
    /// Most bytes of text in a usual event. One event in thirty has up to twenty times as many.
    pub bytes_max: usize,
    /// The percentage of operations that are commits. One in six of them is a transaction.
    pub commits_percent: u8,
    /// The other content of commits.
    pub variety: Variety,
}

/// How much commits differ from each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variety {
    /// Many kinds of names, tags, ids, times, owners, headers and prepare keys.
    Mixed,
    /// All have the same length if their texts do, so that one fits exactly where another was before a crash.
    Uniform,
}

impl Default for Shape {
    fn default() -> Self {
        Self { events_max: 4, bytes_max: 120, commits_percent: 60, variety: Variety::Mixed }
    }
}

/// An endless sequence of operations, which is the same for the same seed and answers.
///
/// Request ids follow the number of operations generated, so that several clients with different seeds repeat each other's requests.
#[derive(Debug)]
pub struct Operations {
    random: fastrand::Rng,
    shape: Shape,
    made: u64,
    versions: HashMap<Aggregate, Version>,
    head: SequenceNumber,
    /// The latest commits and transactions, to send them again.
    recent: VecDeque<Operation>,
}

impl Operations {
    /// Returns the operations that follow from `seed`.
    pub fn new(seed: u64, shape: Shape) -> Self {
        Self {
            random: fastrand::Rng::with_seed(seed),
            shape,
            made: 0,
            versions: HashMap::new(),
            head: 0,
            recent: VecDeque::new(),
        }
    }

    /// Returns the next operation.
    pub fn next_operation(&mut self) -> Operation {
        self.made += 1;
        if self.random.u8(0..100) < self.shape.commits_percent {
            if self.random.u8(0..8) == 0
                && let Some(again) = self.retry()
            {
                return again;
            }
            let made = match self.random.u8(0..6) {
                0 => Operation::Transact(self.transaction()),
                _ => Operation::Commit(self.commit()),
            };
            self.recent.push_back(made.clone());
            return made;
        }
        match self.random.u8(0..10) {
            0..3 => Operation::ReadAggregate(self.aggregate_query()),
            3..5 => Operation::RequestExists(self.aggregate(), self.request_id().into()),
            5 => Operation::AggregateIds(self.ids_query()),
            6 => Operation::Head,
            _ => Operation::Read(self.log_query()),
        }
    }

    /// Learns from an answer, so that later operations name versions and sequence numbers that exist.
    pub fn learn(&mut self, operation: &Operation, answer: &Answer) {
        match (operation, answer) {
            (Operation::Commit(commit), Answer::Commit(Ok(outcome))) => {
                self.learn_outcome(&commit.aggregate, outcome);
            }
            (Operation::Transact(transaction), Answer::Transact(Ok(outcomes))) => {
                let commits = transaction.commits.iter().zip(outcomes);
                commits.for_each(|(commit, outcome)| self.learn_outcome(&commit.aggregate, outcome));
            }
            (Operation::Transact(transaction), Answer::Transact(Err(refused))) => {
                let place = (0..transaction.commits.len()).find(|place| refused.at == format!("commits[{place}]"));
                if let (Some(place), CommitError::VersionConflict { actual_version, .. }) = (place, &refused.error) {
                    self.versions.insert(transaction.commits[place].aggregate.clone(), *actual_version);
                }
            }
            (Operation::Commit(commit), Answer::Commit(Err(CommitError::VersionConflict { actual_version, .. }))) => {
                self.versions.insert(commit.aggregate.clone(), *actual_version);
            }
            (Operation::ReadAggregate(query), Answer::Commits(Ok(read))) if query.tenant_id.is_none() => {
                self.versions.insert(query.aggregate.clone(), read.version);
            }
            (_, Answer::Page(Ok(page))) => self.head = page.head,
            _ => {}
        }
    }

    fn learn_outcome(&mut self, aggregate: &Aggregate, outcome: &CommitOutcome) {
        let end = outcome.first_sequence_number.map(|first| first + outcome.event_ids.len() as u64);
        self.head = self.head.max(end.unwrap_or(0));
        let version = self.versions.entry(aggregate.clone()).or_default();
        *version = (*version).max(outcome.version);
    }

    /// Returns one of the latest commits or transactions again, like a client that got no answer.
    fn retry(&mut self) -> Option<Operation> {
        const RECENT_MAX: usize = 8;
        while self.recent.len() > RECENT_MAX {
            self.recent.pop_front();
        }
        let place = (!self.recent.is_empty()).then(|| self.random.usize(0..self.recent.len()));
        place.and_then(|place| self.recent.get(place).cloned())
    }

    /// Returns every aggregate that can occur.
    fn aggregates(&self) -> Vec<Aggregate> {
        let (names, ids) = match self.shape.variety {
            Variety::Mixed => (NAMES, IDS),
            Variety::Uniform => (&NAMES[..1], UNIFORM_IDS),
        };
        names.iter().flat_map(|name| ids.iter().map(|id| Aggregate::new(*name, *id))).collect()
    }

    fn aggregate(&mut self) -> Aggregate {
        match self.shape.variety {
            Variety::Mixed => Aggregate::new(pick(&mut self.random, NAMES), pick(&mut self.random, IDS)),
            Variety::Uniform => Aggregate::new(NAMES[0], pick(&mut self.random, UNIFORM_IDS)),
        }
    }

    /// Returns a request id: usually a recent one, sometimes one from long ago.
    fn request_id(&mut self) -> String {
        let number = match self.random.u8(0..6) {
            0 => self.random.u64(0..=self.made),
            _ => self.made + self.random.u64(0..4),
        };
        format!("request-{number:04}")
    }

    fn time(&mut self) -> Timestamp {
        Timestamp::from_millis(self.random.i64(0..20) * 1_000)
    }

    fn limit(&mut self) -> usize {
        pick(&mut self.random, &[1, 2, 5, 100, 1_000, 1_000])
    }

    fn aggregate_query(&mut self) -> AggregateQuery {
        let aggregate = self.aggregate();
        let known = self.versions.get(&aggregate).copied().unwrap_or(0);
        let mut query =
            AggregateQuery { limit: self.limit(), last: self.random.bool(), ..AggregateQuery::new(aggregate) };
        if self.random.bool() {
            query.from_version = self.random.u64(0..=known + 2);
            query.to_version = self.random.u64(0..=known + 2);
        }
        if self.random.u8(0..3) == 0 {
            query.from_time = self.random.bool().then(|| self.time());
            query.to_time = self.random.bool().then(|| self.time());
        }
        if self.random.u8(0..4) == 0 {
            query.tenant_id = Some(pick(&mut self.random, &["tenant-2", "tenant-3", "(0)"]).into());
        }
        query
    }

    fn ids_query(&mut self) -> AggregateIdsQuery {
        let after = self.random.bool().then(|| pick(&mut self.random, IDS).into());
        AggregateIdsQuery { name: pick(&mut self.random, NAMES).into(), after, limit: self.limit() }
    }

    fn log_query(&mut self) -> LogQuery {
        LogQuery {
            from: (self.random.u8(0..4) > 0).then(|| self.random.u64(0..=self.head + 3)),
            limit: self.limit(),
            backwards: self.random.bool(),
            filter: if self.random.bool() { any_filter(&mut self.random) } else { annals_core::Filter::default() },
        }
    }
}
