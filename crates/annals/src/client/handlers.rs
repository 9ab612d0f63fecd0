//! The handlers of a server's tenant, over HTTP, behind the same port as handlers in this process.

use annals_core::bson::Document;
use annals_core::handlers::{
    Act, ActBody, ActPage, Delivery, HandlerDefinition, HandlerError, HandlerPage, HandlerStatus, Handlers,
    PartitionPage, PullBody, Reason, SettleBody, SettleResult, read_deliveries,
};
use annals_core::{Code, DEFAULT_SCOPE, Invalid, ReadError, StoreError};
use async_trait::async_trait;
use bytes::Bytes;
use hyper::{Method, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::answers::{self, problem, unknown};
use super::http::Answer;
use super::{Client, Path};

/// The handlers of one tenant of a server. It keeps the contract of [`Handlers`].
///
/// Events arrive as BSON, so every BSON type is preserved. A pull whose connection breaks may have leased deliveries; they are redelivered
/// when their lease ends.
#[derive(Clone)]
pub struct HandlersClient(Client);

impl Client {
    /// Returns the handlers of the same tenant, over the same connections.
    pub fn handlers(&self) -> HandlersClient {
        HandlersClient(self.clone())
    }
}

/// `POST /v1/handlers/{name}/settle`.
#[derive(Deserialize)]
struct Settled {
    results: Vec<SettleResult>,
}

impl HandlersClient {
    async fn send(&self, method: Method, path: Path, body: String) -> Result<Answer, HandlerError> {
        let json = "application/json";
        let answer = self.0.http.ask(method, &path.done(), Bytes::from(body), json, json).await;
        Ok(answer.map_err(StoreError::Unreachable)?)
    }

    async fn ask<T: DeserializeOwned>(&self, method: Method, path: Path, body: String) -> Result<T, HandlerError> {
        read(&self.send(method, path, body).await?)
    }
}

fn json(value: &impl serde::Serialize) -> String {
    // Strings and numbers always serialise to JSON.
    serde_json::to_string(value).unwrap_or_default()
}

fn read<T: DeserializeOwned>(answer: &Answer) -> Result<T, HandlerError> {
    if answer.status.is_success() {
        let read = serde_json::from_slice(&answer.body);
        return read.map_err(|error| unknown(&format!("{} with {error}", answer.status)).into());
    }
    Err(refused(answer))
}

fn refused(answer: &Answer) -> HandlerError {
    let (code, problem) = match problem(answer) {
        Ok(problem) => problem,
        Err(unknown) => return unknown.into(),
    };
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let name = text(&problem.name);
    match code {
        Code::UnknownHandler => HandlerError::Unknown(name.into()),
        Code::UnknownPartition => {
            HandlerError::UnknownPartition { handler: name.into(), partition: text(&problem.partition).into() }
        }
        Code::HandlerChanged => HandlerError::Changed { name: name.into(), setting: text(&problem.setting) },
        Code::StateConflict => {
            HandlerError::NotAllowed { act: text(&problem.act), what: text(&problem.what), state: text(&problem.state) }
        }
        Code::HandlerOwnedElsewhere => HandlerError::OwnedElsewhere { name: name.into(), owner: text(&problem.owner) },
        code => match answers::other::<ReadError>(code, problem) {
            ReadError::Store(error) => error.into(),
            ReadError::Invalid(invalid) => invalid.into(),
            other => Invalid::new(code, "", other.to_string()).into(),
        },
    }
}

fn page(segments: &[&str], after: Option<&str>, limit: usize) -> Path {
    Path::below(segments).maybe("cursor", after).number("limit", limit)
}

#[async_trait]
impl Handlers for HandlersClient {
    async fn put(&self, definition: HandlerDefinition) -> Result<bool, HandlerError> {
        definition.validate()?;
        let path = Path::below(&["handlers", &definition.name]);
        let answer = self.send(Method::PUT, path, definition.write()).await?;
        if answer.status.is_success() { Ok(answer.status == StatusCode::CREATED) } else { Err(refused(&answer)) }
    }

    async fn list(&self, after: Option<&str>, limit: usize) -> Result<HandlerPage, HandlerError> {
        self.ask(Method::GET, page(&["handlers"], after, limit), String::new()).await
    }

    async fn states(&self, scope: &str) -> Result<Vec<Document>, HandlerError> {
        #[derive(serde::Deserialize)]
        struct States {
            items: Vec<serde_json::Map<String, serde_json::Value>>,
        }
        let path = Path::below(&["processor-states"]).maybe("scope", (scope != DEFAULT_SCOPE).then_some(scope));
        let read: States = self.ask(Method::GET, path, String::new()).await?;
        let documents = read.items.into_iter().map(Document::try_from).collect::<Result<_, _>>();
        Ok(documents.map_err(|error| unknown(&error.to_string()))?)
    }

    async fn get(&self, name: &str) -> Result<HandlerStatus, HandlerError> {
        self.ask(Method::GET, Path::below(&["handlers", name]), String::new()).await
    }

    async fn delete(&self, name: &str, reason: Reason) -> Result<(), HandlerError> {
        let Reason { reason, by } = reason;
        let body = ActBody { reason, by, position: None, to: None, from: None };
        let answer = self.send(Method::DELETE, Path::below(&["handlers", name]), json(&body)).await?;
        if answer.status.is_success() { Ok(()) } else { Err(refused(&answer)) }
    }

    async fn pull(&self, name: &str, pull: PullBody) -> Result<Vec<Delivery>, HandlerError> {
        pull.validate()?;
        let path = Path::below(&["handlers", name, "pull"]).done();
        let (body, bson) = (Bytes::from(json(&pull)), "application/bson");
        let answer = self.0.http.ask(Method::POST, &path, body, "application/json", bson).await;
        let answer = answer.map_err(StoreError::Unreachable)?;
        if !answer.status.is_success() {
            return Err(refused(&answer));
        }
        Ok(read_deliveries(&answer.body).map_err(|error| unknown(&error))?)
    }

    async fn settle(&self, name: &str, settle: SettleBody) -> Result<Vec<SettleResult>, HandlerError> {
        let path = Path::below(&["handlers", name, "settle"]);
        let settled: Settled = self.ask(Method::POST, path, json(&settle)).await?;
        Ok(settled.results)
    }

    async fn partitions(&self, name: &str, after: Option<&str>, limit: usize) -> Result<PartitionPage, HandlerError> {
        self.ask(Method::GET, page(&["handlers", name, "partitions"], after, limit), String::new()).await
    }

    async fn act(&self, name: &str, act: Act, reason: Reason) -> Result<(), HandlerError> {
        let path = match act.partition() {
            None => Path::below(&["handlers", name, act.name()]),
            Some(of) => Path::below(&["handlers", name, "partitions", Act::path_of(of), act.name()]),
        };
        let answer = self.send(Method::POST, path, json(&act.body(reason))).await?;
        if answer.status.is_success() { Ok(()) } else { Err(refused(&answer)) }
    }

    async fn acts(&self, name: &str, after: Option<&str>, limit: usize) -> Result<ActPage, HandlerError> {
        self.ask(Method::GET, page(&["handlers", name, "acts"], after, limit), String::new()).await
    }
}
