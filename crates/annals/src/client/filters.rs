//! The filters of a server's tenant, over HTTP, behind the same port as filters in this process.

use annals_core::filters::{
    FilterDefinition, FilterError, FilterName, FilterPage, FilterSettleBody, FilterStatus, Filters,
};
use annals_core::handlers::{ActBody, ActPage, Delivery, PullBody, Reason, SettleResult, read_deliveries};
use annals_core::{Code, DEFAULT_SCOPE, Invalid, ReadError, StoreError};
use async_trait::async_trait;
use bytes::Bytes;
use hyper::{Method, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::answers::{self, problem, unknown};
use super::http::Answer;
use super::{Client, Path};

/// The filters of one tenant of a server. It keeps the contract of [`Filters`].
#[derive(Clone)]
pub struct FiltersClient(Client);

impl Client {
    /// Returns the filters of the same tenant, over the same connections.
    pub fn filters(&self) -> FiltersClient {
        FiltersClient(self.clone())
    }
}

/// `POST /v1/filters/{stream}/settle`.
#[derive(Deserialize)]
struct Settled {
    results: Vec<SettleResult>,
}

impl FiltersClient {
    async fn send(&self, method: Method, path: Path, body: String) -> Result<Answer, FilterError> {
        let json = "application/json";
        let answer = self.0.http.ask(method, &path.done(), Bytes::from(body), json, json).await;
        Ok(answer.map_err(StoreError::Unreachable)?)
    }

    async fn ask<T: DeserializeOwned>(&self, method: Method, path: Path, body: String) -> Result<T, FilterError> {
        read(&self.send(method, path, body).await?)
    }
}

/// Returns the path of a filter, or of a resource below it.
fn of(name: &FilterName, below: &[&str]) -> Path {
    let path = Path::below(&[&["filters", &*name.stream], below].concat());
    path.maybe("scope", (*name.scope != *DEFAULT_SCOPE).then_some(&*name.scope))
}

fn json(value: &impl serde::Serialize) -> String {
    // Strings and numbers always serialise to JSON.
    serde_json::to_string(value).unwrap_or_default()
}

fn read<T: DeserializeOwned>(answer: &Answer) -> Result<T, FilterError> {
    if answer.status.is_success() {
        let read = serde_json::from_slice(&answer.body);
        return read.map_err(|error| unknown(&format!("{} with {error}", answer.status)).into());
    }
    Err(refused(answer))
}

fn refused(answer: &Answer) -> FilterError {
    let (code, problem) = match problem(answer) {
        Ok(problem) => problem,
        Err(unknown) => return unknown.into(),
    };
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let name = text(&problem.name);
    match code {
        Code::UnknownFilter => FilterError::Unknown(name),
        Code::FilterChanged => {
            let first_difference = problem.first_difference;
            FilterError::Changed { name, setting: text(&problem.setting), first_difference }
        }
        Code::StateConflict => FilterError::NotAllowed { act: text(&problem.act), name, state: text(&problem.state) },
        Code::FilterOwnedElsewhere => FilterError::OwnedElsewhere { name, owner: text(&problem.owner) },
        code => match answers::other::<ReadError>(code, problem) {
            ReadError::Store(error) => error.into(),
            ReadError::Invalid(invalid) => invalid.into(),
            other => Invalid::new(code, "", other.to_string()).into(),
        },
    }
}

#[async_trait]
impl Filters for FiltersClient {
    async fn put(&self, definition: FilterDefinition) -> Result<bool, FilterError> {
        definition.validate()?;
        // The body names the scope, so the path does not.
        let path = of(&FilterName::new(definition.name.stream.clone()), &[]);
        let answer = self.send(Method::PUT, path, definition.write()).await?;
        if answer.status.is_success() { Ok(answer.status == StatusCode::CREATED) } else { Err(refused(&answer)) }
    }

    async fn list(&self, after: Option<&str>, limit: usize) -> Result<FilterPage, FilterError> {
        let path = Path::below(&["filters"]).maybe("cursor", after).number("limit", limit);
        self.ask(Method::GET, path, String::new()).await
    }

    async fn get(&self, name: &FilterName) -> Result<FilterStatus, FilterError> {
        self.ask(Method::GET, of(name, &[]), String::new()).await
    }

    async fn delete(&self, name: &FilterName, reason: Reason) -> Result<(), FilterError> {
        let Reason { reason, by } = reason;
        let body = ActBody { reason, by, position: None, to: None, from: None };
        let answer = self.send(Method::DELETE, of(name, &[]), json(&body)).await?;
        if answer.status.is_success() { Ok(()) } else { Err(refused(&answer)) }
    }

    async fn pull(&self, name: &FilterName, pull: PullBody) -> Result<Vec<Delivery>, FilterError> {
        pull.validate()?;
        let path = of(name, &["pull"]).done();
        let (body, bson) = (Bytes::from(json(&pull)), "application/bson");
        let answer = self.0.http.ask(Method::POST, &path, body, "application/json", bson).await;
        let answer = answer.map_err(StoreError::Unreachable)?;
        if !answer.status.is_success() {
            return Err(refused(&answer));
        }
        Ok(read_deliveries(&answer.body).map_err(|error| unknown(&error))?)
    }

    async fn settle(&self, name: &FilterName, settle: FilterSettleBody) -> Result<Vec<SettleResult>, FilterError> {
        let settled: Settled = self.ask(Method::POST, of(name, &["settle"]), json(&settle)).await?;
        Ok(settled.results)
    }

    async fn acts(&self, name: &FilterName, after: Option<&str>, limit: usize) -> Result<ActPage, FilterError> {
        let path = of(name, &["acts"]).maybe("cursor", after).number("limit", limit);
        self.ask(Method::GET, path, String::new()).await
    }
}
