//! What a reader of the view asks for.

use std::fmt;

use super::ReplayFilter;
use crate::order::Direction;
use crate::{Code, Condition, Invalid, RecordQuery, limits};

/// A page of the view.
#[derive(Debug, Clone, PartialEq)]
pub struct BrowseQuery {
    /// Which events.
    pub filter: ReplayFilter,
    /// Words, one of which the type, the service, the user or the execution must have.
    pub search: Option<String>,
    /// Events that name this execution, or whose aggregate has this id.
    pub execution: Option<String>,
    /// Leaves out services whose name begins with `system-`.
    pub exclude_system: bool,
    /// In what order; events that are equal in it stand in the order of the log.
    pub sort: BrowseSort,
    /// How many events are left out at the beginning.
    pub skip: u64,
    /// The length of the page, 1 to 1,000.
    pub limit: usize,
    /// Resumes after another page; then nothing can be skipped.
    pub cursor: Option<String>,
    /// How far the total is counted; to its end without it. Counting can cost as much as there is to count.
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

/// Most events that can be skipped: a cursor leads further.
const SKIP_MAX: u64 = 100_000;
/// What a page can be sorted by, as it is asked for and as it is stored.
const SORTS: [(&str, &str); 5] = [
    ("timestamp", "timestamp"),
    ("sequence_number", "_id"),
    ("event_type", "event_type"),
    ("aggregate_id", "aggregate_id"),
    ("stored_at", "stored_at"),
];

impl BrowseSort {
    /// Reads the name of a field, with `-` before it for the highest first.
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
                let message = format!("{text:?} is not one of {}, with - before it or without", known.join(", "));
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
    /// `invalid_query`, with the parameter.
    pub fn validate(&self) -> Result<(), Invalid> {
        let invalid = |path: &str, message: String| Err(Invalid::new(Code::InvalidQuery, path, message));
        if !(1..=limits::PAGE_MAX).contains(&self.limit) {
            return invalid("limit", format!("{} is not between 1 and {}", self.limit, limits::PAGE_MAX));
        }
        if self.skip > SKIP_MAX {
            return invalid("skip", format!("{} is more than {SKIP_MAX}; use the cursor of a page", self.skip));
        }
        if self.skip > 0 && self.cursor.is_some() {
            return invalid("skip", "stands beside a cursor; give one of both".to_owned());
        }
        self.filter.validate("")
    }

    /// Returns the condition that events meet.
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

    /// Returns the query of records in a collection.
    pub fn records(&self, collection: &str) -> RecordQuery {
        let query = RecordQuery::new(collection).matching(self.condition()).limit(self.limit);
        match (self.sort.path, self.sort.direction) {
            ("_id", Direction::Ascending) => query,
            (path, Direction::Ascending) => query.ascending(path),
            (path, Direction::Descending) => query.descending(path),
        }
    }
}
