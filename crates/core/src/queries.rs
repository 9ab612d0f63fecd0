//! The port of queries: what is known of aggregates, asked by what it says. Snapshots tell of the state, commits of what happened.
//!
//! ```text
//!   services.rs   with types: SnapshotQueryService, EventStreamQueryService        typed.rs   what they answer
//!   asked.rs      from what a person asks to what a store is asked                 answer.rs  from what is stored to what is answered
//!   of_store.rs   the port over a store's records and log: of_records.rs, of_log.rs
//!                 candidates.rs (where to look in a log), commit_document.rs (a commit as a document), lowest.rs (the first of an order)
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

/// Which documents are asked for: those of the aggregates of a name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum QuerySource {
    /// Their snapshots, of which those of deleted aggregates are left out unless the condition says which are meant.
    Snapshots(ByteString),
    /// Their commits.
    Commits(ByteString),
}

impl QuerySource {
    /// The aggregates' name.
    pub fn aggregate(&self) -> &ByteString {
        match self {
            Self::Snapshots(name) | Self::Commits(name) => name,
        }
    }

    /// What the documents are.
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

/// Which documents are wanted, what of them, and in what order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DocumentQuery {
    /// Which. Fields are named as answers show them: `aggregateId`, `state.total`, `body.name`.
    pub condition: Condition,
    /// Which of their fields; those that say which document it is always come along, unless they are left out.
    pub projection: Projection,
    /// In what order, and by their ids where they are equal, in the direction of the last field; by their ids going up if it is empty.
    pub sort: Vec<SortBy>,
    /// Refuse with `query_answer_too_large` what would be more bytes; none for any number.
    pub bytes_max: Option<usize>,
}

impl DocumentQuery {
    /// The documents for which this holds.
    pub fn new(condition: Condition) -> Self {
        Self { condition, ..Self::default() }
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

    /// Only part of each document.
    pub fn projection(self, projection: Projection) -> Self {
        Self { projection, ..self }
    }

    /// Refuses an answer of more bytes.
    pub fn bytes_max(self, bytes: usize) -> Self {
        Self { bytes_max: Some(bytes), ..self }
    }
}

impl From<Condition> for DocumentQuery {
    fn from(condition: Condition) -> Self {
        Self::new(condition)
    }
}

/// Which page is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pagination {
    /// Its number, from 1.
    pub index: u64,
    /// How many documents a page has; 0 for all on the first.
    pub size: u64,
}

impl Default for Pagination {
    /// The first ten.
    fn default() -> Self {
        Self { index: 1, size: 10 }
    }
}

/// A page of what was found, and how much there is.
#[derive(Debug, Clone, PartialEq)]
pub struct Paged<T> {
    /// How many there are on all pages.
    pub total: u64,
    /// Those of the page.
    pub list: Vec<T>,
}

/// The queries of one tenant.
///
/// A query reads documents, and answers them with the names of fields that the layout of Wow's Mongo extension has in a program. What
/// conditions, sorts and projections name are the same names.
///
/// ```text
/// snapshots  aggregateId, contextName, aggregateName, tenantId, ownerId, spaceId, version, eventId, firstOperator, operator,
///            firstEventTime, eventTime, state{}, snapshotTime, tags{key: [text]}, deleted, (annals{stateRevision})
/// commits    id, contextName, aggregateName, header{}, aggregateId, tenantId, ownerId, spaceId, commandId, requestId, version,
///            body[{id, name, revision, bodyType, body{}, (tags[]), (public), (metadata{})}], createTime,
///            (annals{(commandId), (correlationId), (causationId), (times[])}), size
/// ```
///
/// An implementation MUST keep these promises; the conformance suite tests each.
///
/// - **The same on every backend**: the same documents in the same order. Conditions mean what MongoDB means by them; windows of time are
///   those of the store's clock.
/// - **Order.** By the sort, then by the documents' ids, in the direction of the last sort field; without a sort by the ids going up.
/// - **Current.** What was acknowledged before the query began is found. A list or a page of more than some hundred documents may be read
///   in several moments: what does not change meanwhile is in it once. The total of a page is counted in a moment of its own.
/// - **Nothing there** (no snapshot, no commit, of a name that nobody has used) is an empty answer and no error.
/// - **Deleted** aggregates' snapshots are left out of everything, counts too, unless the condition is `Deleted` or joins it by `And`.
#[async_trait]
pub trait Queries: Send + Sync + 'static {
    /// The documents that a query means, at most `limit` of them; 0 for all.
    ///
    /// # Errors
    /// See [`ReadError`].
    async fn list(
        &self,
        source: &QuerySource,
        query: DocumentQuery,
        limit: u64,
    ) -> Result<Vec<RawDocumentBuf>, ReadError>;

    /// A page of the documents that a query means, and how many there are.
    ///
    /// # Errors
    /// See [`ReadError`].
    async fn paged(
        &self,
        source: &QuerySource,
        query: DocumentQuery,
        page: Pagination,
    ) -> Result<Paged<RawDocumentBuf>, ReadError>;

    /// How many documents a condition means.
    ///
    /// # Errors
    /// See [`ReadError`].
    async fn count(&self, source: &QuerySource, condition: &Condition) -> Result<u64, ReadError>;

    /// Reads what [`list`](Self::list) would, and says how it was found instead of what.
    ///
    /// # Errors
    /// See [`ReadError`].
    async fn explain(&self, source: &QuerySource, query: DocumentQuery, limit: u64) -> Result<Explained, ReadError>;

    /// Whether every commit of the name would be read to find these: nothing in the condition says where to look. It is false for
    /// snapshots, and where somebody else knows.
    fn reads_every_commit(&self, source: &QuerySource, condition: &Condition) -> bool {
        let _ = (source, condition);
        false
    }

    /// The first of the documents that a query means.
    ///
    /// # Errors
    /// See [`ReadError`].
    async fn single(&self, source: &QuerySource, query: DocumentQuery) -> Result<Option<RawDocumentBuf>, ReadError> {
        Ok(self.list(source, query, 1).await?.into_iter().next())
    }
}
