//! Records, their collections and their changes.

use utoipa::ToSchema;

use super::condition::{Condition, Projection, SortBy};
use crate::payload::Document;

/// A collection and its indexes.
#[derive(ToSchema)]
pub(crate) struct Collection {
    name: String,
    indexes: Vec<Index>,
    /// Its changes are noted and can be followed; false when absent.
    #[schema(nullable = false)]
    feed: Option<bool>,
}

/// A page of collections.
#[derive(ToSchema)]
pub(crate) struct Collections {
    collections: Vec<Collection>,
    /// What `after` is for the next page; null on an empty page.
    #[schema(required = true)]
    next: Option<String>,
}

/// The indexes that a collection has at least, and whether its changes can be followed.
#[derive(ToSchema)]
pub(crate) struct Declaration {
    #[schema(nullable = false)]
    indexes: Option<Vec<Index>>,
    /// Asks for a feed of changes. A collection keeps its feed.
    #[schema(nullable = false)]
    feed: Option<bool>,
}

/// An index.
#[derive(ToSchema)]
struct Index {
    #[schema(min_items = 1, max_items = 32)]
    fields: Vec<SortBy>,
    #[schema(nullable = false)]
    name: Option<String>,
    #[schema(nullable = false)]
    unique: Option<bool>,
    #[schema(nullable = false)]
    text: Option<bool>,
    #[schema(nullable = false)]
    hashed: Option<bool>,
    #[schema(nullable = false)]
    sparse: Option<bool>,
    #[schema(nullable = false)]
    partial: Option<Condition>,
    #[schema(nullable = false)]
    expires_after_seconds: Option<u32>,
}

/// What is found, and how it is shown.
#[derive(ToSchema)]
pub(crate) struct FindQuery {
    #[schema(nullable = false)]
    condition: Option<Condition>,
    #[schema(nullable = false)]
    projection: Option<Projection>,
    #[schema(nullable = false)]
    sort: Option<Vec<SortBy>>,
    /// 100 when absent.
    #[schema(minimum = 1, maximum = 1_000, nullable = false)]
    limit: Option<u64>,
    /// The `next` of the page before.
    #[schema(nullable = false)]
    after: Option<String>,
}

/// The id of a record, of any type.
#[derive(ToSchema)]
pub(crate) struct RecordId {
    id: serde_json::Value,
}

/// A record.
#[derive(ToSchema)]
pub(crate) struct Record {
    /// The number of the write that the record is of.
    revision: u64,
    document: Document,
}

/// A page of records.
#[derive(ToSchema)]
pub(crate) struct RecordPage {
    records: Vec<Record>,
    /// The `after` of the next page; null when there was nothing more.
    #[schema(required = true)]
    next: Option<String>,
}

/// A number of documents.
#[derive(ToSchema)]
pub(crate) struct Count {
    count: u64,
}

/// Changes of records, all or none.
#[derive(ToSchema)]
pub(crate) struct Changes {
    #[schema(max_items = 10_000)]
    changes: Vec<RecordChange>,
}

#[derive(ToSchema)]
#[serde(rename_all = "lowercase")]
enum RecordChange {
    Insert(Insert),
    Replace(Replace),
    Delete(Delete),
}

#[derive(ToSchema)]
struct Insert {
    collection: String,
    document: Document,
}

#[derive(ToSchema)]
struct Replace {
    collection: String,
    document: Document,
    expected: Expected,
}

#[derive(ToSchema)]
struct Delete {
    collection: String,
    id: serde_json::Value,
    expected: Expected,
}

/// What must be there for the change to happen.
#[derive(ToSchema)]
#[serde(rename_all = "snake_case")]
enum Expected {
    Present,
    Revision(u64),
    Matching(Condition),
    AbsentOr(Condition),
}

/// The revision that each change gave to its record.
#[derive(ToSchema)]
pub(crate) struct ChangeNumbers {
    numbers: Vec<u64>,
}

/// What happened to a record.
#[derive(ToSchema)]
pub(crate) struct Change {
    number: u64,
    collection: String,
    id: serde_json::Value,
    what: What,
}

#[derive(ToSchema)]
#[serde(rename_all = "lowercase")]
enum What {
    Inserted,
    Replaced,
    Deleted,
}

/// A page of changes.
#[derive(ToSchema)]
pub(crate) struct ChangePage {
    changes: Vec<Change>,
    /// The `after` of the next page.
    next: u64,
}
