//! What requests about partners are answered with.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{DeliveryRecord, Ending, EventDirection, EventStatus, PartnerDefinition, PartnerEventRecord};
use crate::{Timestamp, limits};

/// The definition of a partner, without its secrets, and its state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PartnerStatus {
    /// Its id.
    pub partner: String,
    /// The body of its definition. `secrets` is their number.
    #[serde(flatten)]
    pub definition: serde_json::Map<String, Value>,
    /// `running`, `paused`, or `failing` while the breaker lets nothing through.
    pub state: String,
    /// When sending goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
    /// When it was defined first.
    pub defined: Timestamp,
    /// When it was changed last.
    pub changed: Timestamp,
}

impl PartnerStatus {
    /// The status of a partner that has so many secrets.
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
    /// Where the next page begins; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// What a received event is answered with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accepted {
    /// The id of its record.
    pub id: String,
    /// Whether it was received before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repeated: bool,
}

/// Which events of a partner are listed, the newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventsQuery {
    /// Of this direction.
    pub direction: Option<EventDirection>,
    /// In this state.
    pub status: Option<EventStatus>,
    /// Of this type.
    pub event_type: Option<String>,
    /// Of this entity.
    pub entity_id: Option<String>,
    /// Of entities of this kind.
    pub entity_type: Option<String>,
    /// Of this day.
    pub day: Option<i32>,
    /// Only those that are due for an attempt now, the longest first.
    pub due: bool,
    /// Only those that ended so.
    pub ended: Option<Ending>,
    /// At most so many.
    pub limit: usize,
    /// The `cursor` of the page before.
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

/// An event of a partner as it is shown: the fields of its record, and what Annals knows beside them.
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
    /// Where it is on its way.
    pub event_status: EventStatus,
    /// Whom it comes from.
    pub event_direction: EventDirection,
    /// Partner, entity and attempts.
    pub entity_metadata: Value,
    /// What it says.
    pub entity_data: Value,
    /// When it may be deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expire_at: Option<Timestamp>,
    /// When it was recorded, in milliseconds since 1970-01-01.
    pub created: String,
    /// Who recorded it.
    #[serde(rename = "createdBy")]
    pub created_by: String,
    /// When it changed last, in milliseconds since 1970-01-01.
    #[serde(rename = "lastUpdatedTime")]
    pub last_updated_time: String,
    /// How it became final: `success`, `exhausted`, `refused` or `cancelled`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Ending>,
    /// How often it was attempted.
    pub attempts: i32,
    /// When it is attempted next; while it is being attempted, when its lease ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Timestamp>,
    /// Whether it waits for an earlier event of its entity.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub waits: bool,
    /// What the last attempt said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_reason: Option<String>,
    /// The status of the last answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_status: Option<i32>,
    /// The id of the event in the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_id: Option<String>,
    /// Its number in the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence_number: Option<i64>,
    /// The replay that it is of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<String>,
    /// The id that the partner gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook_id: Option<String>,
}

impl PartnerEventView {
    /// The view of a record and, unless other software wrote it, its delivery.
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
            // Of the delivery, as everything below: record and delivery are read one after the other, and may have changed between.
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
    /// How many records the page leaves out because they are not of the layout: other software wrote them.
    #[serde(default, skip_serializing_if = "is_none")]
    pub unreadable: usize,
    /// Where the next page begins; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

fn is_none(count: &usize) -> bool {
    *count == 0
}

/// How many events are in each state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Not attempted yet.
    pub pending: u64,
    /// Being attempted.
    pub processing: u64,
    /// Delivered, or committed.
    pub success: u64,
    /// Failed; some are attempted again.
    pub failed: u64,
    /// Failed as often as they may; part of `failed`.
    pub exhausted: u64,
    /// Cannot succeed as they are; part of `failed`.
    pub refused: u64,
    /// Ended by an operator; part of `failed`.
    pub cancelled: u64,
}

/// The events of a partner in numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PartnerStatistics {
    /// The partner.
    pub partner: String,
    /// All events.
    pub total: u64,
    /// The share of the final events that succeeded; none while there are none.
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
    /// The statistics of a partner with these counts.
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
    /// The first number.
    pub from: u64,
    /// The number after the last.
    pub to: u64,
}
