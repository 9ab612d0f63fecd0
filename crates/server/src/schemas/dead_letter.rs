//! The shapes of dead letters.

use utoipa::ToSchema;

/// An event that a consumer could not process.
#[derive(ToSchema)]
pub(crate) struct DeadLetter {
    id: String,
    /// `event_id`, `event_type`, `timestamp`, `aggregate_id` and so on, with `data` up to 16 KiB.
    event: serde_json::Value,
    original_topic: String,
    /// The group that could not process it.
    group: Option<String>,
    /// The partner that the event was exchanged with.
    partner: Option<String>,
    /// The handler that could not process it.
    handler: Option<String>,
    key: String,
    position: u64,
    sequence_number: u64,
    /// `pending`, `scheduled`, `retried` or `discarded`.
    status: String,
    /// The first error of the consumer.
    error: String,
    /// The last error.
    last_error: Option<String>,
    /// The number of retries of the letter.
    retry_count: u64,
    /// The number of attempts by the consumer.
    attempts: u64,
    /// Whether it waits for an earlier letter of its key.
    follows: bool,
    failed_at: String,
    created_at: String,
    last_updated: Option<String>,
    next_retry_at: Option<String>,
    retried_at: Option<String>,
    discarded_at: Option<String>,
    discard_reason: Option<String>,
    producer_id: String,
    headers: serde_json::Value,
    /// Its history, oldest first.
    history: Vec<LetterHistoryEntry>,
}

/// Something that happened to a dead letter.
#[derive(ToSchema)]
struct LetterHistoryEntry {
    /// `received`, `failed`, `retried`, `discarded`, `retry_asked` or `reopened`.
    what: String,
    at: String,
    reason: Option<String>,
    by: Option<String>,
}

/// A page of dead letters.
#[derive(ToSchema)]
pub(crate) struct DeadLetterPage {
    items: Vec<DeadLetter>,
    cursor: Option<String>,
}

/// An act on many dead letters.
#[derive(ToSchema)]
pub(crate) struct BulkAct {
    /// Open letters that match this condition; not together with `ids`.
    condition: Option<serde_json::Value>,
    /// At most 10,000.
    ids: Option<Vec<String>>,
    reason: String,
    by: Option<String>,
    /// Counts the letters without changing any.
    dry_run: Option<bool>,
}

/// The outcome of an act on many dead letters.
#[derive(ToSchema)]
pub(crate) struct BulkOutcome {
    id: Option<String>,
    dry_run: bool,
    total: u64,
    successful: u64,
    failed: u64,
    /// The first 100 that were selected by id or could not be changed.
    details: Vec<BulkDetail>,
}

/// The outcome for one letter.
#[derive(ToSchema)]
struct BulkDetail {
    id: String,
    /// `success` or `failed`.
    status: String,
    error: Option<String>,
}

/// The number of dead letters.
#[derive(ToSchema)]
pub(crate) struct DeadLetterStatistics {
    /// The number of sagas that have not ended.
    open: u64,
    /// `normal`, `warning` or `critical`.
    level: String,
    warning_above: u64,
    critical_above: u64,
    topics: Vec<TopicLetters>,
}

/// The number of dead letters of a topic.
#[derive(ToSchema)]
struct TopicLetters {
    topic: String,
    total_messages: u64,
    /// By status.
    status_breakdown: serde_json::Value,
    oldest_message: Option<String>,
    newest_message: Option<String>,
    avg_retry_count: f64,
    max_retry_count: u64,
}

/// When dead letters are retried.
#[derive(ToSchema)]
struct LetterPolicy {
    /// `immediate`, `exponential_backoff`, `fixed_interval`, `scheduled` or `manual`.
    strategy: String,
    max_retries: u32,
    base_delay_ms: u64,
    max_delay_ms: u64,
    multiplier: f64,
    jitter: f64,
}

/// A policy for a topic, with the reason.
#[derive(ToSchema)]
pub(crate) struct NewLetterPolicy {
    /// `exponential_backoff` when absent.
    strategy: Option<String>,
    /// 5 when absent.
    max_retries: Option<u32>,
    /// 60,000 when absent.
    base_delay_ms: Option<u64>,
    /// 3,600,000 when absent.
    max_delay_ms: Option<u64>,
    /// 2 when absent.
    multiplier: Option<f64>,
    /// 0.1 when absent.
    jitter: Option<f64>,
    reason: String,
    by: Option<String>,
}

/// The policy of a topic.
#[derive(ToSchema)]
pub(crate) struct LetterPolicyStatus {
    topic: String,
    category: String,
    /// Whether the policy is the topic's own.
    is_override: bool,
    policy: LetterPolicy,
    reason: Option<String>,
    by: Option<String>,
    at: Option<String>,
}

/// A page of policies.
#[derive(ToSchema)]
pub(crate) struct LetterPolicyPage {
    items: Vec<LetterPolicyStatus>,
    cursor: Option<String>,
}
