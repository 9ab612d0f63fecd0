//! The port of queries: finds snapshots and commits of aggregates by their content. Snapshots hold the state, commits what happened.
//!
//! ```text
//!   services.rs   typed: SnapshotQueryService, EventStreamQueryService             typed.rs   their results
//!   asked.rs      from the caller's query to the store's                            answer.rs  from stored documents to results
//!   of_store.rs   the port over a store's records and log: of_records.rs, of_log.rs
//!                 candidates.rs (narrows a search), commit_document.rs (a commit as a document), lowest.rs (the first in order)
//! ```

mod answer;
mod asked;
mod candidates;
mod commit_document;
mod lowest;
mod of_log;
mod of_records;
mod of_store;
mod services;
mod typed;

use async_trait::async_trait;
use bson::raw::RawDocumentBuf;
use bytestring::ByteString;

use crate::order::Direction;
use crate::{Condition, DocumentKind, Explained, Invalid, Projection, ReadError, SortBy, valid_name};

pub use answer::Answered;
pub use asked::StoredQuery;
pub use of_store::{DocumentQueries, DocumentReads, StoreDocuments};
pub use services::{EventStreamQueryService, SnapshotQueryService};
pub use typed::{MaterializedSnapshot, QueriedCommit, QueriedEvent};

/// The documents to query: those of the aggregates of one name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum QuerySource {
    /// Their snapshots. Those of deleted aggregates are excluded unless the condition selects them.
    Snapshots(ByteString),
    /// Their commits.
    Commits(ByteString),
}

impl QuerySource {
    /// Returns the aggregates' name.
    pub fn aggregate(&self) -> &ByteString {
        match self {
            Self::Snapshots(name) | Self::Commits(name) => name,
        }
    }

    /// Returns the kind of the documents.
    pub fn kind(&self) -> DocumentKind {
        match self {
            Self::Snapshots(_) => DocumentKind::Snapshot,
            Self::Commits(_) => DocumentKind::Commit,
        }
    }

    /// Checks the name.
    ///
    /// # Errors
    /// `invalid_name`.
    pub fn validate(&self) -> Result<(), Invalid> {
        match self {
            Self::Snapshots(name) => crate::snapshot_collection(name).map(drop),
            Self::Commits(name) => valid_name("aggregate.name", name),
        }
    }
}

/// Selects documents, their fields, and their order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DocumentQuery {
    /// The condition. Fields have the names that results show: `aggregateId`, `state.total`, `body.name`.
    pub condition: Condition,
    /// The fields to return; those that identify a document are always included unless they are excluded explicitly.
    pub projection: Projection,
    /// The sort order. Documents that compare equal are ordered by id, in the direction of the last field; without a sort, ascending by id.
    pub sort: Vec<SortBy>,
    /// The most bytes of a result; a larger one is refused with `query_answer_too_large`. `None` for no limit.
    pub bytes_max: Option<usize>,
}

impl DocumentQuery {
    /// Selects the documents that match this condition.
    pub fn new(condition: Condition) -> Self {
        Self { condition, ..Self::default() }
    }

    /// Adds an ascending sort field.
    pub fn ascending(self, path: impl Into<String>) -> Self {
        self.sorted(path, Direction::Ascending)
    }

    /// Adds a descending sort field.
    pub fn descending(self, path: impl Into<String>) -> Self {
        self.sorted(path, Direction::Descending)
    }

    fn sorted(mut self, path: impl Into<String>, direction: Direction) -> Self {
        self.sort.push(SortBy { path: path.into(), direction });
        self
    }

    /// Returns only these fields.
    pub fn projection(self, projection: Projection) -> Self {
        Self { projection, ..self }
    }

    /// Refuses a result of more bytes.
    pub fn bytes_max(self, bytes: usize) -> Self {
        Self { bytes_max: Some(bytes), ..self }
    }
}

impl From<Condition> for DocumentQuery {
    fn from(condition: Condition) -> Self {
        Self::new(condition)
    }
}

/// Selects a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pagination {
    /// The number of the page, from 1.
    pub index: u64,
    /// The number of documents on a page; 0 puts all of them on the first page.
    pub size: u64,
}

impl Default for Pagination {
    /// Returns the first page of ten documents.
    fn default() -> Self {
        Self { index: 1, size: 10 }
    }
}

/// A page of results, with the total number of results.
#[derive(Debug, Clone, PartialEq)]
pub struct Paged<T> {
    /// The number of results on all pages.
    pub total: u64,
    /// The results of this page.
    pub list: Vec<T>,
}

/// The queries of one tenant.
///
/// Conditions, sorts and projections use the field names that results show: those that the layout of Wow's Mongo extension has in a
/// program.
///
/// ```text
/// snapshots  aggregateId, contextName, aggregateName, tenantId, ownerId, spaceId, version, eventId, firstOperator, operator,
///            firstEventTime, eventTime, state{}, snapshotTime, tags{key: [text]}, deleted, (annals{stateRevision})
/// commits    id, contextName, aggregateName, header{}, aggregateId, tenantId, ownerId, spaceId, commandId, requestId, version,
///            body[{id, name, revision, bodyType, body{}, (tags[]), (public), (metadata{})}], createTime,
///            (annals{(commandId), (correlationId), (causationId), (times[])}), size
/// ```
///
/// An implementation MUST keep these guarantees; the conformance suite tests each of them.
///
/// - **The same on every backend**: the same documents in the same order. Conditions have MongoDB's semantics; windows of time are relative
///   to the store's clock.
/// - **Order.** By the sort, then by the documents' ids, in the direction of the last sort field; without a sort ascending by id.
/// - **Current.** A write that was acknowledged before the query began is found. A list or a page of more than a few hundred documents may
///   be read from several snapshots of the store. A document that does not change in the meantime appears exactly once. The total of a
///   page is counted separately.
/// - **No documents**, for example for an unused name, are an empty result and not an error.
/// - **Deleted** aggregates' snapshots are excluded from every result and count, unless the condition is `Deleted` or joins it by `And`.
#[async_trait]
pub trait Queries: Send + Sync + 'static {
    /// Returns the documents that match, at most `limit` of them; 0 for all.
    ///
    /// # Errors
    /// See [`ReadError`].
    async fn list(
        &self,
        source: &QuerySource,
        query: DocumentQuery,
        limit: u64,
    ) -> Result<Vec<RawDocumentBuf>, ReadError>;

    /// Returns a page of the documents that match, and their total number.
    ///
    /// # Errors
    /// See [`ReadError`].
    async fn paged(
        &self,
        source: &QuerySource,
        query: DocumentQuery,
        page: Pagination,
    ) -> Result<Paged<RawDocumentBuf>, ReadError>;

    /// Counts the documents that match a condition.
    ///
    /// # Errors
    /// See [`ReadError`].
    async fn count(&self, source: &QuerySource, condition: &Condition) -> Result<u64, ReadError>;

    /// Runs the same query as [`list`](Self::list) and explains how the documents were found instead of returning them.
    ///
    /// # Errors
    /// See [`ReadError`].
    async fn explain(&self, source: &QuerySource, query: DocumentQuery, limit: u64) -> Result<Explained, ReadError>;

    /// Returns whether the query reads every commit of the name, because nothing in the condition narrows the search. It is false for
    /// snapshots, and on a client, whose server decides.
    fn reads_every_commit(&self, source: &QuerySource, condition: &Condition) -> bool {
        let _ = (source, condition);
        false
    }

    /// Returns the first document that matches.
    ///
    /// # Errors
    /// See [`ReadError`].
    async fn single(&self, source: &QuerySource, query: DocumentQuery) -> Result<Option<RawDocumentBuf>, ReadError> {
        Ok(self.list(source, query, 1).await?.into_iter().next())
    }
}
