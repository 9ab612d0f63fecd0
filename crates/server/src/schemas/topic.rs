//! The shapes of topics and consumer groups.

use utoipa::ToSchema;

use super::handler::{HandlerReplayStatus, HandlerRetry, HandlerWorker};

/// A topic.
#[derive(ToSchema)]
pub(crate) struct TopicStatus {
    name: String,
    /// The event type of its messages.
    event_type: String,
    category: String,
    partitions: u32,
    /// How long its messages are kept; null keeps them forever.
    retention_ms: Option<u64>,
    /// The head of each partition.
    head: Vec<u64>,
    /// The groups that read it; empty in lists.
    groups: Vec<TopicGroup>,
    /// The differences from its configuration.
    differences: Vec<TopicDifference>,
}

/// A group that reads a topic.
#[derive(ToSchema)]
struct TopicGroup {
    group: String,
    /// The number of messages of the topic that it has not processed; counted up to 10,000.
    lag: u64,
}

/// The actual and the configured value of a topic's setting.
#[derive(ToSchema)]
struct TopicDifference {
    /// `partitions` or `retention_ms`.
    setting: String,
    actual: Option<u64>,
    wanted: Option<u64>,
    warning: Option<String>,
    /// Whether it can be applied.
    applicable: bool,
}

/// A page of topics.
#[derive(ToSchema)]
pub(crate) struct TopicPage {
    items: Vec<TopicStatus>,
    cursor: Option<String>,
}

/// A consumer group.
#[derive(ToSchema)]
pub(crate) struct GroupDefinition {
    /// The event types of its topics, at least one.
    topics: Vec<String>,
    /// `earliest`, the default, or `latest`.
    start: Option<String>,
    /// The maximum number of keys in flight, 1–256; 16 when absent.
    in_flight: Option<u32>,
    retry: Option<HandlerRetry>,
    dead_letters: Option<LetterSettings>,
    /// What makes two messages the same, so that one of them is delivered: `event_id`, `content`, `{"field": "data.PATH"}` or
    /// `{"fields": ["data.PATH"]}`.
    guard: Option<serde_json::Value>,
    /// How long a processed one is remembered, in seconds; 3600 when absent.
    guard_seconds: Option<u64>,
}

/// What becomes of a consumer's dead letters.
#[derive(ToSchema)]
pub(super) struct LetterSettings {
    /// `wait`, the default of groups: later events of a key wait for its dead letter; or `pass`.
    order: Option<String>,
    /// The number of consecutive events that become dead letters before no other does until one succeeds; 10 when absent, 0 for no limit.
    breaker: Option<u32>,
}

/// The state of a consumer group.
#[derive(ToSchema)]
pub(crate) struct GroupStatus {
    name: String,
    topics: Vec<GroupLag>,
    start: String,
    in_flight: u32,
    position: u64,
    head: u64,
    /// The sum over its topics.
    lag: u64,
    lag_seconds: u64,
    last_progress: Option<String>,
    seconds_since_progress: Option<u64>,
    workers: Vec<HandlerWorker>,
    /// The number of failing keys.
    failing: u64,
    blocked: u64,
    parked: u64,
    /// `running`, `paused`, `blocked` or `stopped`.
    state: String,
    last_reason: Option<String>,
    /// The reason why it is unhealthy; absent if it is healthy.
    degraded: Option<String>,
    replay: Option<HandlerReplayStatus>,
    /// The number of messages that the guard has passed as duplicates; absent if there were none.
    duplicates: Option<u64>,
    ended: Option<bool>,
    owner: Option<String>,
    /// The definition as it was put.
    definition: serde_json::Value,
}

/// The lag of a group in a topic.
#[derive(ToSchema)]
struct GroupLag {
    topic: String,
    lag: u64,
}

/// A page of consumer groups.
#[derive(ToSchema)]
#[schema(as = ConsumerGroupPage)]
pub(crate) struct GroupPage {
    items: Vec<GroupStatus>,
    cursor: Option<String>,
}
