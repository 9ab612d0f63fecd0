//! Queries of the view.

use std::fmt;

use super::ReplayFilter;
use crate::order::Direction;
use crate::{Code, Condition, Invalid, RecordQuery, limits};

/// A query for one page of the view.
#[derive(Debug, Clone, PartialEq)]
pub struct BrowseQuery {
    /// The filter of the events.
    pub filter: ReplayFilter,
    /// Words to search for. An event matches if its type, service, user or execution contains one of them.
    pub search: Option<String>,
    /// Events that name this execution, or whose aggregate has this id.
    pub execution: Option<String>,
    /// Whether to leave out services whose name begins with `system-`.
    pub exclude_system: bool,
    /// The order of the events; events that compare equal are in log order.
    pub sort: BrowseSort,
    /// The number of events to skip at the beginning.
    pub skip: u64,
    /// The length of the page, 1 to 1,000.
    pub limit: usize,
    /// Resumes after another page; cannot be combined with `skip`.
    pub cursor: Option<String>,
    /// The number of events at which counting stops; `None` counts all of them, which can be slow.
    pub count_up_to: Option<u64>,
}

impl Default for BrowseQuery {
    fn default() -> Self {
        Self {
            filter: ReplayFilter::default(),
            search: None,
            execution: None,
            exclude_system: false,
            sort: BrowseSort::default(),
            skip: 0,
            limit: limits::PAGE_DEFAULT,
            cursor: None,
            count_up_to: None,
        }
    }
}

/// The order of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BrowseSort {
    path: &'static str,
    direction: Direction,
}

impl Default for BrowseSort {
    fn default() -> Self {
        Self { path: "timestamp", direction: Direction::Descending }
    }
}

/// The maximum number of events that can be skipped. A cursor reaches further.
const SKIP_MAX: u64 = 100_000;
/// The fields to sort by: their names in requests and in stored documents.
const SORTS: [(&str, &str); 5] = [
    ("timestamp", "timestamp"),
    ("sequence_number", "_id"),
    ("event_type", "event_type"),
    ("aggregate_id", "aggregate_id"),
    ("stored_at", "stored_at"),
];

impl BrowseSort {
    /// Parses the name of a field; a leading `-` sorts in descending order.
    ///
    /// # Errors
    /// `invalid_query` at `sort`.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let (name, direction) = match text.strip_prefix('-') {
            Some(name) => (name, Direction::Descending),
            None => (text, Direction::Ascending),
        };
        match SORTS.iter().find(|(known, _)| *known == name) {
            Some((_, path)) => Ok(Self { path, direction }),
            None => {
                let known: Vec<_> = SORTS.iter().map(|(name, _)| *name).collect();
                let message = format!("{text:?} is not one of {}, optionally preceded by -", known.join(", "));
                Err(Invalid::new(Code::InvalidQuery, "sort", message))
            }
        }
    }
}

impl fmt::Display for BrowseSort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let minus = if self.direction == Direction::Descending { "-" } else { "" };
        let name = SORTS.iter().find(|(_, path)| *path == self.path).map_or(self.path, |(name, _)| name);
        write!(f, "{minus}{name}")
    }
}

impl BrowseQuery {
    /// Checks the bounds.
    ///
    /// # Errors
    /// `invalid_query`, with the name of the parameter.
    pub fn validate(&self) -> Result<(), Invalid> {
        let invalid = |path: &str, message: String| Err(Invalid::new(Code::InvalidQuery, path, message));
        if !(1..=limits::PAGE_MAX).contains(&self.limit) {
            return invalid("limit", format!("{} is not between 1 and {}", self.limit, limits::PAGE_MAX));
        }
        if self.skip > SKIP_MAX {
            return invalid("skip", format!("{} is more than {SKIP_MAX}; use the cursor of a page instead", self.skip));
        }
        if self.skip > 0 && self.cursor.is_some() {
            return invalid("skip", "cannot be combined with a cursor; give one or the other".to_owned());
        }
        self.filter.validate("")
    }

    /// Returns the condition that events must match.
    pub fn condition(&self) -> Condition {
        let mut all = vec![self.filter.condition()];
        if let Some(id) = self.execution.as_deref().filter(|id| !id.is_empty()) {
            all.push(Condition::or([Condition::eq("execution_id", id), Condition::eq("aggregate_id", id)]));
        }
        if self.exclude_system {
            all.push(Condition::nor([Condition::starts_with("metadata.service_name", "system-")]));
        }
        if let Some(words) = self.search.as_deref().filter(|words| !words.trim().is_empty()) {
            all.push(Condition::matching_text(words));
        }
        Condition::and(all)
    }

    /// Returns the query of records in this collection.
    pub fn records(&self, collection: &str) -> RecordQuery {
        let query = RecordQuery::new(collection).matching(self.condition()).limit(self.limit);
        match (self.sort.path, self.sort.direction) {
            ("_id", Direction::Ascending) => query,
            (path, Direction::Ascending) => query.ascending(path),
            (path, Direction::Descending) => query.descending(path),
        }
    }
}
