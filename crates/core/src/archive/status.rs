//! What callers get.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ArchiveFileRecord, ArchiveStateRecord, ArchiveTarget, HoldRecord, RuleKind, RuleRecord};
use crate::Timestamp;
use crate::browse::ReplayFilter;

fn time(date: bson::DateTime) -> Timestamp {
    Timestamp::from_millis(date.timestamp_millis()).nearest_writable()
}

/// A rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RetentionStatus {
    /// The category or the type.
    pub name: String,
    /// Which of both.
    pub kind: RuleKind,
    /// For how many days the view keeps an event; null for ever.
    pub ttl_days: Option<u32>,
    /// Where it goes before it is deleted.
    pub archive: ArchiveTarget,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Who said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Since when.
    pub at: Timestamp,
}

impl RetentionStatus {
    /// Shows a rule.
    pub fn of(rule: &RuleRecord) -> Self {
        Self {
            name: rule.name.clone(),
            kind: rule.kind,
            ttl_days: rule.ttl_days.and_then(|days| u32::try_from(days).ok()),
            archive: rule.archive,
            reason: rule.reason.clone(),
            by: rule.by.clone(),
            at: time(rule.at),
        }
    }
}

/// What putting a rule did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PutRetention {
    /// The rule.
    #[serde(flatten)]
    pub rule: RetentionStatus,
    /// Whether there was none before.
    #[serde(skip)]
    pub created: bool,
    /// With `dry_run`: how many events the rule would remove from the view now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<u64>,
}

/// The retention of types without a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetentionDefault {
    /// For how many days the view keeps an event; null for ever.
    pub ttl_days: Option<u32>,
    /// Where it goes before it is deleted.
    pub archive: ArchiveTarget,
}

/// A page of rules.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RetentionPage {
    /// The rules, by name.
    pub items: Vec<RetentionStatus>,
    /// Where the next page begins; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// The retention of types without a rule.
    pub default: RetentionDefault,
    /// How the archive is.
    pub archive: ArchiveStatus,
}

/// How the archive is.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ArchiveStatus {
    /// Whether all documents of the view expire as the rules say.
    pub settled: bool,
    /// How many events were archived by retention.
    pub archived: u64,
    /// How many are due and not archived.
    pub waiting: u64,
    /// How many of them the archive refused, because of what they hold.
    pub refused: u64,
    /// When an event was archived last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_archived: Option<Timestamp>,
    /// Why the archive cannot be written; absent while it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing: Option<ArchiveFailure>,
}

/// Why the archive cannot be written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveFailure {
    /// Why.
    pub reason: String,
    /// Since when.
    pub since: Timestamp,
}

impl ArchiveStatus {
    /// Shows the state of the archive.
    pub fn of(record: &ArchiveStateRecord, settled: bool) -> Self {
        let failing = record.failure.clone().zip(record.failing_since);
        Self {
            settled,
            archived: record.archived.cast_unsigned(),
            waiting: record.waiting.cast_unsigned(),
            refused: record.refused.cast_unsigned(),
            last_archived: record.last_archived.map(time),
            failing: failing.map(|(reason, since)| ArchiveFailure { reason, since: time(since) }),
        }
    }
}

/// A hold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HoldStatus {
    /// Its name.
    pub name: String,
    /// Which events it protects.
    pub filter: ReplayFilter,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Who set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Since when.
    pub at: Timestamp,
    /// Whether no event that it selects expires. Until then, events that were about to expire may still do so.
    pub in_force: bool,
}

impl HoldStatus {
    /// Shows a hold.
    pub fn of(hold: &HoldRecord, in_force: bool) -> Self {
        Self {
            name: hold.name.clone(),
            filter: hold.filter.clone(),
            reason: hold.reason.clone(),
            by: hold.by.clone(),
            at: time(hold.at),
            in_force,
        }
    }
}

/// A page of holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HoldPage {
    /// The holds, by name.
    pub items: Vec<HoldStatus>,
    /// Where the next page begins; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// An event that was deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeletedEvent {
    /// True.
    pub deleted: bool,
    /// The event.
    pub event_id: String,
    /// Where its copy is: `events_archive`.
    pub archived_in: String,
    /// When.
    pub deleted_at: Timestamp,
}

/// A page of `events_archive`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArchivePage {
    /// The events, with `deleted_at`, `deleted_by` and `deletion_reason`.
    pub items: Vec<Value>,
    /// How many events meet the filter, on whatever page they are.
    pub total: u64,
    /// Whether counting stopped there, so that there are at least so many.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub total_is_bound: bool,
    /// Whether more of them follow this page.
    pub has_more: bool,
    /// Where the next page begins; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// A file of the archive.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArchiveFile {
    /// Its path below the archive's folder.
    pub path: String,
    /// The type of its events.
    pub event_type: String,
    /// The day on which they happened.
    pub day: String,
    /// How many they are.
    pub events: u64,
    /// Its length.
    pub bytes: u64,
    /// The SHA-256 of its content.
    pub sha256: String,
    /// When it was written.
    pub written: Timestamp,
}

impl ArchiveFile {
    /// Shows a file.
    pub fn of(record: &ArchiveFileRecord) -> Self {
        Self {
            path: record.path.clone(),
            event_type: record.event_type.clone(),
            day: record.day.clone(),
            events: record.events.cast_unsigned(),
            bytes: record.bytes.cast_unsigned(),
            sha256: record.sha256.clone(),
            written: time(record.written),
        }
    }
}

/// A page of files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArchiveFilePage {
    /// The files, by path.
    pub items: Vec<ArchiveFile>,
    /// Where the next page begins; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}
