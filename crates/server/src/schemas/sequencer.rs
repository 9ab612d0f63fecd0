//! The sequencer and held commits.

use utoipa::ToSchema;

/// Who assigns sequence numbers, and how far the tenant's log is.
#[derive(ToSchema)]
pub(crate) struct SequencerState {
    /// Null while nobody leads.
    #[schema(required = true)]
    leader: Option<Leader>,
    head: u64,
    /// The number of held commits.
    held: u64,
    /// Contexts of commits beside the store's own.
    #[schema(nullable = false)]
    other_contexts: Option<Vec<String>>,
    /// Documents of the log that other software deleted.
    #[schema(nullable = false)]
    missing: Option<Vec<MissingDocument>>,
}

#[derive(ToSchema)]
struct MissingDocument {
    collection: String,
    /// The first sequence number that is missing in the collection.
    sequence_number: u64,
}

#[derive(ToSchema)]
struct Leader {
    holder: String,
    /// Its host and process id.
    process: String,
    epoch: u64,
    /// When its lease ends unless it is renewed.
    #[schema(format = DateTime)]
    until: String,
    /// How far it lagged behind what is stored when it last renewed its lease.
    lag_ms: u64,
    /// Whether it is the process that answers.
    here: bool,
}

/// Which held commit.
#[derive(ToSchema)]
pub(crate) struct HeldId {
    collection: String,
    commit: String,
}

#[derive(ToSchema)]
struct HeldCommit {
    collection: String,
    commit: String,
    aggregate_name: String,
    aggregate_id: String,
    version: u64,
    /// Begins with `gap`, `late`, `malformed`, `taken`, `too large` or `refused`.
    reason: String,
    #[schema(format = DateTime, required = true)]
    since: Option<String>,
}

/// A page of held commits.
#[derive(ToSchema)]
pub(crate) struct HeldList {
    held: Vec<HeldCommit>,
    /// What `after` is for the next page; null on the last one.
    #[schema(required = true)]
    next: Option<String>,
}

/// The outcome of a request about a held commit.
#[derive(ToSchema)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub(crate) enum HeldOutcome {
    /// It has sequence numbers now.
    Numbered {
        /// That of its first event.
        sequence_number: u64,
    },
    /// It is still held.
    Held {
        /// Why.
        reason: String,
    },
    /// It is not stored any more.
    Gone,
}
