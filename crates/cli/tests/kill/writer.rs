//! A client that commits: with expected versions, right and wrong ones, and request ids, new, repeated and reused ones.

use std::collections::HashMap;

use annals::{CommitError, CommitOutcome, Data, ExpectedVersion, NewCommit, NewEvent};
use fastrand::Rng;
use serde_json::json;

use crate::meeting::{Guest, is_gone};

/// How many aggregates all writers share, so that they collide.
pub const AGGREGATES: u64 = 14;
/// How many commits a writer remembers to repeat.
const REMEMBERED: usize = 40;

struct Writer {
    rng: Rng,
    /// Tells the ids of this writer's requests from those of the others.
    name: u64,
    made: u64,
    /// The versions it was told last.
    versions: HashMap<u64, u64>,
    sent: Vec<NewCommit>,
}

/// Commits at each server until it is gone. At the last one it only asks what became of the commit whose answer was lost.
pub async fn run(mut guest: Guest, mut rng: Rng) {
    let name = rng.u64(..);
    let mut writer = Writer { rng, name, made: 0, versions: HashMap::new(), sent: Vec::new() };
    let mut unanswered: Option<(u64, NewCommit)> = None;
    loop {
        let place = guest.next().await;
        let log = guest.log(&place);
        loop {
            let retried = unanswered.take();
            if place.last && retried.is_none() {
                return;
            }
            let (aggregate, commit) = retried.unwrap_or_else(|| writer.make());
            match log.commit(commit.clone()).await {
                Err(error) if is_gone(&error) => {
                    assert!(!place.last, "the last server is gone: {error}");
                    unanswered = Some((aggregate, commit));
                    break;
                }
                answer => writer.learn(aggregate, answer),
            }
            guest.answered();
        }
    }
}

impl Writer {
    fn make(&mut self) -> (u64, NewCommit) {
        let aggregate = self.rng.u64(..AGGREGATES);
        let new = match self.rng.u8(..100) {
            0..10 => self.shared(aggregate),
            10..20 if !self.sent.is_empty() => {
                let again = self.sent[self.rng.usize(..self.sent.len())].clone();
                let expected = self.expected(aggregate);
                let again = again.expect(expected);
                return (aggregate_of(&again), again);
            }
            20..23 if !self.sent.is_empty() => {
                let used = &self.sent[self.rng.usize(..self.sent.len())];
                let (aggregate, id) = (aggregate_of(used), used.request_id.clone().expect("given"));
                return (aggregate, self.fresh(aggregate).request_id(id));
            }
            _ => self.fresh(aggregate),
        };
        if self.sent.len() == REMEMBERED {
            self.sent.remove(0);
        }
        self.sent.push(new.clone());
        (aggregate, new)
    }

    fn fresh(&mut self, aggregate: u64) -> NewCommit {
        self.made += 1;
        let mut commit = NewCommit::new("account", aggregate.to_string())
            .expect(self.expected(aggregate))
            .request_id(format!("{:x}-{}", self.name, self.made));
        for n in 0..self.rng.u64(1..=5) {
            let pad = "x".repeat(self.rng.usize(..800));
            let data = json!({ "writer": format!("{:x}", self.name), "made": self.made, "n": n, "pad": pad });
            let data = Data::from_value(&data).expect("an object");
            commit = commit.event(NewEvent::new(format!("kind_{n}"), data).tag(format!("tag-{}", self.made % 5)));
        }
        commit
    }

    /// A request that every writer may send at the same time with the same content; one is first, the others repeat it.
    fn shared(&mut self, aggregate: u64) -> NewCommit {
        let number = self.versions.get(&aggregate).copied().unwrap_or(0) / 10;
        let data = Data::from_value(&json!({ "shared": number })).expect("an object");
        NewCommit::new("account", aggregate.to_string())
            .request_id(format!("shared-{number}"))
            .event(NewEvent::new("shared", data))
    }

    fn expected(&mut self, aggregate: u64) -> ExpectedVersion {
        let known = self.versions.get(&aggregate).copied().unwrap_or(0);
        match self.rng.u8(..100) {
            0..60 => ExpectedVersion::Exact(known),
            60..85 => ExpectedVersion::Any,
            85..90 => ExpectedVersion::Exists,
            90..93 => ExpectedVersion::Empty,
            93..97 => ExpectedVersion::Exact(known + 1),
            _ => ExpectedVersion::Exact(known.saturating_sub(1)),
        }
    }

    fn learn(&mut self, aggregate: u64, answer: Result<CommitOutcome, CommitError>) {
        let version = match answer {
            Ok(outcome) => outcome.version,
            Err(CommitError::VersionConflict { actual_version, .. }) => actual_version,
            Err(CommitError::RequestIdReused { .. }) => return,
            Err(other) => panic!("nothing this writer does is refused like this: {other}"),
        };
        let known = self.versions.entry(aggregate).or_default();
        *known = version.max(*known);
    }
}

fn aggregate_of(commit: &NewCommit) -> u64 {
    commit.aggregate.id.parse().expect("a number")
}
