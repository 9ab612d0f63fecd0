//! The shapes of retention, holds and the archive.

use utoipa::ToSchema;

/// The filter of the events.
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
    /// The number of days for which the view keeps an event, 1 to 36,500; null keeps events forever. 90 when absent.
    ttl_days: Option<u32>,
    /// Where it goes before it is deleted: `none`, `collection` or `files`.
    archive: Option<String>,
    /// Counts the events that would be removed from the view now, without changing anything.
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
    /// Null keeps events forever.
    ttl_days: Option<u32>,
    /// `none`, `collection` or `files`.
    archive: String,
    reason: Option<String>,
    by: Option<String>,
    at: String,
    /// With `dry_run`: the number of events that it would remove from the view now.
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
    /// Null keeps events forever.
    ttl_days: Option<u32>,
    archive: String,
}

/// The state of the archive.
#[derive(ToSchema)]
struct ArchiveStatus {
    /// Whether all documents of the view expire as the retentions say.
    settled: bool,
    /// The number of events that retention has archived.
    archived: u64,
    /// The number of events that are due and not archived yet.
    waiting: u64,
    /// The number of those that the archive refused.
    refused: u64,
    last_archived: Option<String>,
    failing: Option<ArchiveFailure>,
}

/// The reason why the archive cannot be written.
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
    /// The number of events that match the filter.
    total: u64,
    /// Whether counting stopped at `count_up_to`, so that `total` is a lower bound; absent otherwise.
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
