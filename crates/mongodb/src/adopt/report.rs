//! The report of an adoption: what it found, would do, and did.

use std::collections::BTreeMap;

use annals_core::Code;
use serde::{Deserialize, Serialize};

/// Names for the UUIDs of a Dolittle Runtime's log: the file that `annals adopt --names` reads, and the names that it still lacks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdoptNames {
    /// UUIDs of event types, each with its name, or null if it has none yet. A UUID may be its own name.
    pub event_types: BTreeMap<String, Option<String>>,
    /// UUIDs of aggregates (the Runtime's aggregate roots), each with its name.
    pub aggregates: BTreeMap<String, Option<String>>,
}

/// What an adoption found and would do; with `done` also what it did.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct AdoptReport {
    /// The tenant whose store it is or becomes.
    pub tenant: String,
    /// The inspected database.
    pub database: String,
    /// The context that owns the database.
    pub context: String,
    /// Collections of commits, as Wow writes them.
    pub commits: Vec<FoundCommits>,
    /// The event log, as a Dolittle Runtime writes it.
    pub log: Option<FoundLog>,
    /// The names of the log's UUIDs; null for those that need one.
    pub names: AdoptNames,
    /// Collections that stay unchanged and are not inspected.
    pub left: Vec<String>,
    /// Findings that are worth knowing and no obstacles.
    pub findings: Vec<Finding>,
    /// Obstacles to the adoption, most important first.
    pub obstacles: Vec<Obstacle>,
    /// The steps to do, in order; empty if the database is already adopted.
    pub steps: Vec<String>,
    /// Whether the adoption was done.
    pub done: bool,
    /// The number of events in the log after the adoption.
    pub head: Option<u64>,
}

/// A collection of commits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct FoundCommits {
    /// Its name.
    pub collection: String,
    /// Number of commits in it.
    pub commits: u64,
    /// Number of events of the well-formed commits.
    pub events: u64,
    /// Number of aggregates that the commits belong to.
    pub aggregates: u64,
    /// Number of commits that are already in the log.
    pub in_log: u64,
    /// Number of commits that will be numbered.
    pub to_number: u64,
    /// Number of events of those commits.
    pub events_to_number: u64,
    /// Number of commits that will be or are held, because they are malformed or follow a gap.
    pub to_hold: u64,
    /// Number of those that are already held.
    pub held: u64,
}

/// A Dolittle Runtime's event log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct FoundLog {
    /// The next sequence number.
    pub next: u64,
    /// Number of events to adopt.
    pub to_take_in: u64,
    /// Of those, events that no aggregate applied.
    pub of_no_aggregate: u64,
    /// Of those, redacted events.
    pub redacted: u64,
    /// Sequence numbers below `next` without an event, because events were deleted.
    pub holes: u64,
}

/// Something worth knowing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The kind, such as `malformed`, `gap` or `hole`.
    pub kind: &'static str,
    /// What was found, and where.
    pub what: String,
}

/// An obstacle to the adoption.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Obstacle {
    /// The stable error code.
    pub code: &'static str,
    /// What the obstacle is and what to do, in one sentence.
    pub message: String,
    #[serde(skip)]
    pub(super) as_code: Code,
}

/// Maximum number of findings of one kind that are listed individually.
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

    /// Returns the most important obstacle as an error.
    pub fn obstacle(&self) -> Option<annals_core::OpenError> {
        let first = self.obstacles.first()?;
        Some(annals_core::OpenError::new(first.as_code, first.message.clone()))
    }
}
