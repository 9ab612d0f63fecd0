//! What Annals stores about a partner event apart from its record: when it is due, whether it is being attempted, and its origin.
//!
//! It is a separate record, so that `partner_events` contains nothing but its own layout. Both change in one batch.

use bson::DateTime;
use bson::oid::ObjectId;
use serde::{Deserialize, Serialize};

use super::{EventDirection, EventStatus};
use crate::order::Direction;
use crate::{Condition, Index, RecordQuery, RecordType, Timestamp};

/// The collection of deliveries.
pub const DELIVERIES: &str = "annals-partner-deliveries";

/// How an event became final.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// It was delivered or committed.
    Success,
    /// All of its attempts failed.
    Exhausted,
    /// It cannot succeed as it is.
    Refused,
    /// An operator ended it.
    Cancelled,
}

impl Ending {
    /// All endings.
    pub const ALL: &'static [Self] = &[Self::Success, Self::Exhausted, Self::Refused, Self::Cancelled];

    /// Returns the ending as it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Exhausted => "exhausted",
            Self::Refused => "refused",
            Self::Cancelled => "cancelled",
        }
    }
}

/// The event of the log from which an OUT event was created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// Its id.
    #[serde(rename = "eventId")]
    pub event_id: String,
    /// Its sequence number.
    #[serde(rename = "sequenceNumber")]
    pub sequence_number: i64,
    /// The version of its aggregate.
    pub version: i64,
    /// When it happened.
    pub time: DateTime,
    /// The correlation of its commit.
    #[serde(rename = "correlationId", default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
}

/// A delivery as it is stored.
///
/// INVARIANT: of the open deliveries of one lane and entity, at least one has a due time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeliveryRecord {
    /// Direction, partner, and the id of the event in the log or of the partner's request. It makes recording idempotent.
    #[serde(rename = "_id")]
    pub key: String,
    /// The record of the event.
    pub event: ObjectId,
    /// Direction and partner.
    pub lane: String,
    /// The partner.
    pub partner: String,
    /// Kind and id of the entity.
    pub entity: String,
    /// Its rank among the events of its entity.
    pub order: i64,
    /// When it is next attempted. While it is being attempted, when its lease ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<DateTime>,
    /// Whether it is not final yet.
    pub open: bool,
    /// Whether it waits for an earlier event of its entity.
    #[serde(default)]
    pub waits: bool,
    /// Whether it waits for no other event, because an operator resent it.
    #[serde(default)]
    pub alone: bool,
    /// Whether it is being attempted, under a lease that ends at `due`.
    #[serde(default)]
    pub leased: bool,
    /// The number of attempts.
    pub attempt: i32,
    /// The number of attempts before it was resent.
    pub earlier: i32,
    /// How it became final.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Ending>,
    /// The reason that the last attempt gave.
    #[serde(rename = "lastReason", default, skip_serializing_if = "Option::is_none")]
    pub last_reason: Option<String>,
    /// The status of the last response.
    #[serde(rename = "lastStatus", default, skip_serializing_if = "Option::is_none")]
    pub last_status: Option<i32>,
    /// The event of the log; `None` for an event from a partner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// The replay to which it belongs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<String>,
    /// The digest of the received body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The id that the partner gave the event.
    #[serde(rename = "webhookId", default, skip_serializing_if = "Option::is_none")]
    pub webhook_id: Option<String>,
    /// The key that it shares with events that count as the same, if not only the ids count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same: Option<String>,
    /// When it may be deleted, with its event.
    #[serde(rename = "expireAt", default, skip_serializing_if = "Option::is_none")]
    pub expire_at: Option<DateTime>,
}

impl RecordType for DeliveryRecord {
    const COLLECTION: &'static str = DELIVERIES;

    fn indexes() -> Vec<Index> {
        let up = Direction::Ascending;
        vec![
            Index::on("event").unique().into(),
            Index::ordered([("lane", up), ("due", up)]).into(),
            Index::ordered([("lane", up), ("entity", up), ("open", up), ("order", up)]).into(),
            Index::on("expireAt").expires_after_seconds(0).into(),
            Index::on("same").unique().sparse().into(),
            Index::ordered([("ended", up), ("lane", up)]).partial(Self::failed()).into(),
        ]
    }
}

impl DeliveryRecord {
    /// Returns the lane of a direction and partner. Lanes are processed independently.
    pub fn lane_of(direction: EventDirection, partner: &str) -> String {
        format!("{}/{partner}", direction.as_str())
    }

    /// Returns the key of an event of the log, or of its replay.
    pub fn key_out(partner: &str, event_id: &str, replay: Option<&str>) -> String {
        match replay {
            None => format!("OUT/{partner}/{event_id}"),
            Some(replay) => format!("OUT/{partner}/{event_id}/{replay}"),
        }
    }

    /// Returns the key of an event from a partner.
    pub fn key_in(partner: &str, webhook_id: &str) -> String {
        format!("IN/{partner}/{webhook_id}")
    }

    /// Returns the status of the event's record, which changes in the same batch as the delivery.
    pub fn status(&self) -> EventStatus {
        match self.ended {
            _ if self.leased => EventStatus::Processing,
            Some(Ending::Success) => EventStatus::Success,
            Some(_) => EventStatus::Failed,
            None if self.attempt == self.earlier => EventStatus::Pending,
            None => EventStatus::Failed,
        }
    }

    /// Creates a delivery that is due now.
    pub fn new(key: String, event: ObjectId, direction: EventDirection, partner: &str, now: Timestamp) -> Self {
        Self {
            key,
            event,
            lane: Self::lane_of(direction, partner),
            partner: partner.to_owned(),
            entity: String::new(),
            order: 0,
            due: Some(date(now)),
            open: true,
            waits: false,
            alone: false,
            leased: false,
            attempt: 0,
            earlier: 0,
            ended: None,
            last_reason: None,
            last_status: None,
            source: None,
            replay: None,
            digest: None,
            webhook_id: None,
            same: None,
            expire_at: None,
        }
    }

    /// Matches the deliveries of a lane that have a due time.
    pub fn due_in(lane: &str) -> Condition {
        Condition::and([Condition::eq("lane", lane), Condition::gte("due", DateTime::from_millis(0))])
    }

    /// Matches the deliveries that failed for the last time and were not resent or cancelled since.
    pub fn failed() -> Condition {
        Condition::is_in("ended", [Ending::Exhausted.as_str(), Ending::Refused.as_str()])
    }

    /// Finds the deliveries that failed for the last time.
    pub fn failures() -> RecordQuery {
        RecordQuery::new(DELIVERIES).matching(Self::failed())
    }

    /// Matches the open deliveries of an entity in a lane.
    pub fn open_of(lane: &str, entity: &str) -> Condition {
        Condition::and([Condition::eq("lane", lane), Condition::eq("entity", entity), Condition::eq("open", true)])
    }

    /// Matches the delivery if it has not changed since it was read.
    pub fn unchanged(&self) -> Condition {
        let due = match self.due {
            Some(due) => Condition::eq("due", due),
            None => Condition::missing("due"),
        };
        Condition::and([due, Condition::eq("attempt", self.attempt), Condition::eq("open", self.open)])
    }

    /// Returns when it is due.
    pub fn due_at(&self) -> Option<Timestamp> {
        self.due.map(|due| Timestamp::from_millis(due.timestamp_millis()))
    }

    /// Returns whether it is being attempted and its lease has not ended.
    pub fn is_claimed(&self, now: Timestamp) -> bool {
        self.leased && self.due_at().is_some_and(|until| until > now)
    }
}

pub(super) fn date(time: Timestamp) -> DateTime {
    DateTime::from_millis(time.as_millis())
}
