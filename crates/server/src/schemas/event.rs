//! Events and commits that are read.

use utoipa::ToSchema;

use super::commit::Aggregate;
use crate::payload::Document;

/// An event of the log.
#[derive(ToSchema)]
pub(crate) struct Event {
    sequence_number: u64,
    #[schema(format = "uuid")]
    id: String,
    r#type: String,
    generation: u32,
    data: Document,
    tags: Vec<String>,
    /// Null for an event that a Dolittle Runtime wrote without an aggregate.
    #[schema(required = true)]
    aggregate: Option<Aggregate>,
    /// The source of an event without an aggregate.
    #[schema(nullable = false)]
    event_source: Option<String>,
    /// The version of the aggregate after the commit.
    version: u64,
    /// The place in the commit, from 0.
    ordinal: u32,
    #[schema(format = "uuid")]
    commit_id: String,
    #[schema(required = true)]
    request_id: Option<String>,
    #[schema(format = DateTime)]
    time: String,
    tenant: String,
    scope: String,
    #[schema(value_type = std::collections::HashMap<String, String>)]
    header: (),
    #[schema(nullable = false)]
    public: Option<bool>,
    /// Strings and numbers for tools and operators.
    #[schema(nullable = false)]
    metadata: Option<Document>,
    #[schema(nullable = false)]
    tenant_id: Option<String>,
    #[schema(nullable = false)]
    owner_id: Option<String>,
    #[schema(nullable = false)]
    space_id: Option<String>,
    #[schema(nullable = false)]
    command_id: Option<String>,
    #[schema(nullable = false)]
    correlation_id: Option<String>,
    #[schema(nullable = false)]
    causation_id: Option<String>,
    /// The transaction of the commit: its id, the commit's place in it, and how many commits it has.
    #[schema(nullable = false)]
    transaction: Option<Document>,
    /// The origin of an event that was received over the event horizon.
    #[schema(nullable = false)]
    received: Option<Document>,
}

/// A page of the log.
#[derive(ToSchema)]
pub(crate) struct LogPage {
    events: Vec<Event>,
    /// The `from` of the next page.
    next: u64,
    /// The number of events in the log.
    head: u64,
}

/// A commit.
#[derive(ToSchema)]
struct Commit {
    #[schema(format = "uuid")]
    commit_id: String,
    version: u64,
    #[schema(required = true)]
    request_id: Option<String>,
    #[schema(format = DateTime)]
    time: String,
    events: Vec<Event>,
    #[schema(nullable = false)]
    tenant_id: Option<String>,
    #[schema(nullable = false)]
    owner_id: Option<String>,
    #[schema(nullable = false)]
    space_id: Option<String>,
    #[schema(nullable = false)]
    command_id: Option<String>,
    #[schema(nullable = false)]
    correlation_id: Option<String>,
    #[schema(nullable = false)]
    causation_id: Option<String>,
    /// The transaction of the commit: its id, the commit's place in it, and how many commits it has.
    #[schema(nullable = false)]
    transaction: Option<Document>,
    /// The origin of an event that was received over the event horizon.
    #[schema(nullable = false)]
    received: Option<Document>,
}

/// Commits of one aggregate.
#[derive(ToSchema)]
pub(crate) struct AggregatePage {
    commits: Vec<Commit>,
    /// The version of the aggregate; 0 if it has no commits.
    version: u64,
}
