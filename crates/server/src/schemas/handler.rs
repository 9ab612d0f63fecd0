//! Handlers.

use utoipa::ToSchema;

use super::Event;

/// The definition of a handler.
#[derive(ToSchema)]
pub(crate) struct HandlerDefinition {
    /// The scope whose log or stream it handles; `default` when absent.
    scope: Option<String>,
    /// The stream whose events it handles; not beside `types`.
    stream: Option<String>,
    /// The types of the events it handles; any when absent.
    types: Option<Vec<String>>,
    /// The condition that its events must match, as documents with the fields of an event; all events match when absent.
    #[schema(value_type = Option<Object>)]
    condition: Option<serde_json::Value>,
    /// `none`, `aggregate` or `data.PATH`.
    partition_by: Option<String>,
    /// The maximum number of partitions in flight, 1 to 256.
    concurrency: Option<u32>,
    /// `"beginning"`, `"latest"`, `{"sequence_number": n}` or `{"time": "…"}`.
    start: Option<serde_json::Value>,
    /// It stops before its first event at or after this time.
    stop_at: Option<String>,
    /// The maximum number of events of one partition that are delivered together, 1 to 1,000.
    batch: Option<u32>,
    retry: Option<HandlerRetry>,
    dead_letters: Option<super::topic::LetterSettings>,
    /// How equivalent events are recognised, of which one is delivered; as for groups.
    guard: Option<serde_json::Value>,
    /// How long a processed one is remembered, in seconds; 3600 when absent.
    guard_seconds: Option<u64>,
}

/// When a failed event is delivered again.
#[derive(ToSchema)]
pub(super) struct HandlerRetry {
    /// The delay after the first failure, in milliseconds.
    first_ms: Option<u64>,
    /// The factor between each delay and the next.
    factor: Option<f64>,
    /// The longest delay, in milliseconds.
    max_ms: Option<u64>,
    /// The share by which a delay varies, 0 to 1.
    jitter: Option<f64>,
    /// The number of attempts of an event before `then` applies; unlimited when absent.
    attempts: Option<u32>,
    /// `block` or `park`.
    then: Option<String>,
}

/// The state of a handler.
#[derive(ToSchema)]
pub(crate) struct HandlerStatus {
    name: String,
    position: u64,
    head: u64,
    lag: u64,
    lag_seconds: u64,
    last_progress: Option<String>,
    seconds_since_progress: Option<u64>,
    workers: Vec<HandlerWorker>,
    failing: u64,
    /// The number of failing partitions that need an operator.
    blocked: u64,
    parked: u64,
    /// `running`, `paused`, `blocked` or `stopped`.
    state: String,
    last_reason: Option<String>,
    /// The reason why it is unhealthy; absent if it is healthy.
    degraded: Option<String>,
    replay: Option<HandlerReplayStatus>,
    /// The number of events that the guard has passed as duplicates; absent if there were none.
    duplicates: Option<u64>,
    /// Whether it has reached its `stop_at`.
    ended: Option<bool>,
    owner: Option<String>,
    /// The definition as it was put.
    definition: serde_json::Value,
}

/// A replay that has not ended: events from `from` to before `to` are redelivered.
#[derive(ToSchema)]
pub(super) struct HandlerReplayStatus {
    id: String,
    from: u64,
    to: u64,
}

/// A worker that pulled recently.
#[derive(ToSchema)]
pub(super) struct HandlerWorker {
    worker: String,
    last_pull: String,
    in_flight: u64,
}

/// A page of handlers.
#[derive(ToSchema)]
pub(crate) struct HandlerPage {
    items: Vec<HandlerStatus>,
    cursor: Option<String>,
}

/// A page of failing partitions.
#[derive(ToSchema)]
pub(crate) struct FailingPartitionPage {
    items: Vec<FailingPartition>,
    cursor: Option<String>,
}

/// A failing partition.
#[derive(ToSchema)]
struct FailingPartition {
    partition: String,
    /// `retrying`, `blocked` or `catching_up`.
    state: String,
    position: u64,
    sequence_number: u64,
    attempts: u32,
    reason: String,
    retry_at: Option<String>,
    last_failed: String,
    behind: u64,
    lag_seconds: u64,
    since: String,
}

/// The request of a worker for deliveries.
#[derive(ToSchema)]
pub(crate) struct Pull {
    /// The maximum number of deliveries, 1 to 1,000; 10 when absent.
    max: Option<u64>,
    /// How long to wait for the first one, at most 50,000; 0 when absent.
    wait_ms: Option<u64>,
    /// How long the worker has to settle them; 30,000 when absent.
    lease_ms: Option<u64>,
    /// The name of the worker.
    worker: Option<String>,
}

/// The deliveries for a worker.
#[derive(ToSchema)]
pub(crate) struct Deliveries {
    deliveries: Vec<Delivery>,
}

/// An event on its way to a worker.
#[derive(ToSchema)]
struct Delivery {
    token: String,
    event: Event,
    position: u64,
    partition: Option<String>,
    attempt: u32,
    last_reason: Option<String>,
    until: String,
    /// The id of the replay that delivers it again.
    replay: Option<String>,
    /// The topic to which the replay sends it, if that is not the topic of its type.
    topic: Option<String>,
    /// The span of which the worker's own requests are part, in the format of W3C Trace Context.
    traceparent: Option<String>,
}

/// The outcomes of deliveries, in the order in which they are settled.
#[derive(ToSchema)]
pub(crate) struct Settlements {
    results: Vec<Settlement>,
}

/// The outcome of settling a delivery.
#[derive(ToSchema)]
struct Settlement {
    token: String,
    failure: Option<DeliveryFailure>,
}

/// The reason why a delivery failed.
#[derive(ToSchema)]
pub(super) struct DeliveryFailure {
    reason: String,
    retry_after_ms: Option<u64>,
    never: Option<bool>,
}

/// The outcomes of settlements, in their order.
#[derive(ToSchema)]
pub(crate) struct Settled {
    results: Vec<SettleResult>,
}

/// The outcome of one settlement.
#[derive(ToSchema)]
struct SettleResult {
    token: String,
    settled: bool,
    /// `lease_lost` or `out_of_order`.
    error: Option<String>,
}

/// The reason for an act of an operator.
#[derive(ToSchema)]
pub(crate) struct Reason {
    reason: String,
    /// The user who acts, for the record.
    by: Option<String>,
}

/// The reason for taking an event out of its partition.
#[derive(ToSchema)]
pub(crate) struct EventAct {
    reason: String,
    /// The user who acts, for the record.
    by: Option<String>,
    /// The position of the event; the act is refused if another event is next in the partition.
    position: Option<u64>,
}

/// The position at which a handler continues, and the reason.
#[derive(ToSchema)]
pub(crate) struct HandlerMove {
    reason: String,
    /// The user who acts, for the record.
    by: Option<String>,
    /// A position, `"beginning"`, `"latest"`, `{"time": "…"}` or `{"sequence_number": n}`.
    to: serde_json::Value,
}

/// The position from which a handler gets events again, and the reason.
#[derive(ToSchema)]
pub(crate) struct HandlerReplay {
    reason: String,
    /// The user who acts, for the record.
    by: Option<String>,
    /// A position, `"beginning"`, `{"time": "…"}` or `{"sequence_number": n}`.
    from: serde_json::Value,
}

/// A page of acts, the newest first.
#[derive(ToSchema)]
pub(crate) struct HandlerActPage {
    items: Vec<HandlerAct>,
    cursor: Option<String>,
}

/// An act on a handler.
#[derive(ToSchema)]
struct HandlerAct {
    id: String,
    /// `pause`, `resume`, `retry`, `skip`, `park`, `move`, `replay`, `delete`, or `clamp` after a restore.
    act: String,
    partition: Option<String>,
    position: Option<u64>,
    from: Option<u64>,
    to: Option<u64>,
    reason: String,
    by: Option<String>,
    at: String,
}
