//! The topics of a server's tenant, over HTTP, behind the same port as those of a host in this process.

use annals_core::handlers::{ActBody, Reason};
use annals_core::{BrokerError, Code, Invalid, ReadError, StoreError, TopicPage, TopicStatus, Topics};
use async_trait::async_trait;
use bytes::Bytes;
use hyper::Method;
use serde::de::DeserializeOwned;

use super::answers::{self, problem, unknown};
use super::http::Answer;
use super::{Client, Path};

/// The topics of one tenant of a server. It keeps the contract of [`Topics`].
#[derive(Clone)]
pub struct TopicsClient(Client);

impl Client {
    /// Returns the topics of the same tenant, over the same connections.
    pub fn topics(&self) -> TopicsClient {
        TopicsClient(self.clone())
    }
}

impl TopicsClient {
    async fn ask<T: DeserializeOwned>(&self, method: Method, path: Path, body: String) -> Result<T, BrokerError> {
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

fn refused(answer: &Answer) -> BrokerError {
    let (code, problem) = match problem(answer) {
        Ok(problem) => problem,
        Err(unknown) => return unknown.into(),
    };
    match code {
        Code::UnknownTopic => BrokerError::UnknownTopic(problem.name.unwrap_or_default().into()),
        Code::StateConflict => BrokerError::Refused(problem.into_reason()),
        Code::BrokerUnavailable => BrokerError::Unavailable(problem.into_reason()),
        code => match answers::other::<ReadError>(code, problem) {
            ReadError::Store(error) => error.into(),
            ReadError::Invalid(invalid) => invalid.into(),
            other => Invalid::new(code, "", other.to_string()).into(),
        },
    }
}

#[async_trait]
impl Topics for TopicsClient {
    async fn list(&self, after: Option<&str>, limit: usize) -> Result<TopicPage, BrokerError> {
        let path = Path::below(&["topics"]).maybe("cursor", after).number("limit", limit);
        self.ask(Method::GET, path, String::new()).await
    }

    async fn get(&self, name: &str) -> Result<TopicStatus, BrokerError> {
        self.ask(Method::GET, Path::below(&["topics", name]), String::new()).await
    }

    async fn apply(&self, name: &str, reason: Reason) -> Result<TopicStatus, BrokerError> {
        let Reason { reason, by } = reason;
        let body = ActBody { reason, by, position: None, to: None, from: None };
        // Strings always serialise to JSON.
        let body = serde_json::to_string(&body).unwrap_or_default();
        self.ask(Method::POST, Path::below(&["topics", name, "apply"]), body).await
    }

    /// Lists topics, because a server creates missing ones before it lists them.
    async fn create_missing(&self) -> Result<(), BrokerError> {
        self.list(None, 1).await.map(drop)
    }
}
