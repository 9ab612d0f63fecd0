//! Shorthands in which the cases of records are written.

use std::sync::Arc;

use annals_core::bson::{Bson, Document, RawDocumentBuf};
use annals_core::{
    ChangeNumber, Collection, Condition, DEFAULT_TENANT, Expected, Record, RecordChange, RecordError, RecordQuery,
    Records, Revision, Store,
};

use crate::Subject;

/// The collection of most cases.
pub(crate) const THINGS: &str = "things";

pub(crate) fn records_of(store: &Arc<dyn Store>) -> Arc<dyn Records> {
    store.records(DEFAULT_TENANT).expect("the tenant is declared")
}

/// Opens the subject, with a collection without indexes. Also returns the store, because records need not outlive it.
pub(crate) async fn open(subject: &dyn Subject) -> (Arc<dyn Store>, Arc<dyn Records>) {
    open_with(subject, Collection::new(THINGS)).await
}

/// Opens the subject, with this collection, which gets a feed.
pub(crate) async fn open_with(subject: &dyn Subject, collection: Collection) -> (Arc<dyn Store>, Arc<dyn Records>) {
    let store = subject.open().await;
    let records = records_of(&store);
    records.declare(collection.with_feed()).await.expect("the collection is declared");
    (store, records)
}

/// Closes the store, and opens it again.
pub(crate) async fn reopen(
    subject: &dyn Subject,
    store: Arc<dyn Store>,
    records: Arc<dyn Records>,
) -> (Arc<dyn Store>, Arc<dyn Records>) {
    store.close().await;
    drop((store, records));
    let store = subject.open().await;
    let records = records_of(&store);
    (store, records)
}

pub(crate) fn raw(document: Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(&document).expect("a document")
}

pub(crate) fn insert(document: Document) -> RecordChange {
    RecordChange::insert(THINGS, raw(document))
}

pub(crate) fn replace(document: Document, expected: Expected) -> RecordChange {
    RecordChange::replace_if(THINGS, raw(document), expected)
}

pub(crate) fn put(document: Document) -> RecordChange {
    RecordChange::put(THINGS, raw(document))
}

pub(crate) fn delete(id: impl Into<Bson>) -> RecordChange {
    RecordChange::delete_if(THINGS, id, Expected::Present)
}

/// Writes changes that must be accepted.
pub(crate) async fn write(records: &Arc<dyn Records>, changes: Vec<RecordChange>) -> Vec<Revision> {
    records.write(changes).await.expect("the changes are accepted")
}

/// Writes one change that must be accepted.
pub(crate) async fn write_one(records: &Arc<dyn Records>, change: RecordChange) -> Revision {
    write(records, vec![change]).await[0]
}

/// Writes changes that must be refused.
pub(crate) async fn refused(records: &Arc<dyn Records>, changes: Vec<RecordChange>) -> RecordError {
    records.write(changes).await.expect_err("the changes are refused")
}

pub(crate) fn document(record: &Record) -> Document {
    Document::try_from(&*record.document).expect("the document can be read")
}

pub(crate) async fn get(records: &Arc<dyn Records>, id: impl Into<Bson>) -> Option<Record> {
    records.get(THINGS, &id.into()).await.expect("it is looked up")
}

/// Returns the number of the newest change.
pub(crate) async fn last(records: &Arc<dyn Records>) -> ChangeNumber {
    records.last_change(THINGS).await.expect("the newest change")
}

/// Returns the document with this id.
pub(crate) async fn stored(records: &Arc<dyn Records>, id: impl Into<Bson>) -> Option<Document> {
    get(records, id).await.as_ref().map(document)
}

/// Returns everything on all pages of a query.
pub(crate) async fn pages(records: &Arc<dyn Records>, mut query: RecordQuery) -> Vec<Record> {
    let mut all = Vec::new();
    loop {
        let page = records.find(query.clone()).await.expect("the page is read");
        assert!(page.records.len() <= query.limit, "a page keeps its limit");
        all.extend(page.records);
        match page.next {
            None => return all,
            Some(next) => query.after = Some(next),
        }
    }
}

/// Returns the ids of everything that a query finds, in order.
pub(crate) async fn ids(records: &Arc<dyn Records>, query: RecordQuery) -> Vec<Bson> {
    let found = pages(records, query).await;
    found.iter().map(|record| document(record).get("_id").cloned().expect("it has an id")).collect()
}

/// Returns the ids that a condition matches, as numbers, in order.
pub(crate) async fn matching(records: &Arc<dyn Records>, condition: Condition) -> Vec<i32> {
    numbers(ids(records, RecordQuery::new(THINGS).matching(condition)).await)
}

pub(crate) fn numbers(ids: Vec<Bson>) -> Vec<i32> {
    ids.into_iter().map(|id| id.as_i32().expect("the id is a number")).collect()
}
