//! When documents of the view expire: a pure function of the settings and the document.

use std::collections::{BTreeMap, BTreeSet};

use bson::raw::RawDocument;
use bson::{Bson, DateTime, Document, RawDocumentBuf};

use super::document::{ARCHIVED_MARK, is_archived, restored_at};
use super::{ArchiveTarget, HoldRecord, RuleKind, RuleRecord};
use crate::browse::{ViewRecord, number_of};
use crate::{Condition, DEFAULT_CATEGORY, Matcher, limits};

/// The maximum number of condition parts of all holds of a tenant. Due documents are found by one condition, which has 14 parts besides
/// the holds.
pub const HOLD_PARTS_MAX: usize = limits::CONDITION_NODES_MAX - 14;

const TTL: &str = "ttl_expires_at";
/// The field in which a document of other software keeps its own expiry date while a hold protects it.
const KEPT_TTL: &str = "annals_expires";
const DAY_MS: i64 = 24 * 60 * 60 * 1_000;

/// How long events of a type are kept, and where they go then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// How many days the view keeps an event; `None` keeps it for ever.
    pub days: Option<u32>,
    /// Where events go before they are deleted.
    pub archive: ArchiveTarget,
}

impl Retention {
    /// Returns when a document expires, given when it was stored and, if it was, restored.
    fn end(self, stored_ms: i64, restored_ms: Option<i64>) -> Option<DateTime> {
        let since = restored_ms.map_or(stored_ms, |restored| restored.max(stored_ms));
        Some(DateTime::from_millis(since.saturating_add(i64::from(self.days?) * DAY_MS)))
    }
}

/// The settings, prepared for being applied to documents.
#[derive(Debug, Clone)]
pub struct RetentionPlan {
    version: i64,
    default: Retention,
    rules: Vec<RuleRecord>,
    categories: BTreeMap<String, String>,
    holds: Vec<(String, Condition, Matcher)>,
    off_types: BTreeSet<String>,
    deleted_below: u64,
}

/// The event types that one archiving rule covers.
#[derive(Debug, Clone)]
pub struct DueGroup {
    /// The documents of these types.
    pub types: Condition,
    /// How long their events are kept, and where they go.
    pub retention: Retention,
}

/// The change of a document that makes it expire as the settings say.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ExpiryChange {
    /// The fields to set.
    pub set: Vec<(&'static str, Bson)>,
    /// The fields to remove.
    pub unset: Vec<&'static str>,
}

/// Returns the number of condition parts of all holds: one for each field of a filter, and one more for a filter with several fields.
pub fn hold_parts(holds: &[HoldRecord]) -> usize {
    holds.iter().map(|hold| hold.filter.condition().parts()).sum()
}

impl RetentionPlan {
    /// Creates the plan from the view's settings.
    pub fn of(record: &ViewRecord) -> Self {
        let holds = record.holds.iter().map(|hold| {
            let condition = hold.filter.condition();
            let matcher = Matcher::new(&condition);
            (hold.name.clone(), condition, matcher)
        });
        Self {
            version: record.version,
            default: Retention { days: record.days(), archive: ArchiveTarget::None },
            rules: record.rules.clone(),
            categories: record.categories.iter().map(|it| (it.name.clone(), it.category.clone())).collect(),
            holds: holds.collect(),
            off_types: record.off_types.iter().cloned().collect(),
            deleted_below: record.deleted_below.cast_unsigned(),
        }
    }

    /// Returns the version of the settings.
    pub fn version(&self) -> i64 {
        self.version
    }

    /// Returns the sequence number from which on no event was deleted by hand.
    pub fn deleted_below(&self) -> u64 {
        self.deleted_below
    }

    /// Returns whether the view leaves out events of a type.
    pub fn is_off(&self, event_type: &str) -> bool {
        self.off_types.contains(event_type)
    }

    /// Returns the condition of documents that must leave the view because their types are off: the log's own events that no hold
    /// protects.
    pub fn off(&self) -> Option<Condition> {
        if self.off_types.is_empty() {
            return None;
        }
        let of_types = Condition::is_in("event_type", self.off_types.iter().map(String::as_str));
        let mut all = vec![of_types, Condition::exists("annals.sequence_number")];
        all.extend(self.not_held());
        Some(Condition::and(all))
    }

    fn rule(&self, kind: RuleKind, name: &str) -> Option<Retention> {
        let rule = self.rules.iter().find(|rule| rule.kind == kind && rule.name == name)?;
        Some(Retention { days: rule.ttl_days.and_then(|days| u32::try_from(days).ok()), archive: rule.archive })
    }

    /// Returns the retention of a type: its own rule's, else its category's, else the view's.
    pub fn retention_of(&self, event_type: &str) -> Retention {
        let category = self.categories.get(event_type).map_or(DEFAULT_CATEGORY, String::as_str);
        self.rule(RuleKind::Type, event_type)
            .or_else(|| self.rule(RuleKind::Category, category))
            .unwrap_or(self.default)
    }

    /// Returns the condition of documents that a category's or a type's rule covers. A category's rule does not cover types that have a
    /// rule of their own.
    pub fn types_of(&self, kind: RuleKind, name: &str) -> Condition {
        if kind == RuleKind::Type {
            return Condition::eq("event_type", name);
        }
        let has_own = |it: &str| self.rules.iter().any(|rule| rule.kind == RuleKind::Type && rule.name == it);
        if name == DEFAULT_CATEGORY {
            let own = self.rules.iter().filter(|rule| rule.kind == RuleKind::Type).map(|rule| rule.name.as_str());
            let others = self.categories.iter().filter(|(_, category)| *category != DEFAULT_CATEGORY);
            let excluded: Vec<&str> = own.chain(others.map(|(name, _)| name.as_str())).collect();
            return match excluded.is_empty() {
                true => Condition::exists("event_type"),
                false => Condition::not_in("event_type", excluded),
            };
        }
        let of_it = self.categories.iter().filter(|(it, category)| *category == name && !has_own(it));
        Condition::is_in("event_type", of_it.map(|(it, _)| it.as_str()))
    }

    /// Returns one group for each rule that archives.
    pub fn due_groups(&self) -> Vec<DueGroup> {
        let archiving = self.rules.iter().filter(|rule| rule.archive != ArchiveTarget::None && rule.ttl_days.is_some());
        let group = |rule: &RuleRecord| {
            Some(DueGroup { types: self.types_of(rule.kind, &rule.name), retention: self.rule(rule.kind, &rule.name)? })
        };
        archiving.filter_map(group).collect()
    }

    /// Returns the condition of documents that were due at a time: past their retention, not held, and neither archived nor expiring.
    pub fn due(&self, group: &DueGroup, now_ms: i64) -> Condition {
        let days = i64::from(group.retention.days.unwrap_or(0));
        let mut until = now_ms - days * DAY_MS;
        if group.retention.archive == ArchiveTarget::Files {
            // Files cover whole days, so that a day results in few files.
            until = until.div_euclid(DAY_MS) * DAY_MS - 1;
        }
        let until = DateTime::from_millis(until);
        let mut all = vec![
            group.types.clone(),
            Condition::lte("timestamp", until),
            Condition::lte("stored_at", until),
            Condition::missing(TTL),
            Condition::missing(ARCHIVED_MARK),
            // A document whose `annals` field is something else could not be marked.
            Condition::or([
                Condition::missing("annals"),
                Condition::exists("annals.sequence_number"),
                Condition::exists("annals.restored_at"),
            ]),
            Condition::or([Condition::missing("annals.restored_at"), Condition::lte("annals.restored_at", until)]),
        ];
        all.extend(self.not_held());
        Condition::and(all)
    }

    /// Returns the condition of documents that no hold protects; `None` if there are no holds.
    pub fn not_held(&self) -> Option<Condition> {
        (!self.holds.is_empty()).then(|| Condition::nor(self.holds.iter().map(|(_, condition, _)| condition.clone())))
    }

    /// Returns the name of a hold that protects a document.
    pub fn held_by(&self, document: &Document) -> Option<&str> {
        if self.holds.is_empty() {
            return None;
        }
        // Documents of the view come from BSON, so this cannot fail.
        let raw = RawDocumentBuf::try_from(document).ok()?;
        self.holds.iter().find(|(_, _, matcher)| matcher.matches(&raw)).map(|(name, _, _)| name.as_str())
    }

    /// Returns when the document of an event of the log expires; `None` if it does not.
    pub fn expiry(&self, document: &Document) -> Option<DateTime> {
        let retention = self.retention_of(document.get_str("event_type").unwrap_or_default());
        let may_expire = retention.archive == ArchiveTarget::None || is_archived(document);
        if !may_expire || self.held_by(document).is_some() {
            return None;
        }
        let stored = document.get_datetime("stored_at").ok()?.timestamp_millis();
        retention.end(stored, restored_at(document))
    }

    /// Returns when a document expires once the archive holds a copy of it.
    pub fn archived_expiry(&self, document: &RawDocument) -> Option<DateTime> {
        if self.holds.iter().any(|(_, _, matcher)| matcher.matches(document)) {
            return None;
        }
        let retention = self.retention_of(document.get_str("event_type").unwrap_or_default());
        let stored = document.get_datetime("stored_at").ok()?.timestamp_millis();
        let own = document.get_document("annals").ok();
        let restored = own.and_then(|own| own.get_datetime("restored_at").ok()).map(|at| at.timestamp_millis());
        retention.end(stored, restored)
    }

    /// Sets the expiry date of a new document, or removes it if the document must not expire.
    pub fn stamp(&self, document: &mut Document) {
        match self.expiry(document) {
            Some(at) => _ = document.insert(TTL, at),
            None => _ = document.remove(TTL),
        }
    }

    /// Returns the change that makes a stored document expire as the settings say; `None` if it already does.
    pub fn change_of(&self, document: &Document) -> Option<ExpiryChange> {
        let now = document.get_datetime(TTL).ok().copied();
        if document.get("_id").and_then(number_of).is_none() {
            return self.change_of_foreign(document, now);
        }
        let wanted = self.expiry(document);
        if wanted == now {
            return None;
        }
        Some(match wanted {
            Some(at) => ExpiryChange { set: vec![(TTL, at.into())], unset: Vec::new() },
            None => ExpiryChange { set: Vec::new(), unset: vec![TTL] },
        })
    }

    /// Returns the change for a document of other software, which keeps its own expiry date, except while a hold protects it.
    fn change_of_foreign(&self, document: &Document, now: Option<DateTime>) -> Option<ExpiryChange> {
        let kept = document.get_datetime(KEPT_TTL).ok().copied();
        match (self.held_by(document).is_some(), now, kept) {
            (true, Some(at), _) => Some(ExpiryChange { set: vec![(KEPT_TTL, at.into())], unset: vec![TTL] }),
            (false, None, Some(at)) => Some(ExpiryChange { set: vec![(TTL, at.into())], unset: vec![KEPT_TTL] }),
            (false, None, None) if is_archived(document) => {
                Some(ExpiryChange { set: vec![(TTL, self.expiry(document)?.into())], unset: Vec::new() })
            }
            _ => None,
        }
    }
}
