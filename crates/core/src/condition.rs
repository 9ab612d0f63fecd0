//! Conditions on documents: which records a reader or a change means.

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
/// A path names a field, and with dots a field inside it (`state.owner.name`); a number names an element of an array
/// (`lines.0.price`). Where a path leads to an array, the array and each of its elements are tested, and one that passes is enough;
/// where it leads through an array, every element is followed. Values of different types never pass `Gt`, `Gte`, `Lt` and `Lte`;
/// numbers are one type. A missing field is null. `Ne`, `NotIn` and `Nor` are the opposites of `Eq`, `In` and `Or`, so documents
/// without the field pass them.
///
/// As JSON it is `{"field", "operator", "value", "children", "options"}`, the spelling of Wow's queries, with values as Extended JSON, for
/// example `{"operator":"AND","children":[{"field":"state.total","operator":"GT","value":5},{"operator":"OWNER_ID","value":"o"}]}`.
/// What is left out is field `""`, operator `ALL`, value `""`.
///
/// A store judges what it is given: names of fields as they are stored, and times that do not move. [`resolved`](Self::resolved) makes that
/// of what a person asks for: `today`, `aggregateId` of a snapshot.
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
        /// Where the field is.
        path: String,
        /// What it must pass.
        test: Test,
    },
    /// The aggregate that the document is of is deleted, or is not. Unlike a test of the field `deleted` it also says that the question was
    /// thought of: a query of snapshots without it finds only what is not deleted.
    Deleted(Deletion),
    /// Words of the document's text, by the collection's text index. It stands alone or joined by `And`.
    Match(String),
    /// A filter document of MongoDB, as it is.
    Raw(Document),
}

/// Which aggregates are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Deletion {
    /// Those that are not deleted.
    Active,
    /// Those that are deleted.
    Deleted,
    /// Both.
    All,
}

/// What a field must pass.
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
    /// Is not less than the first and not greater than the second. In an array, each end may be kept by another element.
    Between(Bson, Bson),
    /// Is there, null or not; or is missing.
    Exists(bool),
    /// Is an array with all of the values, or is equal to all of them. No values: nothing passes.
    AllIn(Vec<Bson>),
    /// Is an array with at least one document that passes a condition of its own.
    ElemMatch(Box<Condition>),
    /// Is a text with this inside.
    Contains(Fragment),
    /// Is a text that begins with this.
    StartsWith(Fragment),
    /// Is a text that ends with this, or with this and a line feed.
    EndsWith(Fragment),
    /// Lies in a window of time that moves with the clock. [`Condition::resolved`] says which.
    Within(Window),
}
