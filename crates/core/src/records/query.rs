//! Queries of records, and the pages they return.

use std::fmt;

use super::index::key_path;
use super::{Projection, Record};
use crate::order::Direction;
use crate::{Code, Condition, DocumentKind, Invalid, Now, limits};

/// A query for records: which ones, in what order, and which of their fields.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordQuery {
    /// The collection to read.
    pub collection: String,
    /// Selects records.
    pub condition: Condition,
    /// The order of the records. Equal ones are sorted by `_id`, in the direction of the last field; if this is empty, by `_id`,
    /// ascending.
    pub sort: Vec<SortBy>,
    /// The fields to return.
    pub projection: Projection,
    /// The most records of a page: 1 to [`PAGE_MAX`](limits::PAGE_MAX). A page may hold fewer because of its bytes; only a missing cursor
    /// means the end.
    pub limit: usize,
    /// Resumes after the last record of another page.
    pub after: Option<Cursor>,
}

/// One field of a sort.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SortBy {
    /// The path of the field.
    pub path: String,
    /// The direction of the sort.
    pub direction: Direction,
}

/// The end of a page, from which the next page of the same query resumes. Its text is opaque to everything but the store that created it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor(String);

impl Cursor {
    /// Creates a cursor from its text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns its text: letters, digits, `-` and `_`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A page of records.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RecordPage {
    /// The records, in order.
    pub records: Vec<Record>,
    /// The cursor of the next page; `None` if there are no more records.
    pub next: Option<Cursor>,
}

impl RecordQuery {
    /// Reads all records of a collection, by `_id`.
    pub fn new(collection: impl Into<String>) -> Self {
        Self {
            collection: collection.into(),
            condition: Condition::All,
            sort: Vec::new(),
            projection: Projection::Whole,
            limit: limits::PAGE_DEFAULT,
            after: None,
        }
    }

    /// Returns only the records that match this condition.
    pub fn matching(self, condition: Condition) -> Self {
        Self { condition, ..self }
    }

    /// Sorts by this path, ascending, after any earlier sort fields.
    pub fn ascending(self, path: impl Into<String>) -> Self {
        self.sorted(path, Direction::Ascending)
    }

    /// Sorts by this path, descending, after any earlier sort fields.
    pub fn descending(self, path: impl Into<String>) -> Self {
        self.sorted(path, Direction::Descending)
    }

    fn sorted(mut self, path: impl Into<String>, direction: Direction) -> Self {
        self.sort.push(SortBy { path: path.into(), direction });
        self
    }

    /// Returns at most this many records.
    pub fn limit(self, limit: usize) -> Self {
        Self { limit, ..self }
    }

    /// Returns only part of each document.
    pub fn projection(self, projection: Projection) -> Self {
        Self { projection, ..self }
    }

    /// Resumes after the last record of another page.
    pub fn after(self, cursor: Cursor) -> Self {
        Self { after: Some(cursor), ..self }
    }

    /// Returns the query with its condition resolved (see [`Condition::resolved`]), and with stored field names in projection and sort.
    ///
    /// # Errors
    /// `invalid_condition`.
    pub fn resolved(mut self, kind: DocumentKind, now: &Now) -> Result<Self, Invalid> {
        self.condition = self.condition.resolved(kind, now)?;
        self.projection = self.projection.stored(kind);
        for by in &mut self.sort {
            by.path = kind.stored(&by.path).to_owned();
        }
        Ok(self)
    }

    /// Checks everything that can be checked without a store.
    ///
    /// # Errors
    /// `invalid_query` or `invalid_condition`.
    pub fn validate(&self) -> Result<(), Invalid> {
        let invalid = |path: &str, message: String| Err(Invalid::new(Code::InvalidQuery, path, message));
        self.condition.validate()?;
        if !(1..=limits::PAGE_MAX).contains(&self.limit) {
            return invalid("limit", format!("is {}; 1 to {} are allowed", self.limit, limits::PAGE_MAX));
        }
        if self.sort.len() > limits::INDEX_FIELDS_MAX {
            return invalid("sort", format!("has more than {} fields", limits::INDEX_FIELDS_MAX));
        }
        for (n, by) in self.sort.iter().enumerate() {
            if let Err(message) = key_path(&by.path) {
                return invalid("sort", message);
            }
            if self.sort[..n].iter().any(|earlier| earlier.path == by.path) {
                return invalid("sort", format!("has the field {:?} twice", by.path));
            }
        }
        self.projection.check().or_else(|message| invalid("projection", message))
    }
}
