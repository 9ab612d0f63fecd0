//! Filters.

use utoipa::ToSchema;

use super::handler::{DeliveryFailure, HandlerWorker};

/// The definition of a filter.
#[derive(ToSchema)]
pub(crate) struct FilterDefinition {
    /// The stream whose events it evaluates; the log of the scope when absent.
    source: Option<String>,
    /// The types of the events it includes; any when absent.
    types: Option<Vec<String>>,
    /// The condition that its events must match, as documents with the fields of an event; all events match when absent.
    #[schema(value_type = Option<Object>)]
    condition: Option<serde_json::Value>,
    /// `none`, `aggregate` or `data.PATH`. When absent, a remote filter says the partition with each verdict, and another one has none.
    partition_by: Option<String>,
    /// Whether partners may see the stream. Events that are not public are then excluded.
    public: Option<bool>,
    /// Whether a client evaluates the events: it pulls them and settles each with a verdict.
    remote: Option<bool>,
    /// The scope of the stream; that of the query when absent.
    scope: Option<String>,
}

/// The state of a filter.
#[derive(ToSchema)]
pub(crate) struct FilterStatus {
    stream: String,
    scope: String,
    /// The position in its source: everything below it is evaluated.
    position: u64,
    head: u64,
    lag: u64,
    lag_seconds: u64,
    last_progress: Option<String>,
    seconds_since_progress: Option<u64>,
    /// The next sequence number that it evaluates.
    progress: u64,
    /// The number of entries in the stream.
    entries: u64,
    /// `running`, `failing`, `blocked` or `stopped`.
    state: String,
    attempts: Option<u32>,
    last_reason: Option<String>,
    /// The reason why it is unhealthy; absent if it is healthy.
    degraded: Option<String>,
    retry_at: Option<String>,
    workers: Option<Vec<HandlerWorker>>,
    owner: Option<String>,
    /// The definition as it was put.
    definition: serde_json::Value,
}

/// A page of filters.
#[derive(ToSchema)]
pub(crate) struct FilterPage {
    items: Vec<FilterStatus>,
    cursor: Option<String>,
}

/// The verdicts on deliveries, in the order of the deliveries.
#[derive(ToSchema)]
pub(crate) struct FilterSettlements {
    results: Vec<FilterSettlement>,
}

/// The verdict on a delivery, or the reason why there is none.
#[derive(ToSchema)]
struct FilterSettlement {
    token: String,
    /// Whether the event is in the stream; absent beside `failure`.
    included: Option<bool>,
    /// The partition, if the definition does not determine it.
    partition: Option<String>,
    failure: Option<DeliveryFailure>,
}
