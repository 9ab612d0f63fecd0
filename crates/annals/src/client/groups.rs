//! The consumer groups of a server's tenant, over HTTP, behind the same port as those of a host in this process.

use annals_core::groups::{GroupDefinition, GroupError, GroupPage, GroupStatus, Groups};
use annals_core::handlers::{
    Act, ActBody, Delivery, HandlerError, PartitionPage, PullBody, Reason, SettleBody, SettleResult, read_deliveries,
};
use annals_core::{Code, Invalid, ReadError, StoreError};
use async_trait::async_trait;
use bytes::Bytes;
use hyper::{Method, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::answers::{self, problem, unknown};
use super::http::Answer;
use super::{Client, Path};

/// The consumer groups of one tenant of a server. It keeps the contract of [`Groups`]. Events arrive as BSON, so every BSON type is
/// preserved.
#[derive(Clone)]
pub struct GroupsClient(Client);

impl Client {
    /// Returns the consumer groups of the same tenant, over the same connections.
    pub fn groups(&self) -> GroupsClient {
        GroupsClient(self.clone())
    }
}

impl GroupsClient {
    async fn send(&self, method: Method, path: Path, body: String) -> Result<Answer, GroupError> {
        let json = "application/json";
        let answer = self.0.http.ask(method, &path.done(), Bytes::from(body), json, json).await;
        let answer = answer.map_err(StoreError::Unreachable)?;
        if answer.status.is_success() { Ok(answer) } else { Err(refused(&answer)) }
    }

    async fn ask<T: DeserializeOwned>(&self, method: Method, path: Path, body: String) -> Result<T, GroupError> {
        let answer = self.send(method, path, body).await?;
        let read = serde_json::from_slice(&answer.body);
        read.map_err(|error| unknown(&format!("{} with {error}", answer.status)).into())
    }
}

fn json(value: &impl serde::Serialize) -> String {
    // Strings and numbers always serialise to JSON.
    serde_json::to_string(value).unwrap_or_default()
}

fn refused(answer: &Answer) -> GroupError {
    let (code, problem) = match problem(answer) {
        Ok(problem) => problem,
        Err(unknown) => return unknown.into(),
    };
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let name = text(&problem.name);
    let processor = match code {
        Code::UnknownGroup => return GroupError::Unknown(name.into()),
        Code::GroupChanged => return GroupError::Changed { name: name.into(), setting: text(&problem.setting) },
        Code::UnknownPartition => {
            HandlerError::UnknownPartition { handler: name.into(), partition: text(&problem.partition).into() }
        }
        Code::StateConflict => {
            HandlerError::NotAllowed { act: text(&problem.act), what: text(&problem.what), state: text(&problem.state) }
        }
        Code::HandlerOwnedElsewhere => HandlerError::OwnedElsewhere { name: name.into(), owner: text(&problem.owner) },
        code => match answers::other::<ReadError>(code, problem) {
            ReadError::Store(error) => error.into(),
            ReadError::Invalid(invalid) => invalid.into(),
            other => Invalid::new(code, "", other.to_string()).into(),
        },
    };
    processor.into()
}

fn page(segments: &[&str], after: Option<&str>, limit: usize) -> Path {
    Path::below(segments).maybe("cursor", after).number("limit", limit)
}

#[async_trait]
impl Groups for GroupsClient {
    async fn put(&self, definition: GroupDefinition) -> Result<bool, GroupError> {
        definition.validate()?;
        let path = Path::below(&["groups", &definition.name]);
        Ok(self.send(Method::PUT, path, definition.write()).await?.status == StatusCode::CREATED)
    }

    async fn list(&self, after: Option<&str>, limit: usize) -> Result<GroupPage, GroupError> {
        self.ask(Method::GET, page(&["groups"], after, limit), String::new()).await
    }

    async fn get(&self, name: &str) -> Result<GroupStatus, GroupError> {
        self.ask(Method::GET, Path::below(&["groups", name]), String::new()).await
    }

    async fn delete(&self, name: &str, reason: Reason) -> Result<(), GroupError> {
        let Reason { reason, by } = reason;
        let body = ActBody { reason, by, position: None, to: None, from: None };
        self.send(Method::DELETE, Path::below(&["groups", name]), json(&body)).await.map(drop)
    }

    async fn pull(&self, name: &str, pull: PullBody) -> Result<Vec<Delivery>, GroupError> {
        pull.validate()?;
        let path = Path::below(&["groups", name, "pull"]).done();
        let (body, bson) = (Bytes::from(json(&pull)), "application/bson");
        let answer = self.0.http.ask(Method::POST, &path, body, "application/json", bson).await;
        let answer = answer.map_err(StoreError::Unreachable)?;
        if !answer.status.is_success() {
            return Err(refused(&answer));
        }
        Ok(read_deliveries(&answer.body).map_err(|error| unknown(&error))?)
    }

    async fn settle(&self, name: &str, settle: SettleBody) -> Result<Vec<SettleResult>, GroupError> {
        /// `POST /v1/groups/{group}/settle`.
        #[derive(Deserialize)]
        struct Settled {
            results: Vec<SettleResult>,
        }
        let settled: Settled = self.ask(Method::POST, Path::below(&["groups", name, "settle"]), json(&settle)).await?;
        Ok(settled.results)
    }

    async fn partitions(&self, name: &str, after: Option<&str>, limit: usize) -> Result<PartitionPage, GroupError> {
        self.ask(Method::GET, page(&["groups", name, "partitions"], after, limit), String::new()).await
    }

    async fn act(&self, name: &str, act: Act, reason: Reason) -> Result<(), GroupError> {
        let path = match act.partition() {
            None => Path::below(&["groups", name, act.name()]),
            Some(of) => Path::below(&["groups", name, "partitions", Act::path_of(of), act.name()]),
        };
        self.send(Method::POST, path, json(&act.body(reason))).await.map(drop)
    }
}
