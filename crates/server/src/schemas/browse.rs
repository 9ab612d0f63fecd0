//! The shapes of the browse view.

use utoipa::ToSchema;

use super::projection::ProjectionBuild;

/// A page of the browse view.
#[derive(ToSchema)]
pub(crate) struct BrowsePage {
    /// The events; one that cannot be read is shown under `document`, with what is wrong under `damaged`.
    items: Vec<serde_json::Value>,
    /// How many events meet the filter.
    total: u64,
    /// Whether counting stopped there because of `count_up_to`, so that there are at least so many; absent when it did not.
    total_is_bound: Option<bool>,
    has_more: bool,
    cursor: Option<String>,
    view: ViewPosition,
}

/// How far the browse view is.
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

/// An event in a few words.
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
    /// How many of 100 events are of a type that counts as an error.
    error_rate: f64,
    /// The average of what completed executions took, in seconds.
    avg_processing_time: f64,
    failure_types: Vec<String>,
}

/// How many events a type has.
#[derive(ToSchema)]
struct TypeCount {
    event_type: String,
    count: u64,
}

/// How many events an hour has.
#[derive(ToSchema)]
struct HourCount {
    /// Its beginning.
    hour: String,
    count: u64,
}

/// How many events a user has.
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
    /// For how many days it keeps an event; null is for ever.
    retention_days: Option<u32>,
    /// The event types that it leaves out; absent for none.
    off_types: Option<Vec<String>>,
    /// `running`, `paused`, `blocked` or `stopped`; absent while it does not exist.
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
    /// For how many days it keeps an event; null is for ever.
    retention_days: Option<u32>,
    /// The event types whose events it leaves out: all of them, not only those that are added.
    off_types: Option<Vec<String>>,
    reason: String,
    by: Option<String>,
}
