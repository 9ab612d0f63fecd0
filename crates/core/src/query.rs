//! Queries of the log and of its aggregates.

use bytestring::ByteString;

use crate::{
    Aggregate, Code, EventRef, Invalid, RecordedCommit, RecordedEvent, SequenceNumber, Timestamp, Version,
    commit::{valid_id, valid_name},
    limits,
};

/// Selects events of the log: an event passes if it satisfies every criterion that is set.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Filter {
    /// The event has one of these types; empty means any type.
    pub types: Vec<ByteString>,
    /// The event has all of these tags.
    pub tags: Vec<ByteString>,
    /// The event belongs to this aggregate, or to one of this name.
    pub aggregate: Option<AggregateFilter>,
}

/// One aggregate, or all aggregates of a name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AggregateFilter {
    /// The aggregate's name.
    pub name: ByteString,
    /// The aggregate's id; `None` matches every id.
    pub id: Option<ByteString>,
}

impl Filter {
    /// Returns whether every event passes.
    #[inline]
    pub fn is_all(&self) -> bool {
        self.types.is_empty() && self.tags.is_empty() && self.aggregate.is_none()
    }

    /// Returns whether a commit may have everything that the filter names although none of its events passes: it is on different events.
    /// An index of commits can then name any number of commits in vain.
    pub fn may_span_events(&self) -> bool {
        self.tags.len() + usize::from(!self.types.is_empty()) > 1
    }

    /// Returns whether `event` passes.
    pub fn admits(&self, event: &RecordedEvent) -> bool {
        let Aggregate { name, id } = &event.commit.aggregate;
        self.admits_of(name, id, &event.event_type, |tag| event.tags.iter().any(|has| **has == *tag))
    }

    /// Returns whether a borrowed event passes.
    #[inline]
    pub fn admits_ref(&self, event: &EventRef<'_>) -> bool {
        if self.is_all() {
            return true;
        }
        let commit = event.commit;
        self.admits_of(commit.aggregate_name, commit.aggregate_id, event.event_type, |tag| event.tags.contains(&tag))
    }

    fn admits_of(&self, name: &str, id: &str, event_type: &str, has_tag: impl Fn(&str) -> bool) -> bool {
        self.aggregate
            .as_ref()
            .is_none_or(|wanted| *wanted.name == *name && wanted.id.as_ref().is_none_or(|wanted| **wanted == *id))
            && (self.types.is_empty() || self.types.iter().any(|wanted| **wanted == *event_type))
            && self.tags.iter().all(|tag| has_tag(tag))
    }

    /// Checks names, ids and tags.
    ///
    /// # Errors
    /// The first value that no event of a log can have, with its path.
    pub fn validate(&self) -> Result<(), Invalid> {
        self.types.iter().try_for_each(|name| valid_name("types", name))?;
        self.tags.iter().try_for_each(|tag| valid_id("tags", tag))?;
        let Some(aggregate) = &self.aggregate else { return Ok(()) };
        valid_name("aggregate", &aggregate.name)?;
        aggregate.id.as_ref().map_or(Ok(()), |id| valid_id("aggregate", id))
    }
}

/// Reads one page of the log.
///
/// `from` is a position between events: `n` is the gap before event `n`.
///
/// ```text
///          event 0   event 1   event 2            head = 3
///        |         |         |         |
/// from:  0         1         2         3
///        forwards from 1 ──▶ 1, 2            backwards from 2: 1, 0 ◀── from 2
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogQuery {
    /// The position to start at; `None` is the beginning when reading forwards, the head when reading backwards.
    pub from: Option<SequenceNumber>,
    /// The most events to return, 1–1,000.
    pub limit: usize,
    /// Reads from newer to older events.
    pub backwards: bool,
    /// The events to return.
    pub filter: Filter,
}

impl Default for LogQuery {
    fn default() -> Self {
        Self { from: None, limit: limits::PAGE_DEFAULT, backwards: false, filter: Filter::default() }
    }
}

impl LogQuery {
    /// Checks the limit and the filter.
    ///
    /// # Errors
    /// `invalid_query`, and the errors of [`Filter::validate`].
    pub fn validate(&self) -> Result<(), Invalid> {
        valid_limit(self.limit)?;
        self.filter.validate()
    }
}

/// The result of a [`LogQuery`].
#[derive(Debug, Clone, PartialEq)]
pub struct LogPage {
    /// The events, in the requested order. Empty only at the end, also with a filter; a page may be shorter than its limit.
    pub events: Vec<RecordedEvent>,
    /// The position to resume from.
    pub next: SequenceNumber,
    /// The number of events in the log, whether or not they match.
    pub head: SequenceNumber,
}

/// Scans a range of the log, from older to newer events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanQuery {
    /// The lowest sequence number to visit.
    pub from: SequenceNumber,
    /// The sequence number to stop before. A number past the head means the head at the start of the scan.
    pub to: SequenceNumber,
    /// The events to return.
    pub filter: Filter,
}

impl Default for ScanQuery {
    fn default() -> Self {
        Self { from: 0, to: SequenceNumber::MAX, filter: Filter::default() }
    }
}

/// Reads commits of one aggregate, by version and time; both ranges include their ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AggregateQuery {
    /// The aggregate.
    pub aggregate: Aggregate,
    /// The lowest version to return, from 1 (0 means the same).
    pub from_version: Version,
    /// The highest version to return.
    pub to_version: Version,
    /// The earliest commit time to return.
    pub from_time: Option<Timestamp>,
    /// The latest commit time to return.
    pub to_time: Option<Timestamp>,
    /// The most commits to return, 1–1,000.
    pub limit: usize,
    /// Returns the last `limit` commits of the range instead of the first, still in ascending order.
    pub last: bool,
    /// The tenantId the aggregate must have. An aggregate with another one is treated as unknown.
    pub tenant_id: Option<ByteString>,
}

impl AggregateQuery {
    /// Reads the first page of all versions.
    pub fn new(aggregate: Aggregate) -> Self {
        Self {
            aggregate,
            from_version: 1,
            to_version: Version::MAX,
            from_time: None,
            to_time: None,
            limit: limits::PAGE_DEFAULT,
            last: false,
            tenant_id: None,
        }
    }

    /// Reads this version only.
    pub fn single(aggregate: Aggregate, version: Version) -> Self {
        Self { from_version: version, to_version: version, limit: 1, ..Self::new(aggregate) }
    }

    /// Reads the last commit only.
    pub fn last(aggregate: Aggregate) -> Self {
        Self { limit: 1, last: true, ..Self::new(aggregate) }
    }

    /// Checks names, ranges and the limit.
    ///
    /// # Errors
    /// `invalid_name`, `invalid_id`, `invalid_range` or `invalid_query`, with the path.
    pub fn validate(&self) -> Result<(), Invalid> {
        self.aggregate.validate()?;
        valid_limit(self.limit)?;
        if self.from_version > self.to_version {
            let message = format!("from_version {} is after to_version {}", self.from_version, self.to_version);
            return Err(Invalid::new(Code::InvalidRange, "from_version", message));
        }
        match (self.from_time, self.to_time) {
            (Some(from), Some(to)) if from > to => {
                Err(Invalid::new(Code::InvalidRange, "from_time", format!("from_time {from} is after to_time {to}")))
            }
            _ => Ok(()),
        }
    }
}

/// The result of an [`AggregateQuery`].
#[derive(Debug, Clone, PartialEq)]
pub struct AggregateCommits {
    /// The commits, in ascending order of version. Empty only at the end; a page may be shorter than the limit.
    pub commits: Vec<RecordedCommit>,
    /// The aggregate's current version; 0 if it has no commit.
    pub version: Version,
}

/// Lists the ids of the aggregates of one name, in ascending byte order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AggregateIdsQuery {
    /// The aggregates' name.
    pub name: ByteString,
    /// Lists only ids after this one, which need not exist.
    pub after: Option<ByteString>,
    /// The most ids to return, 1–1,000.
    pub limit: usize,
}

impl AggregateIdsQuery {
    /// Checks the name and the limit. `after` is only compared, so any string is valid.
    ///
    /// # Errors
    /// `invalid_name` or `invalid_query`, with the path.
    pub fn validate(&self) -> Result<(), Invalid> {
        valid_name("name", &self.name)?;
        valid_limit(self.limit)
    }
}

/// Lists the names of aggregates, in ascending byte order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AggregateNamesQuery {
    /// Lists only names after this one, which need not exist.
    pub after: Option<ByteString>,
    /// The most names to return, 1–1,000.
    pub limit: usize,
}

impl AggregateNamesQuery {
    /// Checks the limit. `after` is only compared, so any string is valid.
    ///
    /// # Errors
    /// `invalid_query`, with the path.
    pub fn validate(&self) -> Result<(), Invalid> {
        valid_limit(self.limit)
    }
}

/// An aggregate that has at least one commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownAggregate {
    /// Its id.
    pub id: ByteString,
    /// Its tenantId.
    pub tenant_id: ByteString,
}

pub(crate) fn valid_limit(limit: usize) -> Result<(), Invalid> {
    if (1..=limits::PAGE_MAX).contains(&limit) {
        return Ok(());
    }
    Err(Invalid::new(Code::InvalidQuery, "limit", format!("{limit} is not between 1 and {}", limits::PAGE_MAX)))
}
