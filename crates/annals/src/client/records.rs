//! The records of a server's tenant, over HTTP, behind the same port as records in this process. Bodies are BSON, so every type is
//! preserved.

mod refusals;

use annals_core::bson::Bson;
use annals_core::bson::raw::RawDocumentBuf;
use annals_core::wire::records as wire;
use annals_core::{
    ChangeNumber, ChangesError, Code, Collection, Condition, DocumentKind, Explained, GroupPage, GroupQuery, Invalid,
    Now, Record, RecordChange, RecordError, RecordPage, RecordQuery, RecordedChange, Records, Revision, StoreError,
    Timestamp, limits, valid_changes,
};
use async_trait::async_trait;
use bytes::Bytes;
use hyper::Method;
use serde::Deserialize;

use self::refusals::changes_refused;
pub(super) use self::refusals::refused;
use super::http::Answer;
use super::{Client, Path, answers};

/// The records of one tenant of a server. It keeps the contract of [`Records`]. System collections
/// ([`SYSTEM_COLLECTIONS`](annals_core::SYSTEM_COLLECTIONS)) are read-only.
///
/// If the connection breaks during a [`write`](Records::write), the outcome is unknown: [`StoreError::Unreachable`]. Read the records
/// again, or let the changes expect a revision, so that they can be retried safely.
#[derive(Clone)]
pub struct RecordsClient(Client);

impl Client {
    /// Returns the records of the same tenant, over the same connections. They belong to the tenant, not to a scope.
    pub fn records(&self) -> RecordsClient {
        RecordsClient(self.clone())
    }
}

/// `GET /v1/records/collections/{collection}/changes/last`.
#[derive(Deserialize)]
struct Last {
    number: ChangeNumber,
}

impl RecordsClient {
    /// Returns the path of a collection, or an error if the name cannot be one of a collection.
    fn collection(name: &str, below: &str) -> Result<String, RecordError> {
        if !Collection::can_be_called(name) {
            return Err(RecordError::UnknownCollection(name.to_owned()));
        }
        let segments = ["collections", name, below];
        Ok(path(if below.is_empty() { &segments[..2] } else { &segments }).done())
    }

    /// Returns the path of a collection's changes, or an error if the name cannot be one of a collection.
    fn changes_of(name: &str, below: &[&str]) -> Result<Path, ChangesError> {
        if !Collection::can_be_called(name) {
            return Err(ChangesError::UnknownCollection(name.to_owned()));
        }
        Ok(path(&[&["collections", name, "changes"], below].concat()))
    }

    /// Sends an idempotent request, and retries once if the connection breaks: the server may have closed a pooled connection just as it
    /// was reused.
    async fn ask(&self, method: Method, path: &str, body: Bytes) -> Result<Answer, StoreError> {
        match self.0.http.document(method.clone(), path, body.clone()).await {
            Ok(answer) => Ok(answer),
            Err(_) => self.0.http.document(method, path, body).await.map_err(StoreError::Unreachable),
        }
    }

    async fn post(&self, path: String, body: RawDocumentBuf) -> Result<Answer, RecordError> {
        checked(self.ask(Method::POST, &path, body.into_bytes().into()).await?)
    }

    async fn last(&self, path: String) -> Result<ChangeNumber, ChangesError> {
        let answer = self.ask(Method::GET, &path, Bytes::new()).await?;
        if !answer.status.is_success() {
            return Err(changes_refused(&answer, 0));
        }
        Ok(answers::parse::<Last>(&answer)?.number)
    }
}

/// Validates a query. The server resolves windows of time; whether they are valid does not depend on the current time.
fn valid_query(query: &RecordQuery) -> Result<(), Invalid> {
    query.clone().resolved(DocumentKind::Record, &any_time())?.validate()
}

fn any_time() -> Now {
    Now::utc(Timestamp::from_millis(0))
}

fn path(below: &[&str]) -> Path {
    Path::below(&[&["records"], below].concat())
}

/// Returns the answer, or the error that it reports.
fn checked(answer: Answer) -> Result<Answer, RecordError> {
    if answer.status.is_success() { Ok(answer) } else { Err(refused(&answer)) }
}

fn read<T>(answer: &Answer, read: impl Fn(&[u8]) -> Result<T, String>) -> Result<T, StoreError> {
    read(&answer.body).map_err(|error| answers::unknown(&format!("{} with {error}", answer.status)))
}

#[async_trait]
impl Records for RecordsClient {
    async fn declare(&self, collection: Collection) -> Result<(), RecordError> {
        collection.validate()?;
        let path = Self::collection(&collection.name, "")?;
        let body = wire::write_collection(&collection)?.into_bytes();
        checked(self.ask(Method::PUT, &path, body.into()).await?).map(drop)
    }

    async fn collections(&self) -> Result<Vec<Collection>, RecordError> {
        let mut all: Vec<Collection> = Vec::new();
        loop {
            let path = path(&["collections"]).number("limit", limits::PAGE_MAX);
            let path = path.maybe("after", all.last().map(|last| &last.name)).done();
            let answer = checked(self.ask(Method::GET, &path, Bytes::new()).await?)?;
            let page = read(&answer, wire::read_collections)?;
            let more = page.len() == limits::PAGE_MAX;
            all.extend(page);
            if !more {
                return Ok(all);
            }
        }
    }

    async fn write(&self, changes: Vec<RecordChange>) -> Result<Vec<Revision>, RecordError> {
        // Validate here as the server does, to save the round trip. Changes that break a rule may not even fit into a body.
        valid_changes(&changes)?;
        let body = wire::write_changes(&changes)?.into_bytes();
        drop(changes);
        let path = path(&["changes"]).done();
        // Not retried: a batch that arrives twice would be refused because of what its first arrival changed.
        let answer = self.0.http.document(Method::POST, &path, body.into()).await.map_err(StoreError::Unreachable)?;
        Ok(read(&checked(answer)?, wire::read_numbers)?)
    }

    async fn get(&self, collection: &str, id: &Bson) -> Result<Option<Record>, RecordError> {
        match self.post(Self::collection(collection, "get")?, wire::write_id(id)?).await {
            Ok(answer) => Ok(Some(read(&answer, wire::read_record)?)),
            Err(RecordError::Invalid(invalid)) if invalid.code == Code::UnknownRecord => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn find(&self, query: RecordQuery) -> Result<RecordPage, RecordError> {
        valid_query(&query)?;
        let answer = self.post(Self::collection(&query.collection, "find")?, wire::write_query(&query)?).await?;
        Ok(read(&answer, wire::read_page)?)
    }

    async fn explain(&self, query: RecordQuery) -> Result<Explained, RecordError> {
        valid_query(&query)?;
        let answer = self.post(Self::collection(&query.collection, "explain")?, wire::write_query(&query)?).await?;
        Ok(read(&answer, wire::read_explained)?)
    }

    async fn count(&self, collection: &str, condition: &Condition) -> Result<u64, RecordError> {
        condition.resolved(DocumentKind::Record, &any_time())?.validate()?;
        let answer = self.post(Self::collection(collection, "count")?, wire::write_condition(condition)?).await?;
        Ok(read(&answer, wire::read_count)?)
    }

    async fn group(&self, query: GroupQuery) -> Result<GroupPage, RecordError> {
        query.clone().resolved(&any_time())?.validate()?;
        let answer = self.post(Self::collection(&query.collection, "group")?, wire::write_group(&query)?).await?;
        Ok(read(&answer, wire::read_group_page)?)
    }

    async fn changes(
        &self,
        collection: &str,
        after: ChangeNumber,
        limit: usize,
    ) -> Result<Vec<RecordedChange>, ChangesError> {
        let path = Self::changes_of(collection, &[])?.number("after", after).number("limit", limit).done();
        let answer = self.ask(Method::GET, &path, Bytes::new()).await?;
        if !answer.status.is_success() {
            return Err(changes_refused(&answer, after));
        }
        Ok(read(&answer, wire::read_changes_page)?)
    }

    async fn last_change(&self, collection: &str) -> Result<ChangeNumber, ChangesError> {
        self.last(Self::changes_of(collection, &["last"])?.done()).await
    }

    async fn wait_past_change(&self, collection: &str, after: ChangeNumber) -> Result<ChangeNumber, ChangesError> {
        loop {
            let last = self.last(Self::changes_of(collection, &["last"])?.number("past", after).done()).await?;
            if last > after {
                return Ok(last);
            }
        }
    }
}
