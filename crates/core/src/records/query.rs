//! What a reader of records asks for, and a page of the answer.

use std::fmt;

use super::index::key_path;
use super::{Projection, Record};
use crate::order::Direction;
use crate::{Code, Condition, DocumentKind, Invalid, Now, limits};

/// Which records are wanted, and how.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordQuery {
    /// Where.
    pub collection: String,
    /// Which.
    pub condition: Condition,
    /// In what order, and by `_id` where they are equal, in the direction of the last field; by `_id` going up if it is empty.
    pub sort: Vec<SortBy>,
    /// Which of their fields.
    pub projection: Projection,
    /// At most how many: 1 to [`PAGE_MAX`](limits::PAGE_MAX). A page may hold fewer because of its bytes; the cursor tells.
    pub limit: usize,
    /// Go on where another page ended.
    pub after: Option<Cursor>,
}

/// One field of a sort.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SortBy {
    /// Where the field is.
    pub path: String,
    /// Which end comes first.
    pub direction: Direction,
}

/// Where a page ended, for the same query's next page. Its text means nothing to anyone but the store that made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor(String);

impl Cursor {
    /// A cursor from its text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Its text: letters, digits, `-` and `_`.
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
    /// Where to go on; none when there was nothing more.
    pub next: Option<Cursor>,
}

impl RecordQuery {
    /// All records of a collection, by `_id`.
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

    /// Only those for which this holds.
    pub fn matching(self, condition: Condition) -> Self {
        Self { condition, ..self }
    }

    /// Lowest first, after what was asked before.
    pub fn ascending(self, path: impl Into<String>) -> Self {
        self.sorted(path, Direction::Ascending)
    }

    /// Highest first, after what was asked before.
    pub fn descending(self, path: impl Into<String>) -> Self {
        self.sorted(path, Direction::Descending)
    }

    fn sorted(mut self, path: impl Into<String>, direction: Direction) -> Self {
        self.sort.push(SortBy { path: path.into(), direction });
        self
    }

    /// At most so many.
    pub fn limit(self, limit: usize) -> Self {
        Self { limit, ..self }
    }

    /// Only part of each document.
    pub fn projection(self, projection: Projection) -> Self {
        Self { projection, ..self }
    }

    /// From where another page ended.
    pub fn after(self, cursor: Cursor) -> Self {
        Self { after: Some(cursor), ..self }
    }

    /// The query that a store is asked: see [`Condition::resolved`]. Projection and sort are converted too.
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
