//! The rule by which two messages of a group are equivalent: the second one is passed without being delivered.
//!
//! The keys are those of Integr8sCode's idempotency manager: the event, the content, or chosen fields of it.

use bson::DateTime;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::condition::valid_path;
use crate::{Code, Index, Invalid, RecordType, RecordedEvent, Timestamp};

/// The collection of the messages that guarded consumers have processed.
pub const GUARDED: &str = "annals-guarded";
/// The default time for which a consumer remembers what it has processed, in seconds; the same as in Integr8sCode.
pub const GUARD_SECONDS: u64 = 3_600;
/// The maximum of that time: ten years.
const GUARD_SECONDS_MAX: u64 = 10 * 365 * 24 * 60 * 60;
/// The maximum number of fields of a guard.
const FIELDS_MAX: usize = 16;

/// The rule by which two messages of a group are equivalent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Written", try_from = "Written")]
pub enum Guard {
    /// Their events have the same type and id.
    EventId,
    /// Their events have the same type and data; id, time and metadata do not count.
    Content,
    /// Their events have the same type and the same values at these paths of the data. An event without any of these values is not guarded.
    Fields(Vec<String>),
}

/// The JSON form of a guard: `"event_id"`, `"content"`, `{"field": "data.PATH"}` or `{"fields": […]}`.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Named(String),
    Field(OneField),
    Fields(ManyFields),
    Other(Value),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OneField {
    field: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ManyFields {
    fields: Vec<String>,
}

impl From<Guard> for Written {
    fn from(guard: Guard) -> Self {
        match guard {
            Guard::EventId => Self::Named("event_id".to_owned()),
            Guard::Content => Self::Named("content".to_owned()),
            Guard::Fields(mut fields) if fields.len() == 1 => {
                Self::Field(OneField { field: fields.pop().unwrap_or_default() })
            }
            Guard::Fields(fields) => Self::Fields(ManyFields { fields }),
        }
    }
}

impl TryFrom<Written> for Guard {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        match written {
            Written::Named(name) if name == "event_id" => Ok(Self::EventId),
            Written::Named(name) if name == "content" => Ok(Self::Content),
            Written::Field(OneField { field }) => Ok(Self::Fields(vec![field])),
            Written::Fields(ManyFields { fields }) => Ok(Self::Fields(fields)),
            Written::Named(_) | Written::Other(_) => {
                Err("a guard is \"event_id\", \"content\", {\"field\": \"data.PATH\"} or {\"fields\": [\"data.PATH\"]}"
                    .to_owned())
            }
        }
    }
}

/// The guard of a consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardSettings {
    /// The rule by which two messages are equivalent.
    pub by: Guard,
    /// How long the consumer remembers that it processed a message, in seconds.
    pub seconds: u64,
}

impl GuardSettings {
    /// Returns a guard that remembers for an hour.
    pub fn new(by: Guard) -> Self {
        Self { by, seconds: GUARD_SECONDS }
    }

    /// Reads a guard from the two fields of a definition.
    ///
    /// # Errors
    /// `invalid_handler` for a time without a guard.
    pub fn read(by: Option<Guard>, seconds: Option<u64>) -> Result<Option<Self>, Invalid> {
        match (by, seconds) {
            (Some(by), seconds) => Ok(Some(Self { by, seconds: seconds.unwrap_or(GUARD_SECONDS) })),
            (None, None) => Ok(None),
            (None, Some(_)) => {
                let message = "has no effect without a guard; add a guard, or leave it out";
                Err(Invalid::new(Code::InvalidHandler, "guard_seconds", message))
            }
        }
    }

    /// Checks paths and limits.
    ///
    /// # Errors
    /// `invalid_handler` with the path.
    pub fn validate(&self) -> Result<(), Invalid> {
        let invalid = |path: &str, message: String| Err(Invalid::new(Code::InvalidHandler, path, message));
        if !(1..=GUARD_SECONDS_MAX).contains(&self.seconds) {
            return invalid("guard_seconds", format!("{} is not between 1 and {GUARD_SECONDS_MAX}", self.seconds));
        }
        let Guard::Fields(fields) = &self.by else { return Ok(()) };
        if fields.is_empty() || fields.len() > FIELDS_MAX {
            return invalid("guard.fields", format!("have {} entries; name 1 to {FIELDS_MAX}", fields.len()));
        }
        for field in fields {
            let path = path_of(field);
            if let Err(why) = valid_path(path) {
                return invalid("guard.field", format!("the path {field:?} {why}"));
            }
        }
        Ok(())
    }

    /// Returns when a message that is processed now is forgotten.
    pub fn until(&self, now: Timestamp) -> Timestamp {
        now.plus(std::time::Duration::from_secs(self.seconds))
    }
}

/// Returns the path inside the data, without the prefix `data.` that other settings use.
fn path_of(field: &str) -> &str {
    field.strip_prefix("data.").unwrap_or(field)
}

impl Guard {
    /// Returns a key that is equal for equivalent messages: 64 hexadecimal digits. None for an event that is not guarded.
    pub fn key_of(&self, event: &RecordedEvent) -> Option<String> {
        let mut hash = Sha256::new();
        hash.update(event.event_type.as_bytes());
        hash.update([0]);
        match self {
            Self::EventId => hash.update(event.id.as_bytes()),
            Self::Content => {
                let data = serde_json::to_value(&event.data).unwrap_or_default();
                let mut text = String::new();
                canonical(&data, &mut text);
                hash.update(text.as_bytes());
            }
            Self::Fields(fields) => {
                let data = serde_json::to_value(&event.data).unwrap_or_default();
                let values: Vec<&Value> = fields.iter().map(|field| value_at(&data, path_of(field))).collect();
                if values.iter().all(|value| value.is_null()) {
                    return None;
                }
                for value in values {
                    let mut text = String::new();
                    canonical(value, &mut text);
                    hash.update(text.as_bytes());
                    hash.update([0]);
                }
            }
        }
        Some(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

fn value_at<'a>(data: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(data, |value, name| value.get(name).unwrap_or(&Value::Null))
}

/// Writes a value as JSON with sorted fields.
fn canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(fields) => {
            let mut names: Vec<&String> = fields.keys().collect();
            names.sort();
            out.push('{');
            for name in names {
                out.push_str(&Value::from(name.as_str()).to_string());
                out.push(':');
                canonical(&fields[name], out);
                out.push(',');
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for item in items {
                canonical(item, out);
                out.push(',');
            }
            out.push(']');
        }
        plain => out.push_str(&plain.to_string()),
    }
}

/// A message that a guarded consumer has processed, written in the batch that settles the message. Where groups join a broker, also one
/// that a member is processing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GuardRecord {
    /// The consumer and the key.
    #[serde(rename = "_id")]
    pub id: String,
    /// The consumer: `group/billing`.
    pub processor: String,
    /// The event that was processed.
    pub event_id: String,
    /// Its position in the consumer's source: a message at the same position is a deliberate redelivery, not a duplicate.
    pub position: i64,
    /// When it was processed.
    pub at: DateTime,
    /// From this time on it has no effect, and may be deleted.
    pub expires_at: DateTime,
    /// The attempt that is processing the message; absent once it is processed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
}

impl RecordType for GuardRecord {
    const COLLECTION: &'static str = GUARDED;

    fn indexes() -> Vec<Index> {
        vec![Index::on("processor").into(), Index::on("expires_at").expires_after_seconds(0).into()]
    }
}

impl GuardRecord {
    /// Returns the id of the record of a key.
    pub fn id_of(processor: &str, key: &str) -> String {
        format!("{processor}/{key}")
    }

    /// Returns the record of a message that a consumer has processed now.
    pub fn new(
        (processor, key): (&str, &str),
        (event_id, position): (String, u64),
        settings: &GuardSettings,
        now: Timestamp,
    ) -> Self {
        let date = |time: Timestamp| DateTime::from_millis(time.as_millis());
        Self {
            id: Self::id_of(processor, key),
            processor: processor.to_owned(),
            event_id,
            position: position.cast_signed(),
            at: date(now),
            expires_at: date(settings.until(now)),
            holder: None,
        }
    }

    /// Returns whether a message at this position is a duplicate of the recorded one.
    pub fn covers(&self, position: u64, now: Timestamp) -> bool {
        self.position != position.cast_signed() && self.expires_at.timestamp_millis() > now.as_millis()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::{Aggregate, CommitInfo, Data};

    fn event(id: u128, event_type: &str, data: &Value) -> RecordedEvent {
        let time = Timestamp::from_millis(i64::try_from(id).unwrap_or(0));
        RecordedEvent {
            sequence_number: 0,
            ordinal: 0,
            id: uuid::Uuid::from_u128(id),
            event_type: event_type.into(),
            generation: 1,
            data: Data::from_value(data).expect("a document"),
            tags: Vec::new(),
            public: false,
            metadata: None,
            time,
            commit: Arc::new(CommitInfo {
                commit_id: uuid::Uuid::from_u128(4),
                ..CommitInfo::first_of(Aggregate::new("execution", "x-1"), time)
            }),
        }
    }

    #[test]
    fn the_same_content_under_another_id_and_time_is_a_duplicate_and_another_field_is_not() {
        let one = event(1, "a", &json!({"x": 1, "y": {"b": 2, "c": [1, 2]}}));
        let same = event(2, "a", &json!({"y": {"c": [1, 2], "b": 2}, "x": 1}));
        let other = event(3, "a", &json!({"x": 1, "y": {"b": 2, "c": [2, 1]}}));
        let of_other_type = event(4, "b", &json!({"x": 1, "y": {"b": 2, "c": [1, 2]}}));
        let key = Guard::Content.key_of(&one);
        assert_eq!(key, Guard::Content.key_of(&same));
        assert_ne!(key, Guard::Content.key_of(&other));
        assert_ne!(key, Guard::Content.key_of(&of_other_type));
        assert_ne!(Guard::EventId.key_of(&one), Guard::EventId.key_of(&same));
    }

    #[test]
    fn events_that_agree_in_the_named_fields_are_duplicates_whatever_else_differs() {
        let by = Guard::Fields(vec!["data.x".to_owned(), "y.z".to_owned()]);
        let one = by.key_of(&event(1, "a", &json!({"x": 1, "y": {"z": 2}, "w": 1}))).expect("guarded");
        assert_eq!(Some(&one), by.key_of(&event(2, "a", &json!({"x": 1, "y": {"z": 2}, "w": 7}))).as_ref());
        assert_ne!(Some(&one), by.key_of(&event(3, "a", &json!({"x": 1, "y": {"z": 3}, "w": 1}))).as_ref());
        assert_ne!(Some(&one), by.key_of(&event(4, "a", &json!({"x": 1}))).as_ref(), "one of them is absent");
        assert_eq!(by.key_of(&event(5, "a", &json!({"w": 1}))), None);
    }

    #[test]
    fn a_field_guard_without_a_field_and_an_unknown_guard_are_refused() {
        for written in [json!("event_id"), json!("content"), json!({"field": "data.a"}), json!({"fields": ["a", "b"]})]
        {
            let read: Guard = serde_json::from_value(written.clone()).expect("a guard");
            assert_eq!(serde_json::to_value(&read).expect("JSON"), written);
            assert_eq!(GuardSettings::new(read).validate(), Ok(()));
        }
        for written in [json!("magic"), json!({"field": 7}), json!({"field": "a", "more": 1}), json!(null), json!([])] {
            assert!(serde_json::from_value::<Guard>(written.clone()).is_err(), "{written}");
        }
        let refused = |guard| GuardSettings::new(guard).validate().expect_err("refused").path;
        assert_eq!(refused(Guard::Fields(Vec::new())), "guard.fields");
        assert_eq!(refused(Guard::Fields(vec![String::new()])), "guard.field");
        let forever = GuardSettings { seconds: 0, ..GuardSettings::new(Guard::Content) };
        assert_eq!(forever.validate().expect_err("refused").path, "guard_seconds");
    }

    #[test]
    fn what_was_processed_counts_until_its_time_is_over_and_not_for_its_own_position() {
        let settings = GuardSettings { by: Guard::Content, seconds: 10 };
        let at = |seconds: i64| Timestamp::from_millis(seconds * 1_000);
        let record = GuardRecord::new(("group/g", "k"), ("e".to_owned(), 7), &settings, at(100));
        assert!(record.covers(8, at(109)) && !record.covers(8, at(110)) && !record.covers(7, at(101)));
    }
}
