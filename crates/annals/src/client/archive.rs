//! The archive of a server's tenant, over HTTP, behind the same port as the archive of a store in this process.

use annals_core::archive::{
    Archive, ArchiveError, ArchiveFilePage, ArchivePage, DeletedEvent, HoldBody, HoldPage, HoldStatus, PutRetention,
    RetentionBody, RetentionPage,
};
use annals_core::browse::BrowseQuery;
use annals_core::handlers::Reason;
use annals_core::{Code, StoreError};
use async_trait::async_trait;
use bytes::Bytes;
use hyper::{Method, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::answers::{problem, unknown};
use super::browse::{filtered, refused as browse_refused, why};
use super::http::Answer;
use super::{Client, Path};

/// The archive of one tenant of a server. It keeps the contract of [`Archive`].
#[derive(Clone)]
pub struct ArchiveClient(Client);

impl Client {
    /// Returns the archive of the same tenant, over the same connections.
    pub fn archive(&self) -> ArchiveClient {
        ArchiveClient(self.clone())
    }
}

impl ArchiveClient {
    /// Sends a request and returns its answer, and whether the request created something.
    async fn told<T: DeserializeOwned>(
        &self,
        method: Method,
        path: Path,
        body: String,
    ) -> Result<(T, bool), ArchiveError> {
        let json = "application/json";
        let answer = self.0.http.ask(method, &path.done(), Bytes::from(body), json, json).await;
        let answer = answer.map_err(StoreError::Unreachable)?;
        if !answer.status.is_success() {
            return Err(refused(&answer));
        }
        let read = serde_json::from_slice(&answer.body);
        let read = read.map_err(|error| unknown(&format!("{} with {error}", answer.status)))?;
        Ok((read, answer.status == StatusCode::CREATED))
    }

    async fn ask<T: DeserializeOwned>(&self, method: Method, path: Path, body: String) -> Result<T, ArchiveError> {
        Ok(self.told(method, path, body).await?.0)
    }
}

fn refused(answer: &Answer) -> ArchiveError {
    let (code, problem) = match problem(answer) {
        Ok(problem) => problem,
        Err(unknown) => return unknown.into(),
    };
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    match code {
        Code::UnknownArchivedEvent => ArchiveError::NotArchived(text(&problem.name)),
        Code::UnknownRetention => ArchiveError::UnknownRule(text(&problem.name)),
        Code::UnknownHold => ArchiveError::UnknownHold(text(&problem.name)),
        Code::StateConflict => {
            ArchiveError::NotAllowed { act: text(&problem.act), what: text(&problem.what), state: text(&problem.state) }
        }
        _ => browse_refused(answer).into(),
    }
}

fn body(value: &impl serde::Serialize) -> String {
    // Strings and numbers always serialise to JSON.
    serde_json::to_string(value).unwrap_or_default()
}

fn list(path: &[&str], after: Option<&str>, limit: usize) -> Path {
    Path::below(path).maybe("cursor", after).number("limit", limit)
}

#[async_trait]
impl Archive for ArchiveClient {
    async fn put_rule(&self, name: &str, rule: RetentionBody) -> Result<PutRetention, ArchiveError> {
        rule.validate()?;
        let told = self.told(Method::PUT, Path::below(&["retention", name]), body(&rule));
        let (put, created): (PutRetention, _) = told.await?;
        Ok(PutRetention { created, ..put })
    }

    async fn remove_rule(&self, name: &str, reason: Reason) -> Result<(), ArchiveError> {
        self.ask::<Value>(Method::DELETE, Path::below(&["retention", name]), why(reason)).await.map(drop)
    }

    async fn rules(&self, after: Option<&str>, limit: usize) -> Result<RetentionPage, ArchiveError> {
        self.ask(Method::GET, list(&["retention"], after, limit), String::new()).await
    }

    async fn put_hold(&self, name: &str, hold: HoldBody) -> Result<(HoldStatus, bool), ArchiveError> {
        hold.validate()?;
        self.told(Method::PUT, Path::below(&["holds", name]), body(&hold)).await
    }

    async fn remove_hold(&self, name: &str, reason: Reason) -> Result<(), ArchiveError> {
        self.ask::<Value>(Method::DELETE, Path::below(&["holds", name]), why(reason)).await.map(drop)
    }

    async fn holds(&self, after: Option<&str>, limit: usize) -> Result<HoldPage, ArchiveError> {
        self.ask(Method::GET, list(&["holds"], after, limit), String::new()).await
    }

    async fn hold(&self, name: &str) -> Result<HoldStatus, ArchiveError> {
        self.ask(Method::GET, Path::below(&["holds", name]), String::new()).await
    }

    async fn delete(&self, event_id: &str, reason: Reason) -> Result<DeletedEvent, ArchiveError> {
        self.ask(Method::DELETE, Path::below(&["events", event_id]), why(reason)).await
    }

    async fn restore(&self, event_id: &str, reason: Reason) -> Result<Value, ArchiveError> {
        self.ask(Method::POST, Path::below(&["events", event_id, "restore"]), why(reason)).await
    }

    async fn page(&self, query: BrowseQuery) -> Result<ArchivePage, ArchiveError> {
        query.validate()?;
        self.ask(Method::GET, filtered(&["events", "archive"], &query), String::new()).await
    }

    async fn files(&self, after: Option<&str>, limit: usize) -> Result<ArchiveFilePage, ArchiveError> {
        self.ask(Method::GET, list(&["events", "archive", "files"], after, limit), String::new()).await
    }
}
