//! Snapshots.

use utoipa::ToSchema;

use crate::payload::Document;

/// The state of an aggregate at a version.
#[derive(ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NewSnapshot {
    #[schema(minimum = 1, maximum = 2_147_483_647)]
    version: u64,
    state: Document,
    #[schema(nullable = false)]
    deleted: Option<bool>,
    #[schema(nullable = false)]
    tenant_id: Option<String>,
    #[schema(nullable = false)]
    owner_id: Option<String>,
    #[schema(nullable = false)]
    space_id: Option<String>,
    /// The id of the last commit.
    #[schema(nullable = false)]
    event_id: Option<String>,
    #[schema(nullable = false)]
    operator: Option<String>,
    #[schema(nullable = false)]
    first_operator: Option<String>,
    /// Milliseconds since 1970.
    #[schema(nullable = false)]
    event_time: Option<i64>,
    #[schema(nullable = false)]
    first_event_time: Option<i64>,
    #[schema(nullable = false)]
    snapshot_time: Option<i64>,
    #[schema(value_type = Option<std::collections::HashMap<String, Vec<String>>>, nullable = false)]
    tags: Option<()>,
    #[schema(nullable = false)]
    state_revision: Option<u32>,
    #[schema(nullable = false)]
    aggregate_name: Option<String>,
    #[schema(nullable = false)]
    aggregate_id: Option<String>,
}

/// A saved snapshot.
#[derive(ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Snapshot {
    aggregate_name: String,
    aggregate_id: String,
    tenant_id: String,
    owner_id: String,
    space_id: String,
    version: u64,
    /// The id of the last commit.
    event_id: String,
    first_operator: String,
    operator: String,
    /// Milliseconds since 1970.
    first_event_time: i64,
    event_time: i64,
    state: Document,
    #[schema(nullable = false)]
    snapshot_time: Option<i64>,
    #[schema(value_type = std::collections::HashMap<String, Vec<String>>)]
    tags: (),
    deleted: bool,
    state_revision: u32,
}

/// Whether the snapshot was saved; false if a later one is kept.
#[derive(ToSchema)]
pub(crate) struct Saved {
    saved: bool,
}

/// Whether it existed and was deleted.
#[derive(ToSchema)]
pub(crate) struct Deleted {
    deleted: bool,
}
