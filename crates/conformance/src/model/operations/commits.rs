//! Random commits and transactions.

use std::hash::{DefaultHasher, Hash, Hasher};

use annals_core::{
    Aggregate, AppendCondition, Data, EventPattern, Expectation, ExpectedVersion, Metadata, NewCommit, NewEvent,
    NewTransaction, Uuid,
};

use super::{Operations, Variety};
use crate::words::{IDS, TAGS, TYPES, pick, some_of};

impl Operations {
    pub(super) fn commit(&mut self) -> NewCommit {
        let aggregate = self.aggregate();
        let request_id = (self.random.u8(0..10) > 0).then(|| self.request_id());
        // The same request has the same content, whichever client sends it, except for one in twelve.
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
            append_condition: self.append_condition(),
            keys: self.keys(5, &mut content),
            ..NewCommit::new(aggregate.name, aggregate.id)
        };
        if self.random.u8(0..50) == 0 {
            commit.events.clear();
        }
        if self.shape.variety == Variety::Mixed {
            self.add_what_is_not_content(&mut commit);
        }
        commit
    }

    /// Varies what is not content: a repeat may have another owner, header or time, and those of the first are kept.
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

    /// Returns a transaction of two to four aggregates, or one time in thirty of as many as allowed.
    pub(super) fn transaction(&mut self) -> NewTransaction {
        let request_id = (self.random.u8(0..10) > 0).then(|| self.request_id());
        let first = self.aggregate();
        let reused = self.random.u8(0..12) == 0;
        let mut content = match &request_id {
            Some(request) => fastrand::Rng::with_seed(hash(&("transaction", &first, request, reused))),
            None => self.random.fork(),
        };
        let mut others: Vec<_> = self.aggregates().into_iter().filter(|other| *other != first).collect();
        content.shuffle(&mut others);
        let count = if content.u8(0..30) == 0 { others.len() } else { content.usize(1..4) };
        let expected = others.split_off(count);
        let mut transaction = NewTransaction {
            commits: std::iter::once(first).chain(others).map(|of| self.member(of, &mut content)).collect(),
            request_id: request_id.map(Into::into),
            ..NewTransaction::default()
        };
        for aggregate in expected {
            if self.random.u8(0..8) == 0 {
                let expected_version = self.expected_version(&aggregate);
                transaction.expect.push(Expectation { aggregate, expected_version });
            }
        }
        if self.random.u8(0..50) == 0 {
            transaction.commits.truncate(1);
        }
        transaction
    }

    fn member(&mut self, aggregate: Aggregate, content: &mut fastrand::Rng) -> NewCommit {
        let mut commit = NewCommit {
            expected_version: self.expected_version(&aggregate),
            tenant_id: self.tenant_id(&aggregate),
            events: self.events(content),
            append_condition: self.append_condition(),
            keys: self.keys(20, content),
            ..NewCommit::new(aggregate.name, aggregate.id)
        };
        if self.shape.variety == Variety::Mixed {
            self.add_what_is_not_content(&mut commit);
        }
        commit
    }

    /// Returns an append condition: usually after the last known event, sometimes after an old or a future one, or on the whole log.
    fn append_condition(&mut self) -> Option<AppendCondition> {
        if self.random.u8(0..10) > 0 {
            return None;
        }
        let fail_if = (0..self.random.u8(1..3)).map(|_| EventPattern {
            types: some_of(&mut self.random, TYPES, 3),
            tags: some_of(&mut self.random, TAGS, 5),
        });
        let fail_if = fail_if.collect();
        let after = match self.random.u8(0..10) {
            0..6 => self.head.checked_sub(1),
            6..9 => Some(self.random.u64(0..=self.head + 3)),
            _ => None,
        };
        Some(AppendCondition { fail_if, after })
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

    /// Returns a tenantId: usually the aggregate's own, which follows from its id.
    fn tenant_id(&mut self, aggregate: &Aggregate) -> Option<annals_core::ByteString> {
        let own = (aggregate.id == "2").then(|| "tenant-2".into());
        if self.random.u8(0..30) == 0 { Some("tenant-3".into()) } else { own }
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
            metadata: (random.u8(0..6) == 0).then(|| metadata(random)).flatten(),
            ..NewEvent::new(pick(random, TYPES), data)
        }
    }
}

fn metadata(random: &mut fastrand::Rng) -> Option<Metadata> {
    let value = serde_json::json!({ "trace": format!("t-{}", random.u8(0..4)), "attempt": random.u8(..), "cost": 0.5 });
    Data::from_value(&value).and_then(Metadata::of).ok().flatten()
}

fn hash(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}
