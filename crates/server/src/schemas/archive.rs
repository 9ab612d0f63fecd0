//! The shapes of retention, holds and the archive.

use utoipa::ToSchema;

/// Which events are meant.
#[derive(ToSchema)]
struct HeldEvents {
    event_ids: Option<Vec<String>>,
    execution_id: Option<String>,
    aggregate_id: Option<String>,
    event_types: Option<Vec<String>>,
    exclude_event_types: Option<Vec<String>>,
    start_time: Option<String>,
    end_time: Option<String>,
    user_id: Option<String>,
    service_name: Option<String>,
}

/// A retention of a category or a type.
#[derive(ToSchema)]
pub(crate) struct RetentionBody {
    /// For how many days the view keeps an event, 1 to 36,500; null is for ever. 90 when absent.
    ttl_days: Option<u32>,
    /// Where it goes before it is deleted: `none`, `collection` or `files`.
    archive: Option<String>,
    /// Counts what would be removed from the view now, and changes nothing.
    dry_run: Option<bool>,
    reason: Option<String>,
    by: Option<String>,
}

/// A retention of a category or a type.
#[derive(ToSchema)]
pub(crate) struct RetentionStatus {
    name: String,
    /// `category` or `type`.
    kind: String,
    /// Null is for ever.
    ttl_days: Option<u32>,
    /// `none`, `collection` or `files`.
    archive: String,
    reason: Option<String>,
    by: Option<String>,
    at: String,
    /// With `dry_run`: how many events it would remove from the view now.
    due: Option<u64>,
}

/// A page of retentions.
#[derive(ToSchema)]
pub(crate) struct RetentionPage {
    items: Vec<RetentionStatus>,
    cursor: Option<String>,
    default: RetentionDefault,
    archive: ArchiveStatus,
}

/// The retention of types without one.
#[derive(ToSchema)]
struct RetentionDefault {
    /// Null is for ever.
    ttl_days: Option<u32>,
    archive: String,
}

/// How the archive is.
#[derive(ToSchema)]
struct ArchiveStatus {
    /// Whether all documents of the view expire as the retentions say.
    settled: bool,
    /// How many events were archived by retention.
    archived: u64,
    /// How many are due and not archived.
    waiting: u64,
    /// How many of them the archive refused.
    refused: u64,
    last_archived: Option<String>,
    failing: Option<ArchiveFailure>,
}

/// Why the archive cannot be written.
#[derive(ToSchema)]
struct ArchiveFailure {
    reason: String,
    since: String,
}

/// Events that must not be deleted: the fields of a filter, or the filter under `filter`.
#[derive(ToSchema)]
pub(crate) struct HoldBody {
    filter: Option<HeldEvents>,
    event_ids: Option<Vec<String>>,
    execution_id: Option<String>,
    aggregate_id: Option<String>,
    event_types: Option<Vec<String>>,
    exclude_event_types: Option<Vec<String>>,
    start_time: Option<String>,
    end_time: Option<String>,
    user_id: Option<String>,
    service_name: Option<String>,
    reason: Option<String>,
    by: Option<String>,
}

/// A hold.
#[derive(ToSchema)]
pub(crate) struct HoldStatus {
    name: String,
    filter: HeldEvents,
    reason: Option<String>,
    by: Option<String>,
    at: String,
    /// Whether no event that it selects expires.
    in_force: bool,
}

/// A page of holds.
#[derive(ToSchema)]
pub(crate) struct HoldPage {
    items: Vec<HoldStatus>,
    cursor: Option<String>,
}

/// An event that was moved into the archive.
#[derive(ToSchema)]
pub(crate) struct DeletedEvent {
    deleted: bool,
    event_id: String,
    archived_in: String,
    deleted_at: String,
}

/// An event of the browse view.
#[derive(ToSchema)]
pub(crate) struct BrowsedEvent(serde_json::Value);

/// A page of archived events.
#[derive(ToSchema)]
pub(crate) struct ArchivePage {
    /// The events, with `deleted_at`, `deleted_by` and `deletion_reason`.
    items: Vec<serde_json::Value>,
    /// How many events meet the filter.
    total: u64,
    /// Whether counting stopped there because of `count_up_to`, so that there are at least so many; absent when it did not.
    total_is_bound: Option<bool>,
    has_more: bool,
    cursor: Option<String>,
}

/// A file of the archive.
#[derive(ToSchema)]
struct ArchiveFile {
    /// Below the tenant's folder.
    path: String,
    event_type: String,
    day: String,
    events: u64,
    bytes: u64,
    sha256: String,
    written: String,
}

/// A page of files.
#[derive(ToSchema)]
pub(crate) struct ArchiveFilePage {
    items: Vec<ArchiveFile>,
    cursor: Option<String>,
}
