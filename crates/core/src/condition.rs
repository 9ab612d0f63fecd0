//! Conditions on documents, which select records to read or change.

mod build;
mod document;
mod fragment;
mod guard;
mod json;
mod matcher;
mod operator;
mod path;
mod paths;
mod query_text;
mod raw;
mod resolve;
mod spelling;
mod text;
mod validate;
mod window;

#[cfg(test)]
mod tests;

use bson::{Bson, Document};

pub use build::Nested;
pub(crate) use document::{as_it_is, read as read_condition};
pub use fragment::Fragment;
pub use guard::QueryGuard;
pub use matcher::Matcher;
pub use resolve::{DocumentKind, Now};
pub(crate) use validate::valid_path;
pub use window::{Days, TimeOfDay, Window};

/// A condition on a document, with MongoDB's meaning on every backend.
///
/// A path names a field, and with dots a field inside it (`state.owner.name`); a number names an element of an array (`lines.0.price`). If
/// a path leads to an array, the array and each of its elements are tested, and one that passes is enough. If it leads through an array,
/// it follows every element. Values of different types never pass `Gt`, `Gte`, `Lt` and `Lte`; all numbers are one type. A missing field
/// counts as null. `Ne`, `NotIn` and `Nor` are the opposites of `Eq`, `In` and `Or`, so documents without the field pass them.
///
/// As JSON it is `{"field", "operator", "value", "children", "options"}`, the spelling of Wow's queries, with values as Extended JSON, for
/// example `{"operator":"AND","children":[{"field":"state.total","operator":"GT","value":5},{"operator":"OWNER_ID","value":"o"}]}`. The
/// defaults are field `""`, operator `ALL` and value `""`.
///
/// A store evaluates a condition literally: with stored field names and fixed times. [`resolved`](Self::resolved) converts a condition as
/// a person writes it, for example with `today`, or with `aggregateId` of a snapshot.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
#[allow(clippy::large_enum_variant, reason = "nearly all of them are fields")]
pub enum Condition {
    /// Every document.
    #[default]
    All,
    /// All of these hold.
    And(Vec<Condition>),
    /// At least one of these holds.
    Or(Vec<Condition>),
    /// None of these holds.
    Nor(Vec<Condition>),
    /// A field passes a test.
    Field {
        /// The path of the field.
        path: String,
        /// The test that it must pass.
        test: Test,
    },
    /// Whether the document's aggregate is deleted. Unlike a test of the field `deleted`, it also shows that the query takes deletion into
    /// account: a query of snapshots without it finds only aggregates that are not deleted.
    Deleted(Deletion),
    /// Words of the document's text, searched with the collection's text index. It is the whole condition, or joined to others by `And`.
    Match(String),
    /// A MongoDB filter document. The embedded store refuses operators that it does not know.
    Raw(Document),
}

/// Which aggregates a condition selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Deletion {
    /// Those that are not deleted.
    Active,
    /// Those that are deleted.
    Deleted,
    /// Both.
    All,
}

/// The test of a field.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Test {
    /// Is equal to the value; null is equal to a missing field.
    Eq(Bson),
    /// Is not equal to the value.
    Ne(Bson),
    /// Is greater than the value, and of its type.
    Gt(Bson),
    /// Is greater than the value or equal to it, and of its type.
    Gte(Bson),
    /// Is less than the value, and of its type.
    Lt(Bson),
    /// Is less than the value or equal to it, and of its type.
    Lte(Bson),
    /// Is equal to one of the values.
    In(Vec<Bson>),
    /// Is equal to none of the values.
    NotIn(Vec<Bson>),
    /// Is at least the first value and at most the second. In an array, different elements may satisfy the two bounds.
    Between(Bson, Bson),
    /// Exists, null or not; or, with `false`, is missing.
    Exists(bool),
    /// Is an array with all of the values, or is equal to each of them. With no values, nothing passes.
    AllIn(Vec<Bson>),
    /// Is an array with at least one document that matches the inner condition.
    ElemMatch(Box<Condition>),
    /// Is a string that contains this.
    Contains(Fragment),
    /// Is a string that begins with this.
    StartsWith(Fragment),
    /// Is a string that ends with this, or with this and a line feed.
    EndsWith(Fragment),
    /// Is in a window of time relative to the clock. [`Condition::resolved`] converts it to fixed times.
    Within(Window),
}
