//! Typed queries for programs.

use std::marker::PhantomData;
use std::sync::Arc;

use bson::raw::{RawDocument, RawDocumentBuf};
use bytestring::ByteString;
use serde::de::DeserializeOwned;

use super::{DocumentQuery, MaterializedSnapshot, Paged, Pagination, QueriedCommit, Queries, QuerySource};
use crate::{AggregateType, Code, Condition, Invalid, Projection, ReadError};

/// Queries the snapshots of the aggregates of one name, whose state is of type `S`.
///
/// A snapshot shows an aggregate as it was when the snapshot was saved. With the strategy that saves after every commit, that happens
/// before the command returns. Snapshots of deleted aggregates are excluded unless the condition is [`Condition::Deleted`] or joins it by
/// `And`.
#[derive(Clone)]
pub struct SnapshotQueryService<S> {
    of: Service,
    state: PhantomData<fn() -> S>,
}

/// Queries the commits of the aggregates of one name.
#[derive(Clone)]
pub struct EventStreamQueryService {
    of: Service,
}

/// The part that both services share.
#[derive(Clone)]
struct Service {
    queries: Arc<dyn Queries>,
    source: QuerySource,
}

impl Service {
    fn new(queries: Arc<dyn Queries>, source: QuerySource) -> Result<Self, Invalid> {
        source.validate()?;
        Ok(Self { queries, source })
    }

    async fn single(&self, query: DocumentQuery) -> Result<Option<RawDocumentBuf>, ReadError> {
        self.queries.single(&self.source, query).await
    }

    async fn list(&self, query: DocumentQuery, limit: u64) -> Result<Vec<RawDocumentBuf>, ReadError> {
        self.queries.list(&self.source, query, limit).await
    }

    async fn paged(&self, query: DocumentQuery, page: Pagination) -> Result<Paged<RawDocumentBuf>, ReadError> {
        self.queries.paged(&self.source, query, page).await
    }

    async fn count(&self, condition: &Condition) -> Result<u64, ReadError> {
        self.queries.count(&self.source, condition).await
    }
}

impl<S: DeserializeOwned> SnapshotQueryService<S> {
    /// Creates queries of the aggregates of this name.
    ///
    /// # Errors
    /// `invalid_name`.
    pub fn new(queries: Arc<dyn Queries>, aggregate: impl Into<ByteString>) -> Result<Self, Invalid> {
        Ok(Self { of: Service::new(queries, QuerySource::Snapshots(aggregate.into()))?, state: PhantomData })
    }

    /// Returns the first snapshot that matches.
    ///
    /// # Errors
    /// See [`ReadError`]; `invalid_record` if a document is not a snapshot of this type, or the projection leaves out a required field.
    pub async fn single(&self, query: impl Into<DocumentQuery>) -> Result<Option<MaterializedSnapshot<S>>, ReadError> {
        self.of.single(query.into()).await?.map(|found| snapshot(&found)).transpose()
    }

    /// Returns the snapshots that match, at most `limit`; 0 for all.
    ///
    /// # Errors
    /// As [`single`](Self::single).
    pub async fn list(
        &self,
        query: impl Into<DocumentQuery>,
        limit: u64,
    ) -> Result<Vec<MaterializedSnapshot<S>>, ReadError> {
        each(self.of.list(query.into(), limit).await?, snapshot)
    }

    /// Returns a page of the snapshots that match.
    ///
    /// # Errors
    /// As [`single`](Self::single).
    pub async fn paged(
        &self,
        query: impl Into<DocumentQuery>,
        page: Pagination,
    ) -> Result<Paged<MaterializedSnapshot<S>>, ReadError> {
        each_of_page(self.of.paged(query.into(), page).await?, snapshot)
    }

    /// Returns only the state of the first snapshot that matches.
    ///
    /// # Errors
    /// As [`single`](Self::single).
    pub async fn single_state(&self, query: impl Into<DocumentQuery>) -> Result<Option<S>, ReadError> {
        self.of.single(of_state(query.into())).await?.map(|found| state(&found)).transpose()
    }

    /// Returns only the states of the snapshots that match, at most `limit`; 0 for all.
    ///
    /// # Errors
    /// As [`single`](Self::single).
    pub async fn list_states(&self, query: impl Into<DocumentQuery>, limit: u64) -> Result<Vec<S>, ReadError> {
        each(self.of.list(of_state(query.into()), limit).await?, state)
    }

    /// Returns a page of the states of the snapshots that match.
    ///
    /// # Errors
    /// As [`single`](Self::single).
    pub async fn paged_states(&self, query: impl Into<DocumentQuery>, page: Pagination) -> Result<Paged<S>, ReadError> {
        each_of_page(self.of.paged(of_state(query.into()), page).await?, state)
    }
}

impl<A: AggregateType> SnapshotQueryService<A> {
    /// Creates queries of the aggregates of this type.
    ///
    /// # Errors
    /// `invalid_name`.
    pub fn of(queries: Arc<dyn Queries>) -> Result<Self, Invalid> {
        Self::new(queries, A::NAME)
    }
}

impl EventStreamQueryService {
    /// Creates queries of the commits of the aggregates of this name.
    ///
    /// # Errors
    /// `invalid_name`.
    pub fn new(queries: Arc<dyn Queries>, aggregate: impl Into<ByteString>) -> Result<Self, Invalid> {
        Ok(Self { of: Service::new(queries, QuerySource::Commits(aggregate.into()))? })
    }

    /// Returns the first commit that matches.
    ///
    /// # Errors
    /// See [`ReadError`]; `invalid_record` if a document is not a commit, or the projection leaves out a required field.
    pub async fn single(&self, query: impl Into<DocumentQuery>) -> Result<Option<QueriedCommit>, ReadError> {
        self.of.single(query.into()).await?.map(|found| commit(&found)).transpose()
    }

    /// Returns the commits that match, at most `limit`; 0 for all.
    ///
    /// # Errors
    /// As [`single`](Self::single).
    pub async fn list(&self, query: impl Into<DocumentQuery>, limit: u64) -> Result<Vec<QueriedCommit>, ReadError> {
        each(self.of.list(query.into(), limit).await?, commit)
    }

    /// Returns a page of the commits that match.
    ///
    /// # Errors
    /// As [`single`](Self::single).
    pub async fn paged(
        &self,
        query: impl Into<DocumentQuery>,
        page: Pagination,
    ) -> Result<Paged<QueriedCommit>, ReadError> {
        each_of_page(self.of.paged(query.into(), page).await?, commit)
    }
}

/// Adds the methods that both services have.
macro_rules! dynamic {
    ($({$state:ident: $bound:ident})? $service:ty) => {
        impl$(<$state: $bound>)? $service {
            /// Returns the source of its documents.
            pub fn source(&self) -> &QuerySource {
                &self.of.source
            }

            /// Returns the first document that matches, with the fields that the projection selects.
            ///
            /// # Errors
            /// See [`ReadError`].
            pub async fn dynamic_single(
                &self,
                query: impl Into<DocumentQuery>,
            ) -> Result<Option<RawDocumentBuf>, ReadError> {
                self.of.single(query.into()).await
            }

            /// Returns the documents that match, at most `limit`; 0 for all.
            ///
            /// # Errors
            /// See [`ReadError`].
            pub async fn dynamic_list(
                &self,
                query: impl Into<DocumentQuery>,
                limit: u64,
            ) -> Result<Vec<RawDocumentBuf>, ReadError> {
                self.of.list(query.into(), limit).await
            }

            /// Returns a page of the documents that match.
            ///
            /// # Errors
            /// See [`ReadError`].
            pub async fn dynamic_paged(
                &self,
                query: impl Into<DocumentQuery>,
                page: Pagination,
            ) -> Result<Paged<RawDocumentBuf>, ReadError> {
                self.of.paged(query.into(), page).await
            }

            /// Counts the documents that match a condition.
            ///
            /// # Errors
            /// See [`ReadError`].
            pub async fn count(&self, condition: &Condition) -> Result<u64, ReadError> {
                self.of.count(condition).await
            }
        }
    };
}

dynamic!({S: DeserializeOwned} SnapshotQueryService<S>);
dynamic!(EventStreamQueryService);

fn of_state(query: DocumentQuery) -> DocumentQuery {
    query.projection(Projection::only(["state"]))
}

fn each<T>(
    found: Vec<RawDocumentBuf>,
    read: impl Fn(&RawDocument) -> Result<T, ReadError>,
) -> Result<Vec<T>, ReadError> {
    found.iter().map(|document| read(document)).collect()
}

fn each_of_page<T>(
    found: Paged<RawDocumentBuf>,
    read: impl Fn(&RawDocument) -> Result<T, ReadError>,
) -> Result<Paged<T>, ReadError> {
    Ok(Paged { total: found.total, list: each(found.list, read)? })
}

fn snapshot<S: DeserializeOwned>(found: &RawDocument) -> Result<MaterializedSnapshot<S>, ReadError> {
    Ok(MaterializedSnapshot::of(found).map_err(|message| unreadable(found, "aggregateId", &message))?)
}

fn commit(found: &RawDocument) -> Result<QueriedCommit, ReadError> {
    Ok(QueriedCommit::of(found).map_err(|message| unreadable(found, "id", &message))?)
}

fn state<S: DeserializeOwned>(found: &RawDocument) -> Result<S, ReadError> {
    let missing = |_| unreadable(found, "aggregateId", "has no state");
    let state = found.get_document("state").map_err(missing)?;
    Ok(crate::data::decode(state).map_err(|error| unreadable(found, "aggregateId", &format!("state: {error}")))?)
}

fn unreadable(found: &RawDocument, id: &str, message: &str) -> Invalid {
    let which = found.get_str(id).unwrap_or("without an id");
    Invalid::new(Code::InvalidRecord, "document", format!("{which:?} cannot be decoded as its type: {message}"))
}
