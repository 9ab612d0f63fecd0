//! What an adoption found, would do, and did.

use std::collections::BTreeMap;

use annals_core::Code;
use serde::{Deserialize, Serialize};

/// Names for the UUIDs of a Dolittle Runtime's log: the file that `annals adopt --names` reads, and what is still missing in it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdoptNames {
    /// UUIDs of event types, each with its name; null where it has none yet. A UUID may be its own name.
    pub event_types: BTreeMap<String, Option<String>>,
    /// UUIDs of aggregates (the Runtime's aggregate roots), each with its name.
    pub aggregates: BTreeMap<String, Option<String>>,
}

/// What an adoption found and would do; with `done` also what it did.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct AdoptReport {
    /// The tenant whose store it is or becomes.
    pub tenant: String,
    /// The database that was looked at.
    pub database: String,
    /// Whose database it is.
    pub context: String,
    /// Collections of commits, as Wow writes them.
    pub commits: Vec<FoundCommits>,
    /// The event log, as a Dolittle Runtime writes it.
    pub log: Option<FoundLog>,
    /// The names that the UUIDs of the log have, null for those that need one.
    pub names: AdoptNames,
    /// Collections that stay as they are and are not looked into.
    pub left: Vec<String>,
    /// What a person should know, none of which is in the way.
    pub findings: Vec<Finding>,
    /// What is in the way, most important first.
    pub obstacles: Vec<Obstacle>,
    /// What is to be done, in order; empty when the database is adopted already.
    pub steps: Vec<String>,
    /// Whether it was done.
    pub done: bool,
    /// The number of events in the log, once it was done.
    pub head: Option<u64>,
}

/// A collection of commits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct FoundCommits {
    /// Its name.
    pub collection: String,
    /// Commits in it.
    pub commits: u64,
    /// Their events, of those that can be read.
    pub events: u64,
    /// Aggregates that they are of.
    pub aggregates: u64,
    /// Commits that are in the log already.
    pub in_log: u64,
    /// Commits that will get numbers, and their events.
    pub to_number: u64,
    /// The events of those.
    pub events_to_number: u64,
    /// Commits that will be held back, or are, because they are malformed or have a gap before them.
    pub to_hold: u64,
    /// Of those, the ones that are in the list of held ones already.
    pub held: u64,
}

/// A Dolittle Runtime's event log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct FoundLog {
    /// The number that the next event gets.
    pub next: u64,
    /// Events that are to be taken in.
    pub to_take_in: u64,
    /// Of those, events that no aggregate applied.
    pub of_no_aggregate: u64,
    /// Of those, redacted ones.
    pub redacted: u64,
    /// Numbers below `next` that no event has, because events were deleted.
    pub holes: u64,
}

/// Something that a person should know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// `malformed`, `gap`, `hole` …
    pub kind: &'static str,
    /// What and where.
    pub what: String,
}

/// Something in the way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Obstacle {
    /// The stable code.
    pub code: &'static str,
    /// What it is and what to do, as one sentence.
    pub message: String,
    #[serde(skip)]
    pub(super) as_code: Code,
}

/// Findings of one kind that are told one by one; what is more is counted.
const TOLD_MAX: usize = 20;

impl AdoptReport {
    pub(super) fn find(&mut self, kind: &'static str, what: String) {
        let told = self.findings.iter().filter(|finding| finding.kind == kind).count();
        if told < TOLD_MAX {
            self.findings.push(Finding { kind, what });
        }
    }

    pub(super) fn obstruct(&mut self, code: Code, message: String) {
        self.obstacles.push(Obstacle { code: code.as_str(), message, as_code: code });
    }

    /// What is in the way, as the error that it is.
    pub fn obstacle(&self) -> Option<annals_core::OpenError> {
        let first = self.obstacles.first()?;
        Some(annals_core::OpenError::new(first.as_code, first.message.clone()))
    }
}
