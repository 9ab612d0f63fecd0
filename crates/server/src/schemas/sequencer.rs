//! The sequencer and held commits.

use utoipa::ToSchema;

/// The process that assigns sequence numbers, and the progress of the tenant's log.
#[derive(ToSchema)]
pub(crate) struct SequencerState {
    /// Null while no process leads.
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
    /// The end of its lease, unless the lease is renewed.
    #[schema(format = DateTime)]
    until: String,
    /// The lag of the leader when it last renewed its lease.
    lag_ms: u64,
    /// Whether it is the responding process.
    here: bool,
}

/// The held commit.
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
    /// The `after` of the next page; null on the last page.
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
    /// It is no longer stored.
    Gone,
}
