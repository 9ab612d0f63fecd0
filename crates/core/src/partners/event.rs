//! The record of a partner event, in the layout of `partner_events`, which other software reads and writes.

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document};
use serde::{Deserialize, Serialize};

use crate::order::Direction;
use crate::{Condition, Index, RecordType, Timestamp};

/// The collection of partner events.
pub const PARTNER_EVENTS: &str = "partner_events";
/// The collection of copies of final events.
pub const PARTNER_EVENTS_ARCHIVE: &str = "partner_events_archive";
/// Milliseconds per day.
const DAY_MS: i64 = 24 * 60 * 60 * 1_000;

/// Returns a time as the layout stores it: milliseconds since 1970-01-01 UTC as text. Texts of 13 digits sort as their times do, so a time
/// of a clock that is far behind is filled with zeros.
pub fn epoch_millis(time: Timestamp) -> String {
    format!("{:013}", time.as_millis())
}

/// The status of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum EventStatus {
    /// It has not been attempted, or it was resent and not attempted since.
    Pending,
    /// It is being attempted.
    Processing,
    /// It was delivered or committed.
    Success,
    /// Its last attempt failed; it may be attempted again.
    Failed,
}

/// The direction of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum EventDirection {
    /// From the partner.
    In,
    /// To the partner.
    Out,
}

macro_rules! texts {
    ($type:ident: $($variant:ident $text:literal)+) => {
        impl $type {
            /// All values.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Returns the value as it is stored.
            pub const fn as_str(self) -> &'static str { match self { $(Self::$variant => $text,)+ } }
        }
    };
}

texts! { EventStatus: Pending "PENDING" Processing "PROCESSING" Success "SUCCESS" Failed "FAILED" }
texts! { EventDirection: In "IN" Out "OUT" }

/// A partner event as it is stored. Audit fields, direction and version are always present; `entity_data` has any shape.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PartnerEventRecord {
    /// Its id, which is also the id of its deliveries.
    #[serde(rename = "_id")]
    pub id: ObjectId,
    /// The day on which it was recorded: days since 1970-01-01 UTC.
    pub event_day_id: i32,
    /// The version of its schema, such as `v1`.
    pub event_version: String,
    /// Its type.
    pub event_type: String,
    /// Its status.
    pub event_status: EventStatus,
    /// Its direction.
    pub event_direction: EventDirection,
    /// Its partner, its entity and its attempts.
    pub entity_metadata: EntityMetadata,
    /// Its data.
    pub entity_data: Bson,
    /// When it may be deleted: a date, because MongoDB's TTL indexes require one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expire_at: Option<DateTime>,
    /// When it was recorded: milliseconds since 1970-01-01 UTC, as text.
    pub created: String,
    /// The author of the record: the partner's id, or `annals`.
    #[serde(rename = "createdBy")]
    pub created_by: String,
    /// When it last changed: milliseconds since 1970-01-01 UTC, as text.
    #[serde(rename = "lastUpdatedTime")]
    pub last_updated_time: String,
}

/// The partner and the entity of an event, and its attempts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EntityMetadata {
    /// The partner's id.
    #[serde(rename = "partnerId")]
    pub partner_id: String,
    /// The partner's name.
    #[serde(rename = "partnerName")]
    pub partner_name: String,
    /// The id of the entity.
    pub entity_id: String,
    /// The kind of the entity.
    pub entity_type: String,
    /// The time of each attempt by its number, from "1": milliseconds since 1970-01-01 UTC, as text.
    #[serde(rename = "resilienceAttemptCount", default)]
    pub attempts: Document,
}

impl RecordType for PartnerEventRecord {
    const COLLECTION: &'static str = PARTNER_EVENTS;

    fn indexes() -> Vec<Index> {
        let (up, down) = (Direction::Ascending, Direction::Descending);
        vec![
            Index::ordered([("entity_metadata.partnerId", up), ("created", down)]).into(),
            Index::ordered([("event_status", up), ("event_type", up)]).into(),
            Index::on("expire_at").expires_after_seconds(0).into(),
            Index::ordered([("entity_metadata.entity_id", up), ("entity_metadata.entity_type", up)]).into(),
        ]
    }
}

/// The copy of a final event, which does not expire.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArchivedPartnerEvent {
    /// The record at the time when it became final.
    #[serde(flatten)]
    pub event: PartnerEventRecord,
    /// When it was copied.
    pub archived_at: DateTime,
}

impl RecordType for ArchivedPartnerEvent {
    const COLLECTION: &'static str = PARTNER_EVENTS_ARCHIVE;

    fn indexes() -> Vec<Index> {
        let (up, down) = (Direction::Ascending, Direction::Descending);
        vec![
            Index::ordered([("entity_metadata.partnerId", up), ("created", down)]).into(),
            Index::ordered([("entity_metadata.entity_id", up), ("entity_metadata.entity_type", up)]).into(),
        ]
    }
}

/// A partner event that is to be recorded.
#[derive(Debug, Clone, PartialEq)]
pub struct NewPartnerEvent {
    /// Its direction.
    pub direction: EventDirection,
    /// The version of its schema.
    pub version: String,
    /// Its type.
    pub event_type: String,
    /// The partner's id and name.
    pub partner: (String, String),
    /// The entity's id and kind.
    pub entity: (String, String),
    /// Its data.
    pub data: Bson,
    /// The author of the record.
    pub by: String,
}

impl NewPartnerEvent {
    /// Returns the record of the event at this time, without any attempt.
    pub fn record(self, now: Timestamp, random: u128) -> PartnerEventRecord {
        let millis = now.as_millis();
        let seconds = u32::try_from(millis.div_euclid(1_000).max(0)).unwrap_or(u32::MAX);
        let mut id = [0; 12];
        id[..4].copy_from_slice(&seconds.to_be_bytes());
        id[4..].copy_from_slice(&random.to_be_bytes()[8..]);
        PartnerEventRecord {
            id: ObjectId::from_bytes(id),
            event_day_id: i32::try_from(millis.div_euclid(DAY_MS)).unwrap_or(i32::MAX),
            event_version: self.version,
            event_type: self.event_type,
            event_status: EventStatus::Pending,
            event_direction: self.direction,
            entity_metadata: EntityMetadata {
                partner_id: self.partner.0,
                partner_name: self.partner.1,
                entity_id: self.entity.0,
                entity_type: self.entity.1,
                attempts: Document::new(),
            },
            entity_data: self.data,
            expire_at: None,
            created: epoch_millis(now),
            created_by: self.by,
            last_updated_time: epoch_millis(now),
        }
    }
}

impl PartnerEventRecord {
    /// Matches the layout's candidates for a retry: those that failed fewer than five times, whether or not they are due.
    pub fn retry_candidates() -> Condition {
        Condition::and([
            Condition::eq("event_status", EventStatus::Failed.as_str()),
            Condition::missing("entity_metadata.resilienceAttemptCount.5"),
        ])
    }

    /// Returns when it was recorded.
    pub fn created_at(&self) -> Timestamp {
        Timestamp::from_millis(self.created.parse().unwrap_or(0))
    }

    /// Returns the path of an attempt.
    pub fn attempt_path(attempt: i32) -> String {
        format!("entity_metadata.resilienceAttemptCount.{attempt}")
    }
}

#[cfg(test)]
mod tests {
    use bson::{RawDocumentBuf, doc};

    use super::*;

    fn document() -> Document {
        doc! {
            "_id": ObjectId::parse_str("62a9c38946e0fb00017f6bbb").expect("an id"),
            "event_day_id": 2723, "event_version": "v2", "event_type": "OR_MGMT", "event_status": "FAILED", "event_direction": "IN",
            "entity_metadata": {
                "partnerId": "6231cfc8800d284c981b3146", "partnerName": "ExamplePartner", "entity_id": "order-12345",
                "entity_type": "Order",
                "resilienceAttemptCount": { "1": "1655292809853", "2": "1655292814919", "3": "1655292824964" },
            },
            "entity_data": { "orderId": 59734, "orderStatusLatest": "OR_PLC" },
            "expire_at": DateTime::from_millis(1_655_292_885_102),
            "created": "1655292885101", "createdBy": "624acf127ad1c76470951dff", "lastUpdatedTime": "1655292885101",
        }
    }

    fn read(document: &Document) -> Result<PartnerEventRecord, bson::error::Error> {
        bson::deserialize_from_slice(RawDocumentBuf::try_from(document)?.as_bytes())
    }

    /// The example of the layout's description.
    #[test]
    fn a_record_of_other_software_is_read_and_written_as_it_is() {
        let record = read(&document()).expect("a record");
        let written = bson::serialize_to_raw_document_buf(&record).expect("a document");
        assert_eq!(Document::try_from(&*written).expect("a document"), document());
    }

    #[test]
    fn statement_108_a_record_without_audit_fields_direction_or_version_is_rejected_and_data_of_any_shape_accepted() {
        for field in ["created", "createdBy", "lastUpdatedTime", "event_direction", "event_version", "event_status"] {
            let mut without = document();
            without.remove(field);
            assert!(read(&without).is_err(), "{field}");
        }
        for data in [Bson::Null, 7.into(), "text".into(), vec![Bson::Null].into(), doc! { "a.$b": [{}] }.into()] {
            let mut other = document();
            other.insert("entity_data", data.clone());
            assert_eq!(read(&other).expect("any shape").entity_data, data);
        }
    }

    #[test]
    fn statement_107_an_expiry_that_is_text_is_rejected() {
        let mut text = document();
        text.insert("expire_at", "2022-06-15T11:34:45.102Z");
        assert!(read(&text).is_err());
    }

    #[test]
    fn a_new_record_has_every_audit_field_and_a_day_since_1970() {
        let new = NewPartnerEvent {
            direction: EventDirection::Out,
            version: "v1".into(),
            event_type: "placed".into(),
            partner: ("p".into(), "Example".into()),
            entity: ("o-1".into(), "order".into()),
            data: Bson::Document(doc! {}),
            by: "annals".into(),
        };
        let record = new.record(Timestamp::from_millis(1_655_292_885_101), 7);
        assert_eq!((record.event_day_id, &*record.created, &*record.created_by), (19_158, "1655292885101", "annals"));
        assert_eq!(record.id.timestamp().timestamp_millis(), 1_655_292_885_000);
        assert_eq!(record.last_updated_time, record.created);
    }

    #[test]
    fn times_are_texts_that_sort_as_they_do() {
        let times =
            [0, 999, 999_999_999_999, 1_655_292_885_101].map(|millis| epoch_millis(Timestamp::from_millis(millis)));
        assert!(times.is_sorted() && times.iter().all(|text| text.len() == 13), "{times:?}");
        assert_eq!(times[3], "1655292885101");
    }

    #[test]
    fn the_layout_has_four_indexes_by_name_and_order() {
        let (up, down) = (Direction::Ascending, Direction::Descending);
        let due = [
            ("entity_metadata.partnerId_1_created_-1", vec![("entity_metadata.partnerId", up), ("created", down)]),
            ("event_status_1_event_type_1", vec![("event_status", up), ("event_type", up)]),
            ("expire_at_1", vec![("expire_at", up)]),
            (
                "entity_metadata.entity_id_1_entity_metadata.entity_type_1",
                vec![("entity_metadata.entity_id", up), ("entity_metadata.entity_type", up)],
            ),
        ];
        let indexes = PartnerEventRecord::indexes();
        let declared: Vec<_> = indexes.iter().map(|index| (index.name(), index.fields())).collect();
        assert_eq!(declared, due);
        let expiring: Vec<_> = indexes.iter().map(Index::expires_after_seconds).collect();
        assert_eq!(expiring, [None, None, Some(0), None]);
    }
}
