//! The shapes of the browse view.

use utoipa::ToSchema;

use super::projection::ProjectionBuild;

/// A page of the browse view.
#[derive(ToSchema)]
pub(crate) struct BrowsePage {
    /// The events; an unreadable one is returned as stored under `document`, with the reason under `damaged`.
    items: Vec<serde_json::Value>,
    /// The number of events that match the filter.
    total: u64,
    /// Whether counting stopped at `count_up_to`, so that `total` is a lower bound; absent otherwise.
    total_is_bound: Option<bool>,
    has_more: bool,
    cursor: Option<String>,
    view: ViewPosition,
}

/// The progress of the browse view.
#[derive(ToSchema)]
struct ViewPosition {
    /// Every event below this sequence number is in the view.
    position: u64,
    /// The number of events in the log.
    head: u64,
}

/// An event with others of its aggregate.
#[derive(ToSchema)]
pub(crate) struct EventDetail {
    event: serde_json::Value,
    /// Up to ten other events of its aggregate, the earliest first.
    related: Vec<EventSummary>,
    /// The first five of those.
    timeline: Vec<EventSummary>,
}

/// A summary of an event.
#[derive(ToSchema)]
pub(super) struct EventSummary {
    event_id: String,
    event_type: String,
    timestamp: Option<String>,
    aggregate_id: Option<String>,
    sequence_number: Option<u64>,
}

/// Statistics of the last hours.
#[derive(ToSchema)]
pub(crate) struct EventStatistics {
    hours: u32,
    since: String,
    total_events: u64,
    /// The ten most frequent types.
    event_types: Vec<TypeCount>,
    /// Events of each hour that has some.
    events_by_hour: Vec<HourCount>,
    /// The ten users with most events.
    top_users: Vec<UserCount>,
    /// The percentage of events whose type counts as an error.
    error_rate: f64,
    /// The average duration of completed executions, in seconds.
    avg_processing_time: f64,
    failure_types: Vec<String>,
}

/// The number of events of a type.
#[derive(ToSchema)]
struct TypeCount {
    event_type: String,
    count: u64,
}

/// The number of events in an hour.
#[derive(ToSchema)]
struct HourCount {
    /// Its beginning.
    hour: String,
    count: u64,
}

/// The number of events of a user.
#[derive(ToSchema)]
struct UserCount {
    user_id: String,
    count: u64,
}

/// The state of the browse view.
#[derive(ToSchema)]
pub(crate) struct ViewStatus {
    /// `auto`, `on` or `off`.
    state: String,
    /// The number of days for which it keeps an event; null keeps events forever.
    retention_days: Option<u32>,
    /// The event types that it excludes; absent for none.
    off_types: Option<Vec<String>>,
    /// `running`, `paused`, `blocked` or `stopped`; absent if it does not exist.
    view: Option<String>,
    collection: Option<String>,
    position: u64,
    head: u64,
    degraded: Option<String>,
    building: Option<ProjectionBuild>,
}

/// The settings of the browse view.
#[derive(ToSchema)]
pub(crate) struct ViewBody {
    /// `auto`, `on` or `off`.
    state: Option<String>,
    /// The number of days for which it keeps an event; null keeps events forever.
    retention_days: Option<u32>,
    /// The complete list of the event types that it excludes, not only the added ones.
    off_types: Option<Vec<String>>,
    reason: String,
    by: Option<String>,
}
