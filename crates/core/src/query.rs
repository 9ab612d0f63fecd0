//! How the log and its aggregates are asked.

use bytestring::ByteString;

use crate::{
    Aggregate, Code, EventRef, Invalid, RecordedCommit, RecordedEvent, SequenceNumber, Timestamp, Version,
    commit::{valid_id, valid_name},
    limits,
};

/// Which events a reader or follower wants: all of what is given must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    /// The event has one of these types; empty means any type.
    pub types: Vec<ByteString>,
    /// The event has all of these tags.
    pub tags: Vec<ByteString>,
    /// The event belongs to this aggregate, or to one of this name.
    pub aggregate: Option<AggregateFilter>,
}

/// One aggregate, or all of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AggregateFilter {
    /// The aggregate's name.
    pub name: ByteString,
    /// The aggregate's id; none means all ids.
    pub id: Option<ByteString>,
}

impl Filter {
    /// Whether it lets every event through.
    #[inline]
    pub fn is_all(&self) -> bool {
        self.types.is_empty() && self.tags.is_empty() && self.aggregate.is_none()
    }

    /// Whether `event` passes.
    pub fn admits(&self, event: &RecordedEvent) -> bool {
        let Aggregate { name, id } = &event.commit.aggregate;
        self.admits_of(name, id, &event.event_type, |tag| event.tags.iter().any(|has| **has == *tag))
    }

    /// Whether an event that is lent passes.
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
    /// The first that cannot occur in a log, with its path.
    pub fn validate(&self) -> Result<(), Invalid> {
        self.types.iter().try_for_each(|name| valid_name("types", name))?;
        self.tags.iter().try_for_each(|tag| valid_id("tags", tag))?;
        let Some(aggregate) = &self.aggregate else { return Ok(()) };
        valid_name("aggregate", &aggregate.name)?;
        aggregate.id.as_ref().map_or(Ok(()), |id| valid_id("aggregate", id))
    }
}

/// A page of the log.
///
/// `from` stands between events: number `n` is the gap before event `n`.
///
/// ```text
///          event 0   event 1   event 2            head = 3
///        |         |         |         |
/// from:  0         1         2         3
///        forwards from 1 ──▶ 1, 2            backwards from 2: 1, 0 ◀── from 2
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogQuery {
    /// Where to start; none is the beginning forwards, the head backwards.
    pub from: Option<SequenceNumber>,
    /// Most events wanted, 1–1,000.
    pub limit: usize,
    /// From newer to older.
    pub backwards: bool,
    /// Which events.
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
    /// `invalid_query` or what [`Filter::validate`] says.
    pub fn validate(&self) -> Result<(), Invalid> {
        valid_limit(self.limit)?;
        self.filter.validate()
    }
}

/// What a [`LogQuery`] found.
#[derive(Debug, Clone, PartialEq)]
pub struct LogPage {
    /// The events, in the order asked for. Empty only at the end, also with a filter; a page may be shorter than its limit.
    pub events: Vec<RecordedEvent>,
    /// Where to go on from.
    pub next: SequenceNumber,
    /// The number of events in the log, of any kind.
    pub head: SequenceNumber,
}

/// A part of the log, from older to newer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanQuery {
    /// The number of the first event that may be visited.
    pub from: SequenceNumber,
    /// Events of this number and later ones are not visited. One past the head is the head, as it is when the scan begins.
    pub to: SequenceNumber,
    /// Which events.
    pub filter: Filter,
}

impl Default for ScanQuery {
    fn default() -> Self {
        Self { from: 0, to: SequenceNumber::MAX, filter: Filter::default() }
    }
}

/// Commits of one aggregate, by version and time; both ranges include their ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AggregateQuery {
    /// Which aggregate.
    pub aggregate: Aggregate,
    /// The first version wanted, from 1 (0 means the same).
    pub from_version: Version,
    /// The last version wanted.
    pub to_version: Version,
    /// The earliest commit time wanted.
    pub from_time: Option<Timestamp>,
    /// The latest commit time wanted.
    pub to_time: Option<Timestamp>,
    /// Most commits wanted, 1–1,000.
    pub limit: usize,
    /// Takes the last `limit` commits of the range instead of the first; they still come in ascending order.
    pub last: bool,
    /// Only if the aggregate has this tenantId; else it is as if there were none.
    pub tenant_id: Option<ByteString>,
}

impl AggregateQuery {
    /// All versions, the first page.
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

    /// Just this version.
    pub fn single(aggregate: Aggregate, version: Version) -> Self {
        Self { from_version: version, to_version: version, limit: 1, ..Self::new(aggregate) }
    }

    /// Just the last commit.
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

/// What an [`AggregateQuery`] found.
#[derive(Debug, Clone, PartialEq)]
pub struct AggregateCommits {
    /// The commits, in ascending order of version. Empty only at the end; it may be shorter than the limit.
    pub commits: Vec<RecordedCommit>,
    /// The aggregate's version now; 0 if it has no commit.
    pub version: Version,
}

/// Ids of the aggregates of one name, in ascending order of their bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AggregateIdsQuery {
    /// The aggregates' name.
    pub name: ByteString,
    /// Only ids after this one; it need not exist.
    pub after: Option<ByteString>,
    /// Most ids wanted, 1–1,000.
    pub limit: usize,
}

impl AggregateIdsQuery {
    /// Checks the name and the limit. `after` is only compared, so any text will do.
    ///
    /// # Errors
    /// `invalid_name` or `invalid_query`, with the path.
    pub fn validate(&self) -> Result<(), Invalid> {
        valid_name("name", &self.name)?;
        valid_limit(self.limit)
    }
}

/// Names of aggregates, in ascending order of their bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AggregateNamesQuery {
    /// Only names after this one; it need not exist.
    pub after: Option<ByteString>,
    /// Most names wanted, 1–1,000.
    pub limit: usize,
}

impl AggregateNamesQuery {
    /// Checks the limit. `after` is only compared, so any text will do.
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
