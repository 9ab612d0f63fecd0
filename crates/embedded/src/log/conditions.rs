//! Append conditions: does the log hold an event that it must not?
//!
//! Everything before the commit in the log counts, and each part is searched where that costs least: what was durable when the commit
//! came, by the caller; what became durable since, and what stands before it in the batch, by the log writer. All of it is answered
//! from postings, so the work is in proportion to what may match.

use std::ops::Range;

use annals_core::{AppendCondition, Filter, LogQuery, RecordedEvent, SequenceNumber, StoreError};

use super::core::Core;
use super::read;
use crate::options::SeededBug;
use crate::terms::Term;

/// An append condition on its way to the log writer.
pub(super) struct Condition {
    condition: AppendCondition,
    pub(super) patterns: Vec<PatternTerms>,
    /// Everything durable below this number has been searched.
    searched_to: SequenceNumber,
    found: Option<Match>,
}

/// An event that matches a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Match {
    pub(super) pattern: usize,
    pub(super) sequence_number: SequenceNumber,
}

/// The index terms of a pattern.
pub(super) struct PatternTerms {
    pub(super) types: Vec<Term>,
    pub(super) tags: Vec<Term>,
}

impl Condition {
    /// The caller's part: searches what is durable now.
    pub(super) fn search(core: &Core, condition: AppendCondition) -> Result<Self, StoreError> {
        let head = core.head();
        let found = durable_match(core, &condition, condition.from()..head)?;
        let patterns = condition.fail_if.iter().map(|pattern| PatternTerms {
            types: pattern.types.iter().map(|name| core.key.event_type(name)).collect(),
            tags: pattern.tags.iter().map(|tag| core.key.tag(tag)).collect(),
        });
        Ok(Self { patterns: patterns.collect(), searched_to: condition.from().max(head), condition, found })
    }

    /// The log writer's part: what the caller found, or what became durable since, up to `head`.
    pub(super) fn durable(&self, core: &Core, head: SequenceNumber) -> Result<Option<Match>, StoreError> {
        match self.found {
            Some(found) => Ok(Some(found)),
            None if core.options.has(SeededBug::IgnoreEventsSinceSearch) => Ok(None),
            None => durable_match(core, &self.condition, self.searched_to..head),
        }
    }

    /// The match, if this event is one.
    pub(super) fn matched_by(&self, event: &RecordedEvent) -> Option<Match> {
        let sequence_number = event.sequence_number;
        self.condition.failed_by(event).map(|pattern| Match { pattern, sequence_number })
    }
}

fn durable_match(
    core: &Core,
    condition: &AppendCondition,
    range: Range<SequenceNumber>,
) -> Result<Option<Match>, StoreError> {
    if range.is_empty() {
        return Ok(None);
    }
    for (pattern, wanted) in condition.fail_if.iter().enumerate() {
        let filter = Filter { types: wanted.types.clone(), tags: wanted.tags.clone(), aggregate: None };
        let query = LogQuery { limit: 1, filter, ..LogQuery::default() };
        if let Some(sequence_number) = read::first_in(core, &query, range.clone())? {
            return Ok(Some(Match { pattern, sequence_number }));
        }
    }
    Ok(None)
}

impl PatternTerms {
    /// Whether a commit with these terms, in ascending order, may hold an event that matches.
    pub(super) fn may_match(&self, terms: &[Term]) -> bool {
        let has = |term: &Term| terms.binary_search(term).is_ok();
        (self.types.is_empty() || self.types.iter().any(has)) && self.tags.iter().all(has)
    }
}
