//! API form of dead letters, and the bodies of requests.

use bson::DateTime;
use serde::{Deserialize, Serialize};

use super::{DeadLetter, LetterPolicy, LetterStatus, Level};
use crate::handlers::Reason;
use crate::{ByteString, Code, Condition, Data, Invalid, Timestamp, limits};

/// The maximum number of ids of a bulk act.
const IDS_MAX: usize = 10_000;

/// A letter in the API.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LetterView {
    /// Its id.
    pub id: ByteString,
    /// The event.
    pub event: Data,
    /// The topic of the event.
    pub original_topic: ByteString,
    /// The consumer, if it is a group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<ByteString>,
    /// The consumer, if it is a handler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handler: Option<ByteString>,
    /// The partner, if the event was exchanged with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partner: Option<ByteString>,
    /// The key whose order is kept.
    pub key: ByteString,
    /// The event's position in the consumer's source.
    pub position: u64,
    /// The event's sequence number.
    pub sequence_number: u64,
    /// Its state.
    pub status: LetterStatus,
    /// The consumer's first error.
    pub error: String,
    /// The consumer's last error.
    pub last_error: Option<String>,
    /// The number of retries of the letter.
    pub retry_count: u64,
    /// The number of attempts to process the event.
    pub attempts: u64,
    /// Whether it waits for an earlier letter of its key.
    pub follows: bool,
    /// When the consumer last failed.
    pub failed_at: Timestamp,
    /// When the letter was received.
    pub created_at: Timestamp,
    /// When it last changed.
    pub last_updated: Option<Timestamp>,
    /// When it will be retried.
    pub next_retry_at: Option<Timestamp>,
    /// When its consumer processed the event.
    pub retried_at: Option<Timestamp>,
    /// When it was discarded.
    pub discarded_at: Option<Timestamp>,
    /// Why it was discarded.
    pub discard_reason: Option<String>,
    /// The id of the request that committed the event; of a partner event, its creator.
    pub producer_id: ByteString,
    /// The header of the event's commit.
    pub headers: Data,
    /// Its history, oldest first.
    pub history: Vec<HistoryView>,
}

/// An entry of a letter's history in the API.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HistoryView {
    /// What happened.
    pub what: ByteString,
    /// When it happened.
    pub at: Timestamp,
    /// The error, or the reason given by a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The person, if one acted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

fn time(date: DateTime) -> Timestamp {
    Timestamp::from_millis(date.timestamp_millis())
}

impl From<DeadLetter> for LetterView {
    fn from(letter: DeadLetter) -> Self {
        let of = |kind: &str| letter.processor.strip_prefix(kind).map(ByteString::from);
        let view = |entry: super::HistoryEntry| HistoryView {
            what: entry.what.into(),
            at: time(entry.at),
            reason: entry.reason,
            by: entry.by,
        };
        Self {
            group: of("group/"),
            handler: of("handler/"),
            partner: of("partner/"),
            id: letter.id.into(),
            event: Data::from_document(&letter.event).unwrap_or_else(|_| Data::empty()),
            original_topic: letter.original_topic.into(),
            key: letter.key.into(),
            position: letter.position.cast_unsigned(),
            sequence_number: letter.sequence_number.cast_unsigned(),
            status: letter.status,
            error: letter.error,
            last_error: letter.last_error,
            retry_count: letter.retry_count.cast_unsigned(),
            attempts: letter.attempts.cast_unsigned(),
            follows: letter.follows,
            failed_at: time(letter.failed_at),
            created_at: time(letter.created_at),
            last_updated: letter.last_updated.map(time),
            next_retry_at: letter.next_retry_at.map(time),
            retried_at: letter.retried_at.map(time),
            discarded_at: letter.discarded_at.map(time),
            discard_reason: letter.discard_reason,
            producer_id: letter.producer_id.into(),
            headers: Data::from_document(&letter.headers).unwrap_or_else(|_| Data::empty()),
            history: letter.history.into_iter().map(view).collect(),
        }
    }
}

/// A filter of letters, for one page.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LetterQuery {
    /// Only letters with this status.
    pub status: Option<LetterStatus>,
    /// Only letters of this topic.
    pub topic: Option<ByteString>,
    /// Only letters of this group.
    pub group: Option<ByteString>,
    /// Only letters of this handler.
    pub handler: Option<ByteString>,
    /// Only letters of this partner.
    pub partner: Option<ByteString>,
    /// Only letters of events of this type.
    #[serde(rename = "type")]
    pub event_type: Option<ByteString>,
    /// Only letters whose consumer last failed at this time or later.
    pub since: Option<Timestamp>,
    /// The maximum number of letters in the page.
    pub limit: Option<usize>,
    /// The cursor of the previous page.
    pub cursor: Option<ByteString>,
}

impl LetterQuery {
    /// Returns the condition that selects these letters.
    pub fn condition(&self) -> Condition {
        let text = |path: &str, value: &Option<ByteString>| value.as_deref().map(|value| Condition::eq(path, value));
        let consumer = |kind: &str, name: &Option<ByteString>| {
            name.as_deref().map(|name| Condition::eq("processor", format!("{kind}/{name}")))
        };
        Condition::and(
            [
                self.status.map(|status| Condition::eq("status", status.name())),
                text("original_topic", &self.topic),
                consumer("group", &self.group),
                consumer("handler", &self.handler),
                consumer("partner", &self.partner),
                text("event.event_type", &self.event_type),
                self.since.map(|since| Condition::gte("failed_at", DateTime::from_millis(since.as_millis()))),
            ]
            .into_iter()
            .flatten(),
        )
    }

    /// Returns the maximum number of letters in the page.
    pub fn page_length(&self) -> usize {
        self.limit.unwrap_or(100).clamp(1, limits::PAGE_MAX)
    }
}

/// A page of letters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LetterPage {
    /// The letters.
    pub items: Vec<LetterView>,
    /// Where the next page begins; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<ByteString>,
}

/// An act on many letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BulkAct {
    /// Makes the letters due now.
    Retry,
    /// Discards the letters.
    Discard,
}

impl BulkAct {
    /// Returns its name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Discard => "discard",
        }
    }

    /// Returns the act with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Retry, Self::Discard].into_iter().find(|it| it.name() == name)
    }
}

/// The letters that a bulk act selects.
#[expect(clippy::large_enum_variant, reason = "there is one for each request")]
#[derive(Debug, Clone, PartialEq)]
pub enum Selection {
    /// Open letters that match a condition on the stored fields.
    Matching(Condition),
    /// The letters with these ids.
    Ids(Vec<ByteString>),
}

/// The body of `POST /v1/dead-letters/retry` and `…/discard`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BulkBody {
    /// Selects the open letters that match this; cannot be combined with `ids`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<Condition>,
    /// Selects the letters with these ids.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ids: Option<Vec<ByteString>>,
    /// The reason, for the record.
    pub reason: String,
    /// Who requests it, for the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Counts the letters and changes none.
    #[serde(default)]
    pub dry_run: bool,
}

impl BulkBody {
    /// Returns the selection, the reason, and whether it is a dry run.
    ///
    /// # Errors
    /// `invalid_body` unless it has either a condition or ids; the errors of [`Reason::validate`]; `invalid_condition`.
    pub fn read(self) -> Result<(Selection, Reason, bool), Invalid> {
        let reason = Reason { reason: self.reason, by: self.by };
        reason.validate()?;
        let selection = match (self.condition, self.ids) {
            (Some(condition), None) => {
                condition.validate()?;
                Selection::Matching(condition)
            }
            (None, Some(ids)) if ids.len() <= IDS_MAX => Selection::Ids(ids),
            (None, Some(_)) => {
                let message = format!("has more than {IDS_MAX} entries; use a condition");
                return Err(Invalid::new(Code::InvalidBody, "ids", message));
            }
            _ => {
                let message = "give either a condition or ids; {\"operator\": \"ALL\"} means every open letter";
                return Err(Invalid::new(Code::InvalidBody, "condition", message));
            }
        };
        Ok((selection, reason, self.dry_run))
    }
}

/// The outcome of a bulk act.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BulkOutcome {
    /// The id under which it is stored; absent for a dry run and for a selection by ids.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<ByteString>,
    /// Whether nothing was changed.
    pub dry_run: bool,
    /// The number of letters selected.
    pub total: u64,
    /// The number of letters changed.
    pub successful: u64,
    /// The number of letters that could not be changed.
    pub failed: u64,
    /// The outcomes of the first 100 letters that were selected by id or could not be changed.
    pub details: Vec<BulkDetail>,
}

/// The outcome of a bulk act for one letter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BulkDetail {
    /// The letter.
    pub id: ByteString,
    /// `success` or `failed`.
    pub status: ByteString,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Counts of letters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Statistics {
    /// The number of open letters.
    pub open: u64,
    /// `normal`, `warning` or `critical`.
    pub level: Level,
    /// The number of open letters above which the level is a warning.
    pub warning_above: u64,
    /// The number of open letters above which the level is critical.
    pub critical_above: u64,
    /// The counts by topic, the topic with the most letters first.
    pub topics: Vec<TopicStatistics>,
}

/// Counts of the letters of one topic.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TopicStatistics {
    /// The topic.
    pub topic: ByteString,
    /// The number of letters.
    pub total_messages: u64,
    /// The number of letters by status.
    pub status_breakdown: std::collections::BTreeMap<ByteString, u64>,
    /// When the oldest letter was received.
    pub oldest_message: Option<Timestamp>,
    /// When the newest letter was received.
    pub newest_message: Option<Timestamp>,
    /// The average number of retries, with 2 decimals.
    pub avg_retry_count: f64,
    /// The maximum number of retries.
    pub max_retry_count: u64,
}

impl TopicStatistics {
    /// Returns the number of open letters.
    pub fn open(&self) -> u64 {
        let of = |status: &str| self.status_breakdown.get(status).copied().unwrap_or(0);
        of("pending") + of("scheduled")
    }
}

/// The body of `PUT /v1/dead-letters/policies/{topic}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PolicyBody {
    /// The policy.
    #[serde(flatten)]
    pub policy: LetterPolicyFields,
    /// The reason, for the record.
    pub reason: String,
    /// Who sets the policy, for the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// The fields of a [`LetterPolicy`], flattened into the body.
pub type LetterPolicyFields = serde_json::Map<String, serde_json::Value>;

impl PolicyBody {
    /// Creates the body that sets this policy.
    pub fn of(policy: &LetterPolicy, reason: Reason) -> Self {
        // A policy is an object of strings and finite numbers, so this cannot fail.
        let policy = serde_json::to_value(policy).unwrap_or_default();
        let policy = policy.as_object().cloned().unwrap_or_default();
        Self { policy, reason: reason.reason, by: reason.by }
    }

    /// Returns the policy and the reason.
    ///
    /// # Errors
    /// `invalid_body` for an unknown field; `invalid_policy`.
    pub fn read(self) -> Result<(LetterPolicy, Reason), Invalid> {
        let policy = serde_json::from_value::<LetterPolicy>(serde_json::Value::Object(self.policy));
        let policy = policy.map_err(|error| Invalid::new(Code::InvalidBody, "", error.to_string()))?;
        policy.validate()?;
        let reason = Reason { reason: self.reason, by: self.by };
        reason.validate()?;
        Ok((policy, reason))
    }
}

/// The policy of a topic, in the API.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PolicyStatus {
    /// The topic.
    pub topic: ByteString,
    /// The category of its event type, whose policy applies unless the topic has its own.
    pub category: ByteString,
    /// Whether the policy is the topic's own.
    pub is_override: bool,
    /// The policy.
    pub policy: LetterPolicy,
    /// Why the topic has a policy of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Who set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// When it was set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
}

/// A page of policies of topics.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PolicyPage {
    /// The policies, by topic.
    pub items: Vec<PolicyStatus>,
    /// Where the next page begins; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<ByteString>,
}
