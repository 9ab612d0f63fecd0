//! Random operations that meet each other: few aggregates, repeated request ids with the same or other content, versions right and
//! wrong, foreign tenantIds, and reads of all kinds.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use annals_core::{
    Aggregate, AggregateIdsQuery, AggregateQuery, CommitError, Data, ExpectedVersion, LogQuery, NewCommit, NewEvent,
    SequenceNumber, Timestamp, Uuid, Version,
};

use super::{Answer, Operation};
use crate::words::{IDS, NAMES, TAGS, TYPES, any_filter, pick, some_of};

/// How large random operations are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Most events of a usual commit; one in thirty has twenty times as many.
    pub events_max: u64,
    /// Most bytes of text in a usual event; one in thirty has twenty times as many.
    pub bytes_max: usize,
    /// Of a hundred operations, how many are commits.
    pub commits_percent: u8,
    /// What else commits bring.
    pub variety: Variety,
}

/// How much commits differ from each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variety {
    /// Names, tags, ids, times, owners, headers of many kinds.
    Mixed,
    /// All have the same length when their texts do, so that one fits exactly where another one stood before a crash.
    Uniform,
}

impl Default for Shape {
    fn default() -> Self {
        Self { events_max: 4, bytes_max: 120, commits_percent: 60, variety: Variety::Mixed }
    }
}

/// An endless sequence of operations, the same for the same seed and answers.
///
/// Request ids follow the number of operations made, so that several clients with different seeds repeat each other's requests.
#[derive(Debug)]
pub struct Operations {
    random: fastrand::Rng,
    shape: Shape,
    made: u64,
    versions: HashMap<Aggregate, Version>,
    head: SequenceNumber,
    /// The last commits made, to send them again.
    recent: VecDeque<NewCommit>,
}

impl Operations {
    /// The operations that follow from `seed`.
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

    /// The next operation.
    pub fn next_operation(&mut self) -> Operation {
        self.made += 1;
        if self.random.u8(0..100) < self.shape.commits_percent {
            return Operation::Commit(if self.random.u8(0..8) == 0 { self.retry() } else { self.commit() });
        }
        match self.random.u8(0..10) {
            0..3 => Operation::ReadAggregate(self.aggregate_query()),
            3..5 => Operation::RequestExists(self.aggregate(), self.request_id().into()),
            5 => Operation::AggregateIds(self.ids_query()),
            6 => Operation::Head,
            _ => Operation::Read(self.log_query()),
        }
    }

    /// Takes notice of an answer, so that later operations name versions and numbers that exist.
    pub fn learn(&mut self, operation: &Operation, answer: &Answer) {
        match (operation, answer) {
            (Operation::Commit(commit), Answer::Commit(Ok(outcome))) => {
                self.head = self.head.max(outcome.first_sequence_number + outcome.event_ids.len() as u64);
                let version = self.versions.entry(commit.aggregate.clone()).or_default();
                *version = (*version).max(outcome.version);
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

    fn commit(&mut self) -> NewCommit {
        let aggregate = self.aggregate();
        let request_id = (self.random.u8(0..10) > 0).then(|| self.request_id());
        // The same request brings the same content, whoever sends it, except for one in twelve.
        let reused = self.random.u8(0..12) == 0;
        let mut content = match &request_id {
            Some(request) => fastrand::Rng::with_seed(hash(&(&aggregate, request, reused))),
            None => self.random.fork(),
        };
        let mut commit = NewCommit {
            expected_version: self.expected_version(&aggregate),
            tenant_id: self.tenant_id(&aggregate),
            request_id: request_id.map(Into::into),
            events: self.events(&mut content),
            ..NewCommit::new(aggregate.name, aggregate.id)
        };
        if self.random.u8(0..50) == 0 {
            commit.events.clear();
        }
        if self.shape.variety == Variety::Mixed {
            self.add_what_is_not_content(&mut commit);
        }
        self.recent.push_back(commit.clone());
        commit
    }

    /// A repeat may bring another owner, header or time, and the first stay.
    fn add_what_is_not_content(&mut self, commit: &mut NewCommit) {
        if self.random.u8(0..4) == 0 {
            commit.owner_id = Some(pick(&mut self.random, IDS).into());
            commit.correlation_id = Some(pick(&mut self.random, IDS).into());
            commit.header = vec![(pick(&mut self.random, TAGS).into(), "value".into())];
        }
        if self.random.u8(0..4) == 0 {
            let time = self.time();
            commit.events.iter_mut().for_each(|event| event.time = Some(time));
        }
    }

    /// One of the last commits again, as a client does that got no answer.
    fn retry(&mut self) -> NewCommit {
        const RECENT_MAX: usize = 8;
        while self.recent.len() > RECENT_MAX {
            self.recent.pop_front();
        }
        if self.recent.is_empty() {
            return self.commit();
        }
        self.recent[self.random.usize(0..self.recent.len())].clone()
    }

    fn aggregate(&mut self) -> Aggregate {
        match self.shape.variety {
            Variety::Mixed => Aggregate::new(pick(&mut self.random, NAMES), pick(&mut self.random, IDS)),
            Variety::Uniform => Aggregate::new(NAMES[0], pick(&mut self.random, &["1", "3", "4", "5", "6"])),
        }
    }

    /// Mostly one that is used about now, sometimes one from long ago.
    fn request_id(&mut self) -> String {
        let number = match self.random.u8(0..6) {
            0 => self.random.u64(0..=self.made),
            _ => self.made + self.random.u64(0..4),
        };
        format!("request-{number:04}")
    }

    fn expected_version(&mut self, aggregate: &Aggregate) -> ExpectedVersion {
        let known = self.versions.get(aggregate).copied().unwrap_or(0);
        match self.random.u8(0..20) {
            0..8 => ExpectedVersion::Any,
            8..15 => ExpectedVersion::Exact(known),
            15 => ExpectedVersion::Exact(self.random.u64(0..=known + 1)),
            16 => ExpectedVersion::Exact(known + 1),
            17 => ExpectedVersion::Exact(known.saturating_sub(1)),
            18 => ExpectedVersion::Empty,
            _ => ExpectedVersion::Exists,
        }
    }

    /// Mostly the aggregate's own, which follows from its id.
    fn tenant_id(&mut self, aggregate: &Aggregate) -> Option<annals_core::ByteString> {
        let own = (aggregate.id == "2").then(|| "tenant-2".into());
        if self.random.u8(0..30) == 0 { Some("tenant-3".into()) } else { own }
    }

    fn time(&mut self) -> Timestamp {
        Timestamp::from_millis(self.random.i64(0..20) * 1_000)
    }

    fn events(&self, random: &mut fastrand::Rng) -> Vec<NewEvent> {
        let factor = if random.u8(0..30) == 0 { 20 } else { 1 };
        let count = random.u64(1..=self.shape.events_max * factor);
        (0..count).map(|n| self.event(random, n)).collect()
    }

    fn event(&self, random: &mut fastrand::Rng, n: u64) -> NewEvent {
        let factor = if random.u8(0..30) == 0 { 20 } else { 1 };
        let text: String =
            (0..random.usize(0..=self.shape.bytes_max * factor)).map(|_| random.alphanumeric()).collect();
        let data = Data::from_value(&serde_json::json!({ "n": n, "text": text })).unwrap_or_else(|_| Data::empty());
        if self.shape.variety == Variety::Uniform {
            return NewEvent::new(TYPES[0], data);
        }
        NewEvent {
            generation: random.u32(1..3),
            id: (random.u8(0..8) == 0).then(|| Uuid::from_u128(random.u128(..))),
            tags: some_of(random, TAGS, 4),
            public: random.bool(),
            ..NewEvent::new(pick(random, TYPES), data)
        }
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

fn hash(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}
