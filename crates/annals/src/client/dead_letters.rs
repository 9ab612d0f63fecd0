//! The dead letters of a server's tenant, over HTTP, behind the same port as those of a host in this process.

use annals_core::dead_letters::{
    BulkAct, BulkBody, BulkOutcome, DeadLetterError, DeadLetters, LetterPage, LetterPolicy, LetterQuery, LetterView,
    PolicyBody, PolicyPage, PolicyStatus, Statistics,
};
use annals_core::handlers::{ActBody, Reason};
use annals_core::{ByteString, Code, Invalid, ReadError, StoreError};
use async_trait::async_trait;
use bytes::Bytes;
use hyper::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::answers::{self, problem, unknown};
use super::http::Answer;
use super::{Client, Path};

/// The dead letters of one tenant of a server. It keeps the contract of [`DeadLetters`].
#[derive(Clone)]
pub struct DeadLettersClient(Client);

impl Client {
    /// Returns the dead letters of the same tenant, over the same connections.
    pub fn dead_letters(&self) -> DeadLettersClient {
        DeadLettersClient(self.clone())
    }
}

impl DeadLettersClient {
    async fn ask<T: DeserializeOwned>(&self, method: Method, path: Path, body: String) -> Result<T, DeadLetterError> {
        let json = "application/json";
        let answer = self.0.http.ask(method, &path.done(), Bytes::from(body), json, json).await;
        let answer = answer.map_err(StoreError::Unreachable)?;
        if !answer.status.is_success() {
            return Err(refused(&answer));
        }
        let read = serde_json::from_slice(&answer.body);
        read.map_err(|error| unknown(&format!("{} with {error}", answer.status)).into())
    }
}

fn json(value: &impl Serialize) -> Result<String, DeadLetterError> {
    let written = serde_json::to_string(value);
    written.map_err(|error| Invalid::new(Code::InvalidBody, "", error.to_string()).into())
}

fn why(reason: Reason) -> Result<String, DeadLetterError> {
    let Reason { reason, by } = reason;
    json(&ActBody { reason, by, position: None, to: None, from: None })
}

fn refused(answer: &Answer) -> DeadLetterError {
    let (code, problem) = match problem(answer) {
        Ok(problem) => problem,
        Err(unknown) => return unknown.into(),
    };
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    match code {
        Code::UnknownDeadLetter => DeadLetterError::Unknown(text(&problem.name).into()),
        Code::StateConflict => DeadLetterError::Terminal {
            id: text(&problem.name).into(),
            state: text(&problem.state),
            act: text(&problem.act),
        },
        code => match answers::other::<ReadError>(code, problem) {
            ReadError::Store(error) => error.into(),
            ReadError::Invalid(invalid) => invalid.into(),
            other => Invalid::new(code, "", other.to_string()).into(),
        },
    }
}

#[async_trait]
impl DeadLetters for DeadLettersClient {
    async fn list(&self, query: LetterQuery) -> Result<LetterPage, DeadLetterError> {
        let since = query.since.map(|since| since.to_string());
        let path = Path::below(&["dead-letters"])
            .maybe("status", query.status.map(|status| status.name()))
            .maybe("topic", query.topic.as_deref())
            .maybe("group", query.group.as_deref())
            .maybe("handler", query.handler.as_deref())
            .maybe("partner", query.partner.as_deref())
            .maybe("type", query.event_type.as_deref())
            .maybe("since", since.as_deref())
            .maybe("cursor", query.cursor.as_deref())
            .number("limit", query.page_length());
        self.ask(Method::GET, path, String::new()).await
    }

    async fn get(&self, id: &str) -> Result<LetterView, DeadLetterError> {
        self.ask(Method::GET, Path::below(&["dead-letters", id]), String::new()).await
    }

    async fn retry(&self, id: &str, reason: Reason) -> Result<LetterView, DeadLetterError> {
        self.ask(Method::POST, Path::below(&["dead-letters", id, "retry"]), why(reason)?).await
    }

    async fn discard(&self, id: &str, reason: Reason) -> Result<LetterView, DeadLetterError> {
        self.ask(Method::POST, Path::below(&["dead-letters", id, "discard"]), why(reason)?).await
    }

    async fn bulk(&self, act: BulkAct, body: BulkBody) -> Result<BulkOutcome, DeadLetterError> {
        self.ask(Method::POST, Path::below(&["dead-letters", act.name()]), json(&body)?).await
    }

    async fn statistics(&self) -> Result<Statistics, DeadLetterError> {
        self.ask(Method::GET, Path::below(&["dead-letters", "statistics"]), String::new()).await
    }

    async fn policies(&self, after: Option<&str>, limit: usize) -> Result<PolicyPage, DeadLetterError> {
        let path = Path::below(&["dead-letters", "policies"]).maybe("cursor", after).number("limit", limit);
        self.ask(Method::GET, path, String::new()).await
    }

    async fn policy(&self, topic: &str) -> Result<PolicyStatus, DeadLetterError> {
        self.ask(Method::GET, Path::below(&["dead-letters", "policies", topic]), String::new()).await
    }

    async fn put_policy(
        &self,
        topic: ByteString,
        policy: LetterPolicy,
        reason: Reason,
    ) -> Result<PolicyStatus, DeadLetterError> {
        policy.validate()?;
        let body = json(&PolicyBody::of(&policy, reason))?;
        self.ask(Method::PUT, Path::below(&["dead-letters", "policies", &topic]), body).await
    }

    async fn delete_policy(&self, topic: &str, reason: Reason) -> Result<PolicyStatus, DeadLetterError> {
        self.ask(Method::DELETE, Path::below(&["dead-letters", "policies", topic]), why(reason)?).await
    }
}
