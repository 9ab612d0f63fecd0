//! Records, their collections and their changes.

use std::collections::BTreeMap;

use utoipa::ToSchema;

use super::condition::{Condition, Projection, SortBy};
use crate::payload::Document;

/// A collection and its indexes.
#[derive(ToSchema)]
pub(crate) struct Collection {
    name: String,
    indexes: Vec<Index>,
    /// Whether its changes are recorded and can be followed; false when absent.
    #[schema(nullable = false)]
    feed: Option<bool>,
}

/// A page of collections.
#[derive(ToSchema)]
pub(crate) struct Collections {
    collections: Vec<Collection>,
    /// The `after` of the next page; null on an empty page.
    #[schema(required = true)]
    next: Option<String>,
}

/// The indexes to declare for a collection, and whether its changes can be followed.
#[derive(ToSchema)]
pub(crate) struct Declaration {
    #[schema(nullable = false)]
    indexes: Option<Vec<Index>>,
    /// Whether the collection gets a feed of changes. A collection keeps its feed.
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
    /// The language of a text index; none when absent.
    #[schema(nullable = false)]
    language: Option<String>,
    /// The field from which MongoDB takes the language of a document.
    language_override: Option<String>,
    #[schema(nullable = false)]
    hashed: Option<bool>,
    #[schema(nullable = false)]
    sparse: Option<bool>,
    #[schema(nullable = false)]
    partial: Option<Condition>,
    #[schema(nullable = false)]
    expires_after_seconds: Option<u32>,
}

/// The condition, and how the documents are returned.
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
    /// The `next` of the previous page.
    #[schema(nullable = false)]
    after: Option<String>,
}

/// The records to group, the key, and the figures of each group.
#[derive(ToSchema)]
pub(crate) struct GroupQuery {
    #[schema(nullable = false)]
    condition: Option<Condition>,
    /// The path whose value is the key; one group of all records when absent.
    #[schema(nullable = false)]
    by: Option<String>,
    /// Groups dates by their unit of time, in UTC.
    #[schema(nullable = false)]
    every: Option<Every>,
    /// By name, at most 16.
    #[schema(nullable = false)]
    figures: Option<BTreeMap<String, Figure>>,
    /// 100 when absent.
    #[schema(minimum = 1, maximum = 1_000, nullable = false)]
    limit: Option<u64>,
    /// The `next` of the previous page.
    #[schema(nullable = false)]
    after: Option<String>,
}

#[derive(ToSchema)]
#[serde(rename_all = "lowercase")]
enum Every {
    Hour,
    Day,
}

/// How a figure is computed, and the path of its values.
#[derive(ToSchema)]
#[serde(rename_all = "lowercase")]
enum Figure {
    Sum(String),
    Avg(String),
    Min(String),
    Max(String),
}

/// Records with equal keys.
#[derive(ToSchema)]
struct Group {
    #[schema(required = true)]
    key: serde_json::Value,
    count: u64,
    figures: BTreeMap<String, serde_json::Value>,
}

/// A page of groups, in the order of their keys.
#[derive(ToSchema)]
pub(crate) struct GroupPage {
    groups: Vec<Group>,
    /// The `after` of the next page; null if there are no more.
    #[schema(required = true)]
    next: Option<String>,
}

/// The id of a record, of any type.
#[derive(ToSchema)]
pub(crate) struct RecordId {
    id: serde_json::Value,
}

/// A record.
#[derive(ToSchema)]
pub(crate) struct Record {
    /// The number of the write that produced the record.
    revision: u64,
    document: Document,
}

/// A page of records.
#[derive(ToSchema)]
pub(crate) struct RecordPage {
    records: Vec<Record>,
    /// The `after` of the next page; null if there are no more.
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
    Set(Set),
    Check(Check),
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

/// Changes the named fields and leaves the others as they are.
#[derive(ToSchema)]
struct Set {
    collection: String,
    id: serde_json::Value,
    /// Paths and their values.
    #[schema(nullable = false)]
    fields: Option<BTreeMap<String, serde_json::Value>>,
    /// Paths that are removed.
    #[schema(nullable = false)]
    unset: Option<Vec<String>>,
    expected: Expected,
}

/// Changes nothing; the batch is written only if the record is as expected.
#[derive(ToSchema)]
struct Check {
    collection: String,
    id: serde_json::Value,
    expected: Expected,
}

/// The expected state of the record.
#[derive(ToSchema)]
#[serde(rename_all = "snake_case")]
enum Expected {
    Present,
    Absent,
    Revision(u64),
    Matching(Condition),
    AbsentOr(Condition),
}

/// The revision that each change gave to its record.
#[derive(ToSchema)]
pub(crate) struct ChangeNumbers {
    numbers: Vec<u64>,
}

/// The kind of change of a record.
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
