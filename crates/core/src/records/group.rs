//! Groups of records: for each value of a field, the number of records, with sums, averages, lowest and highest values of other fields.

mod figures;
mod held;

use bson::Bson;

use super::Cursor;
use super::index::key_path;
use crate::{Code, Condition, DocumentKind, Invalid, Now, limits};

pub use held::Grouping;

/// A query for groups of records.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupQuery {
    /// The collection to read.
    pub collection: String,
    /// Selects the records to group.
    pub condition: Condition,
    /// The path whose value is the key of a record's group; `None` puts all records in one group, whose key is null.
    pub by: Option<String>,
    /// Groups dates by the unit of time that they are in. Values that are not dates then belong to the group null.
    pub every: Option<Every>,
    /// The figures to compute for each group.
    pub figures: Vec<Figure>,
    /// The most groups of a page: 1 to [`PAGE_MAX`](limits::PAGE_MAX). A page may hold fewer because of its bytes; only a missing cursor
    /// means the end.
    pub limit: usize,
    /// Resumes after the last group of another page.
    pub after: Option<Cursor>,
}

/// A unit of time, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Every {
    /// An hour.
    Hour,
    /// A day.
    Day,
}

/// A value that is computed for each group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Figure {
    /// Its name in the result.
    pub name: String,
    /// The aggregation that computes it.
    pub what: Aggregation,
    /// The path of the values that it aggregates.
    pub path: String,
}

/// An aggregation of values. Records without a value at its path are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aggregation {
    /// The sum of the numbers: an int64 if all are integers and the sum fits, otherwise a double. 0 if there are none.
    Sum,
    /// The average of the numbers, as a double. Null if there are none.
    Avg,
    /// The lowest value of any type, in sort order. Null if there are none.
    Min,
    /// The highest value of any type, in sort order. Null if there are none.
    Max,
}

/// A group of at least one record.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// The value that its records have in common. Equal numbers are one key, whatever their types.
    pub key: Bson,
    /// The number of its records.
    pub count: u64,
    /// The figures, in the order of the query.
    pub figures: Vec<Bson>,
}

/// A page of groups.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GroupPage {
    /// The groups, in the order of their keys.
    pub groups: Vec<Group>,
    /// The cursor of the next page; `None` if there are no more groups.
    pub next: Option<Cursor>,
}

impl Every {
    /// Returns its name in requests, which is also MongoDB's.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
        }
    }

    /// Returns the unit with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Hour, Self::Day].into_iter().find(|unit| unit.name() == name)
    }

    /// Returns its length in milliseconds.
    pub fn millis(self) -> i64 {
        match self {
            Self::Hour => 3_600_000,
            Self::Day => 86_400_000,
        }
    }
}

impl Aggregation {
    /// All aggregations.
    pub const ALL: [Self; 4] = [Self::Sum, Self::Avg, Self::Min, Self::Max];

    /// Returns its name in requests.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Avg => "avg",
            Self::Min => "min",
            Self::Max => "max",
        }
    }

    /// Returns the aggregation with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|what| what.name() == name)
    }

    /// Returns whether it applies to numbers only.
    pub fn of_numbers(self) -> bool {
        matches!(self, Self::Sum | Self::Avg)
    }
}

impl GroupQuery {
    /// Counts all records of a collection, in one group.
    pub fn new(collection: impl Into<String>) -> Self {
        Self {
            collection: collection.into(),
            condition: Condition::All,
            by: None,
            every: None,
            figures: Vec::new(),
            limit: limits::PAGE_DEFAULT,
            after: None,
        }
    }

    /// Groups by the value at this path.
    pub fn by(self, path: impl Into<String>) -> Self {
        Self { by: Some(path.into()), ..self }
    }

    /// Groups dates by the unit of time that they are in.
    pub fn every(self, unit: Every) -> Self {
        Self { every: Some(unit), ..self }
    }

    /// Groups only the records that match this condition.
    pub fn matching(self, condition: Condition) -> Self {
        Self { condition, ..self }
    }

    /// Adds a figure under a name.
    pub fn figure(mut self, name: impl Into<String>, what: Aggregation, path: impl Into<String>) -> Self {
        self.figures.push(Figure { name: name.into(), what, path: path.into() });
        self
    }

    /// Returns at most this many groups.
    pub fn limit(self, limit: usize) -> Self {
        Self { limit, ..self }
    }

    /// Resumes after the last group of another page.
    pub fn after(self, cursor: Cursor) -> Self {
        Self { after: Some(cursor), ..self }
    }

    /// Returns the query with its condition resolved; see [`Condition::resolved`].
    ///
    /// # Errors
    /// `invalid_condition`.
    pub fn resolved(self, now: &Now) -> Result<Self, Invalid> {
        Ok(Self { condition: self.condition.resolved(DocumentKind::Record, now)?, ..self })
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
        if self.every.is_some() && self.by.is_none() {
            return invalid("every", "needs the path of a date in by".to_owned());
        }
        if let Some(Err(message)) = self.by.as_deref().map(group_path) {
            return invalid("by", message);
        }
        if self.figures.len() > limits::GROUP_FIGURES_MAX {
            return invalid("figures", format!("have more than {} entries", limits::GROUP_FIGURES_MAX));
        }
        for (n, Figure { name, path, .. }) in self.figures.iter().enumerate() {
            if name.is_empty() || name.len() > limits::PATH_BYTES_MAX || name.contains('\0') {
                let message = format!("need names of 1 to {} bytes without NUL", limits::PATH_BYTES_MAX);
                return invalid("figures", message);
            }
            if self.figures[..n].iter().any(|earlier| earlier.name == *name) {
                return invalid("figures", format!("have {name:?} twice"));
            }
            if let Err(message) = group_path(path) {
                return invalid(&format!("figures.{name}"), message);
            }
        }
        Ok(())
    }

    /// Returns the key after which the page begins.
    ///
    /// # Errors
    /// `invalid_query` if the cursor does not belong to this query.
    pub fn after_key(&self) -> Result<Option<Bson>, Invalid> {
        let read = |cursor: &Cursor| {
            held::read_cursor(self, cursor.as_str()).ok_or_else(|| {
                let message = "is not a cursor of this query; start again without a cursor";
                Invalid::new(Code::InvalidQuery, "after", message)
            })
        };
        self.after.as_ref().map(read).transpose()
    }

    /// Returns the cursor of the page that follows the group with this key.
    pub fn cursor_after(&self, key: &Bson) -> Cursor {
        held::write_cursor(self, key)
    }
}

/// Returns the error for a sum or average over Decimal128 values.
pub fn decimals_not_summed(name: &str) -> Invalid {
    let message = "covers a Decimal128 value in at least one record, but sums and averages support only int32, \
                   int64 and double; store amounts as whole numbers, or request min and max";
    Invalid::new(Code::InvalidQuery, format!("figures.{name}"), message)
}

fn group_path(path: &str) -> Result<(), String> {
    key_path(path)?;
    if path.split('.').count() > limits::DATA_DEPTH_MAX {
        return Err(format!("field {path:?} leads through more than {} documents", limits::DATA_DEPTH_MAX));
    }
    if path.split('.').any(|name| name.starts_with('$')) {
        return Err(format!("field {path:?} has a name that begins with a dollar, which MongoDB reads as an operator"));
    }
    Ok(())
}
