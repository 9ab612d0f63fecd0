//! Conditions and the queries that carry them.

use utoipa::ToSchema;

use crate::payload::Document;

/// The condition on a document; `{}` matches every document.
#[derive(ToSchema)]
#[schema(no_recursion)]
pub(crate) struct Condition {
    /// A path with dots.
    #[schema(nullable = false)]
    field: Option<String>,
    /// `ALL`, `AND`, `OR`, `NOR`, `EQ`, `GT`, `IN` and so on; docs/http.md lists them.
    #[schema(nullable = false)]
    operator: Option<String>,
    value: Option<serde_json::Value>,
    #[schema(nullable = false)]
    children: Option<Vec<Condition>>,
    #[schema(nullable = false)]
    options: Option<Document>,
}

/// Only these fields, or all fields but these; not both.
#[derive(ToSchema)]
pub(super) struct Projection {
    #[schema(nullable = false)]
    include: Option<Vec<String>>,
    #[schema(nullable = false)]
    exclude: Option<Vec<String>>,
}

#[derive(ToSchema)]
pub(super) struct SortBy {
    field: String,
    #[schema(nullable = false)]
    direction: Option<Direction>,
}

#[derive(ToSchema)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum Direction {
    Asc,
    Desc,
}

/// One document, by a condition.
#[derive(ToSchema)]
pub(crate) struct SingleQuery {
    #[schema(nullable = false)]
    condition: Option<Condition>,
    #[schema(nullable = false)]
    projection: Option<Projection>,
    #[schema(nullable = false)]
    sort: Option<Vec<SortBy>>,
}

/// Several documents, by a condition.
#[derive(ToSchema)]
pub(crate) struct ListQuery {
    #[schema(nullable = false)]
    condition: Option<Condition>,
    #[schema(nullable = false)]
    projection: Option<Projection>,
    #[schema(nullable = false)]
    sort: Option<Vec<SortBy>>,
    #[schema(nullable = false)]
    limit: Option<u64>,
}

/// A page of documents, by a condition.
#[derive(ToSchema)]
pub(crate) struct PageQuery {
    #[schema(nullable = false)]
    condition: Option<Condition>,
    #[schema(nullable = false)]
    projection: Option<Projection>,
    #[schema(nullable = false)]
    sort: Option<Vec<SortBy>>,
    #[schema(nullable = false)]
    pagination: Option<Pagination>,
}

#[derive(ToSchema)]
struct Pagination {
    /// The number of the page, from 1.
    #[schema(minimum = 1)]
    index: u64,
    #[schema(minimum = 1)]
    size: u64,
}

/// The documents to count. Queries of snapshots and commits also accept a bare condition.
#[derive(ToSchema)]
pub(crate) struct CountQuery {
    #[schema(nullable = false)]
    condition: Option<Condition>,
}

/// A page of documents, and how many there are.
#[derive(ToSchema)]
pub(crate) struct PagedAnswer {
    total: u64,
    list: Vec<Document>,
}

/// The plan of a query.
#[derive(ToSchema)]
pub(crate) struct Explained {
    /// The index that is used; null for a full scan.
    #[schema(required = true)]
    index: Option<String>,
    entries_examined: u64,
    documents_examined: u64,
    found: u64,
    /// Whether the results had to be sorted.
    sorted: bool,
}
