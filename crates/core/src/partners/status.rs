//! Responses to requests about partners.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{DeliveryRecord, Ending, EventDirection, EventStatus, PartnerDefinition, PartnerEventRecord};
use crate::{Timestamp, limits};

/// The definition of a partner, without its secrets, and its state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PartnerStatus {
    /// Its id.
    pub partner: String,
    /// The body of its definition. `secrets` is the number of secrets.
    #[serde(flatten)]
    pub definition: serde_json::Map<String, Value>,
    /// `running`, `paused`, or `failing` while the breaker is open.
    pub state: String,
    /// When sending resumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
    /// When it was first defined.
    pub defined: Timestamp,
    /// When it was last changed.
    pub changed: Timestamp,
}

impl PartnerStatus {
    /// Returns the status of a partner with this number of secrets.
    pub fn of(definition: &PartnerDefinition, secrets: usize, times: (Timestamp, Timestamp)) -> Self {
        let mut body: serde_json::Map<String, Value> = serde_json::from_str(&definition.shown()).unwrap_or_default();
        body.insert("secrets".to_owned(), secrets.into());
        let state = if definition.paused { "paused" } else { "running" };
        Self {
            partner: definition.id.to_string(),
            definition: body,
            state: state.to_owned(),
            retry_at: None,
            defined: times.0,
            changed: times.1,
        }
    }
}

/// A page of partners.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PartnerPage {
    /// The partners.
    pub items: Vec<PartnerStatus>,
    /// The cursor of the next page; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// The response to a received event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accepted {
    /// The id of its record.
    pub id: String,
    /// Whether it had been received before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repeated: bool,
}

/// Selects the events of a partner that are listed, newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventsQuery {
    /// Only events in this direction.
    pub direction: Option<EventDirection>,
    /// Only events with this status.
    pub status: Option<EventStatus>,
    /// Only events of this type.
    pub event_type: Option<String>,
    /// Only events of the entity with this id.
    pub entity_id: Option<String>,
    /// Only events of entities of this kind.
    pub entity_type: Option<String>,
    /// Only events recorded on this day.
    pub day: Option<i32>,
    /// Only events that are due now, the longest overdue first.
    pub due: bool,
    /// Only events with this ending.
    pub ended: Option<Ending>,
    /// The most events to return.
    pub limit: usize,
    /// The `cursor` of the previous page.
    pub cursor: Option<String>,
}

impl Default for EventsQuery {
    fn default() -> Self {
        Self {
            direction: None,
            status: None,
            event_type: None,
            entity_id: None,
            entity_type: None,
            day: None,
            due: false,
            ended: None,
            limit: limits::PAGE_DEFAULT,
            cursor: None,
        }
    }
}

/// An event of a partner as it is shown: the fields of its record and of its delivery.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PartnerEventView {
    /// The id of its record, which is the `webhook-id` of its deliveries.
    pub id: String,
    /// The day on which it was recorded: days since 1970-01-01.
    pub event_day_id: i32,
    /// The version of its schema.
    pub event_version: String,
    /// Its type.
    pub event_type: String,
    /// Its status.
    pub event_status: EventStatus,
    /// Its direction.
    pub event_direction: EventDirection,
    /// Its partner, entity and attempts.
    pub entity_metadata: Value,
    /// Its data.
    pub entity_data: Value,
    /// When it may be deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expire_at: Option<Timestamp>,
    /// When it was recorded, in milliseconds since 1970-01-01.
    pub created: String,
    /// The author of the record.
    #[serde(rename = "createdBy")]
    pub created_by: String,
    /// When it last changed, in milliseconds since 1970-01-01.
    #[serde(rename = "lastUpdatedTime")]
    pub last_updated_time: String,
    /// How it became final: `success`, `exhausted`, `refused` or `cancelled`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Ending>,
    /// The number of attempts.
    pub attempts: i32,
    /// When it is next attempted. While it is being attempted, when its lease ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Timestamp>,
    /// Whether it waits for an earlier event of its entity.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub waits: bool,
    /// The reason that the last attempt gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_reason: Option<String>,
    /// The status of the last response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_status: Option<i32>,
    /// The id of the event in the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_id: Option<String>,
    /// Its sequence number in the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence_number: Option<i64>,
    /// The replay to which it belongs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<String>,
    /// The id that the partner gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook_id: Option<String>,
}

impl PartnerEventView {
    /// Returns the view of a record and, unless other software wrote it, its delivery.
    pub fn of(event: PartnerEventRecord, delivery: Option<DeliveryRecord>) -> Self {
        let entity = &event.entity_metadata;
        let entity_metadata = serde_json::json!({
            "partnerId": entity.partner_id,
            "partnerName": entity.partner_name,
            "entity_id": entity.entity_id,
            "entity_type": entity.entity_type,
            "resilienceAttemptCount": bson::Bson::Document(entity.attempts.clone()).into_relaxed_extjson(),
        });
        let made = i32::try_from(entity.attempts.len()).unwrap_or(i32::MAX);
        let known = delivery.as_ref();
        Self {
            id: event.id.to_hex(),
            event_day_id: event.event_day_id,
            event_version: event.event_version,
            event_type: event.event_type,
            // This and everything below is taken from the delivery. Record and delivery are read one after the other, so either may have
            // changed in between.
            event_status: known.map_or(event.event_status, DeliveryRecord::status),
            event_direction: event.event_direction,
            entity_metadata,
            entity_data: event.entity_data.into_relaxed_extjson(),
            expire_at: event.expire_at.map(|at| Timestamp::from_millis(at.timestamp_millis())),
            created: event.created,
            created_by: event.created_by,
            last_updated_time: event.last_updated_time,
            ended: known.and_then(|delivery| delivery.ended),
            attempts: known.map_or(made, |delivery| delivery.attempt),
            due_at: known.filter(|delivery| delivery.open).and_then(DeliveryRecord::due_at),
            waits: known.is_some_and(|delivery| delivery.waits),
            last_reason: known.and_then(|delivery| delivery.last_reason.clone()),
            last_status: known.and_then(|delivery| delivery.last_status),
            event_id: known.and_then(|delivery| Some(delivery.source.as_ref()?.event_id.clone())),
            sequence_number: known.and_then(|delivery| Some(delivery.source.as_ref()?.sequence_number)),
            replay: known.and_then(|delivery| delivery.replay.clone()),
            webhook_id: known.and_then(|delivery| delivery.webhook_id.clone()),
        }
    }
}

/// A page of events.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PartnerEventPage {
    /// The events.
    pub items: Vec<PartnerEventView>,
    /// How many records the page leaves out because other software wrote them in another layout.
    #[serde(default, skip_serializing_if = "is_none")]
    pub unreadable: usize,
    /// The cursor of the next page; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

fn is_none(count: &usize) -> bool {
    *count == 0
}

/// The number of events in each state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Not yet attempted.
    pub pending: u64,
    /// Being attempted.
    pub processing: u64,
    /// Delivered or committed.
    pub success: u64,
    /// Failed; some of them are attempted again.
    pub failed: u64,
    /// All attempts failed; part of `failed`.
    pub exhausted: u64,
    /// Cannot succeed as they are; part of `failed`.
    pub refused: u64,
    /// Ended by an operator; part of `failed`.
    pub cancelled: u64,
}

/// Statistics of the events of a partner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PartnerStatistics {
    /// The partner.
    pub partner: String,
    /// All events.
    pub total: u64,
    /// The share of final events that succeeded; `None` if there are none.
    pub success_rate: Option<f64>,
    /// Events from the partner.
    #[serde(rename = "in")]
    pub received: Counts,
    /// Events to the partner.
    pub out: Counts,
}

impl Counts {
    fn total(&self) -> u64 {
        self.pending + self.processing + self.success + self.failed
    }

    fn ended(&self) -> u64 {
        self.success + self.exhausted + self.refused + self.cancelled
    }
}

impl PartnerStatistics {
    /// Returns the statistics of a partner with these counts.
    pub fn of(partner: &str, received: Counts, out: Counts) -> Self {
        let ended = received.ended() + out.ended();
        let success = received.success + out.success;
        Self {
            partner: partner.to_owned(),
            total: received.total() + out.total(),
            success_rate: (ended > 0).then(|| success as f64 / ended as f64),
            received,
            out,
        }
    }
}

/// A replay that has begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayStarted {
    /// Its id, which its deliveries carry.
    pub id: String,
    /// The first sequence number.
    pub from: u64,
    /// The sequence number after the last.
    pub to: u64,
}
