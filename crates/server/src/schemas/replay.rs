//! The shapes of replays.

use utoipa::ToSchema;

use super::browse::EventSummary;

/// The filter of the events.
#[derive(ToSchema)]
struct ReplayFilter {
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

/// The target of a replay.
#[derive(ToSchema)]
struct ReplayTarget {
    /// `test`, `handler`, `topic`, `webhook` or `file`.
    kind: String,
    /// The handler, the topic, or the file.
    name: Option<String>,
    /// The URL of a webhook.
    url: Option<String>,
    /// The topics of single event types.
    topics: Option<std::collections::BTreeMap<String, String>>,
}

/// A replay that does not exist.
#[derive(ToSchema)]
pub(crate) struct PreviewBody {
    filter: ReplayFilter,
    target: Option<ReplayTarget>,
    max_events: Option<u64>,
}

/// The events that a replay would send.
#[derive(ToSchema)]
pub(crate) struct ReplayPreview {
    count: u64,
    /// The first 100, by time.
    first: Vec<EventSummary>,
    target: ReplayTarget,
}

/// A replay.
#[derive(ToSchema)]
pub(crate) struct ReplayBody {
    /// `execution`, `time_range`, `event_type`, `query` or `recovery`.
    replay_type: Option<String>,
    filter: ReplayFilter,
    target: ReplayTarget,
    /// `timestamp` or `sequence_number`.
    order: Option<String>,
    /// 0.1 to 100; as fast as possible when absent.
    speed: Option<f64>,
    /// 1 to 1,000; 100 when absent.
    batch_size: Option<u32>,
    max_events: Option<u64>,
    /// The maximum number of events per second.
    rate: Option<f64>,
    /// `skip` or `stop`.
    on_error: Option<String>,
    /// 0 to 10.
    retry_attempts: Option<u32>,
    /// `wait` or `fail`.
    outage: Option<String>,
    /// Whether events keep their times; true when absent. If false, each event gets the time at which it is sent.
    preserve_timestamps: Option<bool>,
    reason: Option<String>,
    by: Option<String>,
}

/// The state of a replay.
#[derive(ToSchema)]
pub(crate) struct ReplayStatus {
    session_id: String,
    /// The id that goes with every event it sends.
    replay_id: String,
    /// `created`, `running`, `paused`, `completed`, `failed` or `cancelled`.
    status: String,
    /// 0 until its events are counted.
    total: u64,
    replayed: u64,
    failed: u64,
    skipped: u64,
    /// The percentage of events that are done.
    progress: f64,
    /// The expected end.
    eta: Option<String>,
    created_at: String,
    started_at: Option<String>,
    completed_at: Option<String>,
    last_event_at: Option<String>,
    /// The first 100 failures.
    errors: Vec<ReplayError>,
    error: Option<String>,
    /// Its settings as they were defined.
    config: serde_json::Value,
}

/// A failure.
#[derive(ToSchema)]
struct ReplayError {
    timestamp: String,
    error: String,
    error_type: Option<String>,
    event_id: Option<String>,
}

/// A page of replays.
#[derive(ToSchema)]
pub(crate) struct ReplayPage {
    items: Vec<ReplayStatus>,
    cursor: Option<String>,
}

/// The number of removed replays.
#[derive(ToSchema)]
pub(crate) struct RemovedReplays {
    removed: u64,
}
