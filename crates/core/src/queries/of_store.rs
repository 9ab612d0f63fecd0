//! The port over the documents of a store: what all stores share, and its implementation over records and a log.

use std::sync::Arc;

use async_trait::async_trait;
use bson::raw::RawDocumentBuf;
use bytestring::ByteString;

use super::of_log::LogCommits;
use super::of_records::RecordsOfSnapshots;
use super::{DocumentQuery, Paged, Pagination, Queries, QuerySource, StoredQuery};
use crate::{Clock, Condition, EventLog, Explained, Now, ReadError, Records};

/// Reads documents of a store. Queries are validated and in the store's terms; results pass through [`Answered`](super::Answered).
#[async_trait]
pub trait DocumentReads: Send + Sync + 'static {
    /// Returns the documents that match, in order.
    ///
    /// # Errors
    /// See [`ReadError`].
    async fn find(&self, source: &QuerySource, query: &StoredQuery) -> Result<Vec<RawDocumentBuf>, ReadError>;

    /// Counts the documents that match a condition.
    ///
    /// # Errors
    /// See [`ReadError`].
    async fn count(&self, source: &QuerySource, condition: &Condition) -> Result<u64, ReadError>;

    /// Explains how the documents are found.
    ///
    /// # Errors
    /// See [`ReadError`].
    async fn explain(&self, source: &QuerySource, query: &StoredQuery) -> Result<Explained, ReadError>;

    /// As [`Queries::reads_every_commit`], for a condition in the store's terms.
    fn reads_every_commit(&self, source: &QuerySource, condition: &Condition) -> bool;
}

/// The queries of a store.
pub struct DocumentQueries<R> {
    reads: R,
    clock: Arc<dyn Clock>,
}

impl<R: DocumentReads> DocumentQueries<R> {
    /// Creates queries over these documents; windows of time are relative to this clock.
    pub fn new(reads: R, clock: Arc<dyn Clock>) -> Self {
        Self { reads, clock }
    }

    fn asked(&self, source: &QuerySource, query: DocumentQuery, limit: u64) -> Result<StoredQuery, ReadError> {
        Ok(StoredQuery::of(source, query, limit, &Now::utc(self.clock.now()))?)
    }
}

#[async_trait]
impl<R: DocumentReads> Queries for DocumentQueries<R> {
    async fn list(
        &self,
        source: &QuerySource,
        query: DocumentQuery,
        limit: u64,
    ) -> Result<Vec<RawDocumentBuf>, ReadError> {
        self.reads.find(source, &self.asked(source, query, limit)?).await
    }

    async fn paged(
        &self,
        source: &QuerySource,
        query: DocumentQuery,
        page: Pagination,
    ) -> Result<Paged<RawDocumentBuf>, ReadError> {
        let asked = self.asked(source, query, 0)?.on_page(page)?;
        let list = self.reads.find(source, &asked).await?;
        let found = list.len() as u64;
        // A page that is not full is the last, which gives the total.
        let is_last = found < asked.limit && (found > 0 || asked.skip == 0);
        let total = match is_last {
            true => asked.skip + found,
            false => self.reads.count(source, &asked.condition).await?,
        };
        Ok(Paged { total, list })
    }

    async fn count(&self, source: &QuerySource, condition: &Condition) -> Result<u64, ReadError> {
        let asked = self.asked(source, condition.clone().into(), 0)?;
        self.reads.count(source, &asked.condition).await
    }

    async fn explain(&self, source: &QuerySource, query: DocumentQuery, limit: u64) -> Result<Explained, ReadError> {
        self.reads.explain(source, &self.asked(source, query, limit)?).await
    }

    fn reads_every_commit(&self, source: &QuerySource, condition: &Condition) -> bool {
        match (source, self.asked(source, condition.clone().into(), 0)) {
            (QuerySource::Commits(_), Ok(asked)) => self.reads.reads_every_commit(source, &asked.condition),
            // An invalid query is refused when it runs.
            _ => false,
        }
    }
}

/// The documents of a store whose snapshots are records and whose commits are in an indexed log.
pub struct StoreDocuments {
    snapshots: RecordsOfSnapshots,
    commits: LogCommits,
}

impl StoreDocuments {
    /// Creates documents from the snapshots in these records and the commits of this log; `context` is Wow's bounded context.
    pub fn new(records: Arc<dyn Records>, log: Arc<dyn EventLog>, context: impl Into<ByteString>) -> Self {
        Self { snapshots: RecordsOfSnapshots(records), commits: LogCommits::new(log, context.into()) }
    }
}

#[async_trait]
impl DocumentReads for StoreDocuments {
    async fn find(&self, source: &QuerySource, query: &StoredQuery) -> Result<Vec<RawDocumentBuf>, ReadError> {
        match source {
            QuerySource::Snapshots(name) => self.snapshots.find(name, query).await,
            QuerySource::Commits(name) => self.commits.find(name, query).await,
        }
    }

    async fn count(&self, source: &QuerySource, condition: &Condition) -> Result<u64, ReadError> {
        match source {
            QuerySource::Snapshots(name) => self.snapshots.count(name, condition).await,
            QuerySource::Commits(name) => self.commits.count(name, condition).await,
        }
    }

    async fn explain(&self, source: &QuerySource, query: &StoredQuery) -> Result<Explained, ReadError> {
        match source {
            QuerySource::Snapshots(name) => self.snapshots.explain(name, query).await,
            QuerySource::Commits(name) => self.commits.explain(name, query).await,
        }
    }

    fn reads_every_commit(&self, source: &QuerySource, condition: &Condition) -> bool {
        LogCommits::reads_every_commit(source.aggregate(), condition)
    }
}
