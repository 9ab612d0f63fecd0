//! Partners and their events.

use utoipa::ToSchema;

/// The definition of a partner.
#[derive(ToSchema)]
pub(crate) struct NewPartner {
    /// Its name for people.
    name: String,
    /// The URL to which its events are posted.
    url: Option<String>,
    /// The signing secrets, newest first: `whsec_` and base64. Without them, an existing partner keeps its own. They are never returned.
    secrets: Option<Vec<String>>,
    /// The condition of the events that are sent to the partner; without it none are sent.
    #[schema(value_type = Option<Object>)]
    select: Option<serde_json::Value>,
    /// `latest`, `beginning` or `{"sequence_number": n}`: where selecting begins when the partner is new.
    start: Option<serde_json::Value>,
    /// `cloudevents` or `record`.
    format: Option<String>,
    receive: Option<PartnerReceive>,
    limits: Option<PartnerLimits>,
    /// How long events that succeeded or were cancelled are kept; forever when absent.
    retention_days: Option<u32>,
    /// `none`, or `collection`: where a copy of them is kept before they may be deleted.
    archive: Option<String>,
    /// Whether sending to it is paused.
    paused: Option<bool>,
}

/// What becomes of the events that a partner sends.
#[derive(ToSchema)]
pub(crate) struct PartnerReceive {
    /// The name of the aggregates to which they are committed.
    aggregate: Option<String>,
    /// The type of the committed event; that of the received one when absent.
    event_type: Option<String>,
    /// `webhook_id`, `content` or `entity`: how repeated events are recognised.
    deduplicate: Option<String>,
}

/// The limits of a partner.
#[derive(ToSchema)]
pub(crate) struct PartnerLimits {
    /// The maximum number of attempts in flight.
    concurrency: Option<u32>,
    /// The longest duration of an attempt.
    timeout_ms: Option<u32>,
    /// The maximum size of a received body, in bytes.
    body_bytes: Option<u32>,
    /// The number of consecutive failures after which sending is suspended for a while.
    breaker_failures: Option<u32>,
    /// For how long.
    breaker_ms: Option<u32>,
}

/// A partner, without its secrets.
#[derive(ToSchema)]
pub(crate) struct Partner {
    partner: String,
    name: String,
    url: Option<String>,
    /// The number of its secrets.
    secrets: u32,
    #[schema(value_type = Option<Object>)]
    select: Option<serde_json::Value>,
    start: serde_json::Value,
    format: String,
    receive: PartnerReceive,
    limits: PartnerLimits,
    retention_days: Option<u32>,
    archive: String,
    paused: bool,
    /// `running`, `paused`, or `failing` while nothing is sent because of failures.
    state: String,
    retry_at: Option<String>,
    defined: String,
    changed: String,
}

/// A page of partners.
#[derive(ToSchema)]
pub(crate) struct PartnerPage {
    items: Vec<Partner>,
    cursor: Option<String>,
}

/// A message of a partner: a CloudEvent, a record of the layout, or any other object.
#[derive(ToSchema)]
#[schema(value_type = Object)]
pub(crate) struct ReceivedEvent(());

/// The response to a received event.
#[derive(ToSchema)]
pub(crate) struct Accepted {
    /// The id of its record.
    id: String,
    repeated: Option<bool>,
}

/// An event of a partner.
#[derive(ToSchema)]
pub(crate) struct PartnerEvent {
    /// The id of its record, and the `webhook-id` of its deliveries.
    id: String,
    /// Days since 1970-01-01.
    event_day_id: i32,
    event_version: String,
    event_type: String,
    /// `PENDING`, `PROCESSING`, `SUCCESS` or `FAILED`.
    event_status: String,
    /// `IN` or `OUT`.
    event_direction: String,
    entity_metadata: PartnerEntity,
    /// What it says, of any shape.
    entity_data: serde_json::Value,
    expire_at: Option<String>,
    /// Milliseconds since 1970-01-01, as text.
    created: String,
    #[schema(rename = "createdBy")]
    created_by: String,
    #[schema(rename = "lastUpdatedTime")]
    last_updated_time: String,
    /// `success`, `exhausted`, `refused` or `cancelled`, once it is final.
    ended: Option<String>,
    /// The number of its attempts.
    attempts: i32,
    due_at: Option<String>,
    /// Whether it waits for an earlier event of its entity.
    waits: Option<bool>,
    last_reason: Option<String>,
    last_status: Option<i32>,
    event_id: Option<String>,
    sequence_number: Option<i64>,
    replay: Option<String>,
    webhook_id: Option<String>,
}

/// Partner, entity and attempts of an event.
#[derive(ToSchema)]
pub(crate) struct PartnerEntity {
    #[schema(rename = "partnerId")]
    partner_id: String,
    #[schema(rename = "partnerName")]
    partner_name: String,
    entity_id: String,
    entity_type: String,
    /// The time of each attempt by its number, in milliseconds since 1970-01-01, as text.
    #[schema(rename = "resilienceAttemptCount", value_type = Object)]
    attempts: serde_json::Value,
}

/// A page of events.
#[derive(ToSchema)]
pub(crate) struct PartnerEventPage {
    items: Vec<PartnerEvent>,
    /// The number of records that the page omits because they do not match the layout.
    unreadable: Option<u32>,
    cursor: Option<String>,
}

/// The number of events in each state.
#[derive(ToSchema)]
pub(crate) struct PartnerCounts {
    pending: u64,
    processing: u64,
    success: u64,
    failed: u64,
    /// Events that used up their attempts; part of `failed`.
    exhausted: u64,
    /// Events that cannot succeed as they are; part of `failed`.
    refused: u64,
    /// Events that an operator cancelled; part of `failed`.
    cancelled: u64,
}

/// The events of a partner in numbers.
#[derive(ToSchema)]
pub(crate) struct PartnerStatistics {
    partner: String,
    total: u64,
    /// The share of the final events that succeeded; null while there are none.
    success_rate: Option<f64>,
    r#in: PartnerCounts,
    out: PartnerCounts,
}

/// A range of the log whose events are sent again.
#[derive(ToSchema)]
pub(crate) struct NewPartnerReplay {
    /// The first number; 0 when absent.
    from: Option<u64>,
    /// The number after the last; the head when absent.
    to: Option<u64>,
    /// The reason, for the record.
    reason: String,
    /// The user, for the record.
    by: Option<String>,
}

/// A replay that has started.
#[derive(ToSchema)]
pub(crate) struct PartnerReplay {
    id: String,
    from: u64,
    to: u64,
}
