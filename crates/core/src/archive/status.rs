//! What the archive's endpoints return.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ArchiveFileRecord, ArchiveStateRecord, ArchiveTarget, HoldRecord, RuleKind, RuleRecord};
use crate::Timestamp;
use crate::browse::ReplayFilter;

fn time(date: bson::DateTime) -> Timestamp {
    Timestamp::from_millis(date.timestamp_millis()).nearest_writable()
}

/// A retention rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RetentionStatus {
    /// The category or the type.
    pub name: String,
    /// Whether the rule is for a category or a type.
    pub kind: RuleKind,
    /// How many days the view keeps an event; null keeps it for ever.
    pub ttl_days: Option<u32>,
    /// Where events go before they are deleted.
    pub archive: ArchiveTarget,
    /// The reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Who set the rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// When the rule was set.
    pub at: Timestamp,
}

impl RetentionStatus {
    /// Creates the status of a stored rule.
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

/// The result of setting a rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PutRetention {
    /// The rule.
    #[serde(flatten)]
    pub rule: RetentionStatus,
    /// Whether the rule is new.
    #[serde(skip)]
    pub created: bool,
    /// With `dry_run`: how many events the rule would remove from the view now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<u64>,
}

/// The retention of types without a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetentionDefault {
    /// How many days the view keeps an event; null keeps it for ever.
    pub ttl_days: Option<u32>,
    /// Where events go before they are deleted.
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
    /// The state of the archive.
    pub archive: ArchiveStatus,
}

/// The state of the archive.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ArchiveStatus {
    /// Whether all documents of the view expire as the rules say.
    pub settled: bool,
    /// The number of events that retention has archived.
    pub archived: u64,
    /// The number of events that are due and not yet archived.
    pub waiting: u64,
    /// How many of these the archive refused because of their content.
    pub refused: u64,
    /// When an event was last archived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_archived: Option<Timestamp>,
    /// Why the archive cannot be written; absent while it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing: Option<ArchiveFailure>,
}

/// Why the archive cannot be written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveFailure {
    /// The reason.
    pub reason: String,
    /// When the failures began.
    pub since: Timestamp,
}

impl ArchiveStatus {
    /// Creates the status from the stored state.
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
    /// The events that it protects.
    pub filter: ReplayFilter,
    /// The reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Who set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// When the hold was set.
    pub at: Timestamp,
    /// Whether the hold is in force, so that no event it selects expires. Until then, events that were about to expire may still do so.
    pub in_force: bool,
}

impl HoldStatus {
    /// Creates the status of a stored hold.
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
    /// Always true.
    pub deleted: bool,
    /// The event's id.
    pub event_id: String,
    /// The collection that holds its copy: `events_archive`.
    pub archived_in: String,
    /// When the event was deleted.
    pub deleted_at: Timestamp,
}

/// A page of `events_archive`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArchivePage {
    /// The events, with `deleted_at`, `deleted_by` and `deletion_reason`.
    pub items: Vec<Value>,
    /// The number of events that match the filter, on all pages.
    pub total: u64,
    /// Whether counting stopped at `total`, so that there are at least that many.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub total_is_bound: bool,
    /// Whether more events follow this page.
    pub has_more: bool,
    /// Where the next page begins; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// An archive file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArchiveFile {
    /// Its path below the archive's folder.
    pub path: String,
    /// The type of its events.
    pub event_type: String,
    /// The day of its events.
    pub day: String,
    /// The number of its events.
    pub events: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// The SHA-256 of its content.
    pub sha256: String,
    /// When the file was written.
    pub written: Timestamp,
}

impl ArchiveFile {
    /// Creates the status of a stored record.
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

/// A page of archive files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArchiveFilePage {
    /// The files, by path.
    pub items: Vec<ArchiveFile>,
    /// Where the next page begins; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}
