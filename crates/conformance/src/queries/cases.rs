//! The cases of queries. The statements of Wow's query kit are among them.

mod alike;
mod commits;
mod snapshots;

use std::sync::Arc;

use annals_core::bson::raw::RawDocumentBuf;
use annals_core::{
    Aggregate, Condition, DEFAULT_TENANT, DocumentQuery, NewCommit, Queries, QuerySource, Snapshot, Store,
};
use serde_json::Value;

use crate::Subject;
use crate::sample::{data, log_of};

pub use alike::*;
pub use commits::*;
pub use snapshots::*;

/// An open store and its queries.
struct Asked {
    store: Arc<dyn Store>,
    queries: Arc<dyn Queries>,
}

impl Asked {
    async fn open(subject: &dyn Subject) -> Self {
        Self::of(subject.open().await, DEFAULT_TENANT)
    }

    fn of(store: Arc<dyn Store>, tenant: &str) -> Self {
        let queries = store.queries(tenant).expect("the tenant is declared");
        Self { store, queries }
    }

    async fn save(&self, snapshot: Snapshot) {
        let snapshots = self.store.snapshots(DEFAULT_TENANT).expect("the tenant is declared");
        assert_eq!(snapshots.save(&snapshot).await, Ok(true));
    }

    async fn commit(&self, commit: NewCommit) {
        log_of(&self.store, DEFAULT_TENANT).commit(commit).await.expect("it is taken");
    }

    async fn list(&self, source: &QuerySource, query: impl Into<DocumentQuery>, limit: u64) -> Vec<RawDocumentBuf> {
        let query = query.into();
        let listed = self.queries.list(source, query.clone(), limit).await;
        listed.unwrap_or_else(|error| panic!("{query:?}: {error}"))
    }

    async fn count(&self, source: &QuerySource, condition: &Condition) -> u64 {
        self.queries.count(source, condition).await.unwrap_or_else(|error| panic!("{condition:?}: {error}"))
    }

    /// Returns the aggregates of the documents that a condition matches, sorted, and asserts that the count agrees.
    async fn found(&self, source: &QuerySource, condition: Condition) -> Vec<String> {
        let mut found = texts(&self.list(source, condition.clone(), 0).await, "aggregateId");
        found.sort();
        assert_eq!(self.count(source, &condition).await, found.len() as u64, "{condition:?}");
        found
    }
}

fn snapshots() -> QuerySource {
    QuerySource::Snapshots("order".into())
}

fn commits() -> QuerySource {
    QuerySource::Commits("order".into())
}

/// Returns a snapshot of an order.
fn snapshot(id: &str, version: u64, state: Value) -> Snapshot {
    Snapshot::new(Aggregate::new("order", id), version, data(state))
}

/// Returns the texts of a field of the documents.
fn texts(documents: &[RawDocumentBuf], field: &str) -> Vec<String> {
    let text = |document: &RawDocumentBuf| document.get_str(field).expect("a text").to_owned();
    documents.iter().map(text).collect()
}

/// Returns the names of a document's fields.
fn fields(document: &RawDocumentBuf) -> Vec<String> {
    document.iter().map(|field| field.expect("it can be read").0.as_str().to_owned()).collect()
}
