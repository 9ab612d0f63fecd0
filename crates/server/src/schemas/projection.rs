//! Projections.

use utoipa::ToSchema;

/// The definition of a projection.
#[derive(ToSchema)]
pub(crate) struct ProjectionDefinition {
    /// The rules of each event type, one or several; `*` is any type that has none of its own. A rule is an object of `key`, `set`,
    /// `unset`, `increment`, `decrement`, `push`, `remove` and `delete`.
    on: serde_json::Value,
    /// The key of an event's record: a path such as `$data.customer`, a constant, or an object of both. The aggregate's id when absent.
    key: Option<serde_json::Value>,
    /// The condition that its events must match, as documents with the fields of an event; all events match when absent.
    #[schema(value_type = Option<Object>)]
    condition: Option<serde_json::Value>,
    /// The indexes of its records, as collections of records declare them.
    indexes: Option<Vec<serde_json::Value>>,
    /// The version of the definition, incremented by its author; a version lower than the stored one is refused.
    version: Option<u32>,
}

/// The state of a projection.
#[derive(ToSchema)]
pub(crate) struct ProjectionStatus {
    name: String,
    /// `running`, `paused`, `blocked` or `stopped`.
    state: String,
    /// Which build is live.
    build: u64,
    position: u64,
    head: u64,
    lag: u64,
    lag_seconds: u64,
    last_progress: Option<String>,
    seconds_since_progress: Option<u64>,
    last_reason: Option<String>,
    /// The reason why it is unhealthy; absent if it is healthy.
    degraded: Option<String>,
    owner: Option<String>,
    /// The collection of the live records.
    collection: String,
    building: Option<ProjectionBuild>,
    /// The definition of the live records as it was put.
    definition: serde_json::Value,
}

/// The build that replaces the live records once it has caught up.
#[derive(ToSchema)]
pub(super) struct ProjectionBuild {
    build: u64,
    state: String,
    position: u64,
    lag: u64,
    /// The share of the log that is folded, 0 to 1.
    progress: f64,
    since: String,
    reason: String,
    last_reason: Option<String>,
    definition: serde_json::Value,
}

/// A page of projections.
#[derive(ToSchema)]
pub(crate) struct ProjectionPage {
    items: Vec<ProjectionStatus>,
    cursor: Option<String>,
}

/// A page of the live records of a projection.
#[derive(ToSchema)]
pub(crate) struct ProjectedRecords {
    /// The records, each a document whose `_id` is its key.
    items: Vec<serde_json::Value>,
    /// The start of the next page; absent at the end.
    cursor: Option<String>,
}
