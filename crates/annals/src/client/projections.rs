//! The projections of a server's tenant, over HTTP, behind the same port as projections in this process.

use annals_core::bson::Bson;
use annals_core::handlers::{ActBody, ActPage, Reason};
use annals_core::projections::{
    ProjectionAct, ProjectionDefinition, ProjectionError, ProjectionPage, ProjectionStatus, Projections, PutProjection,
};
use annals_core::wire::records::{self as wire, ExactJson};
use annals_core::{
    Code, DocumentKind, Invalid, Now, ReadError, Record, RecordPage, RecordQuery, StoreError, Timestamp,
};
use async_trait::async_trait;
use bytes::Bytes;
use hyper::{Method, StatusCode};
use serde::de::DeserializeOwned;

use super::answers::{self, problem, unknown};
use super::http::Answer;
use super::{Client, Path};

/// The projections of one tenant of a server. It keeps the contract of [`Projections`]. A projection with a reducer in Rust is defined by
/// the program that contains the reducer.
#[derive(Clone)]
pub struct ProjectionsClient(Client);

impl Client {
    /// Returns the projections of the same tenant, over the same connections.
    pub fn projections(&self) -> ProjectionsClient {
        ProjectionsClient(self.clone())
    }
}

impl ProjectionsClient {
    async fn send(&self, method: Method, path: Path, body: String) -> Result<Answer, ProjectionError> {
        let json = "application/json";
        let answer = self.0.http.ask(method, &path.done(), Bytes::from(body), json, json).await;
        let answer = answer.map_err(StoreError::Unreachable)?;
        if answer.status.is_success() { Ok(answer) } else { Err(refused(&answer)) }
    }

    async fn ask<T: DeserializeOwned>(&self, method: Method, path: Path, body: String) -> Result<T, ProjectionError> {
        let answer = self.send(method, path, body).await?;
        let read = serde_json::from_slice(&answer.body);
        read.map_err(|error| unknown(&format!("{} with {error}", answer.status)).into())
    }

    async fn document(&self, method: Method, path: Path, body: Vec<u8>) -> Result<Answer, ProjectionError> {
        let answer = self.0.http.document(method, &path.done(), body.into()).await.map_err(StoreError::Unreachable)?;
        if answer.status.is_success() { Ok(answer) } else { Err(refused(&answer)) }
    }
}

/// Returns the body of an act, which contains its reason.
fn why(reason: Reason) -> String {
    let Reason { reason, by } = reason;
    let body = ActBody { reason, by, position: None, to: None, from: None };
    // Strings always serialise to JSON.
    serde_json::to_string(&body).unwrap_or_default()
}

fn refused(answer: &Answer) -> ProjectionError {
    let (code, problem) = match problem(answer) {
        Ok(problem) => problem,
        Err(unknown) => return unknown.into(),
    };
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    match code {
        Code::UnknownProjection => ProjectionError::Unknown(text(&problem.name).into()),
        Code::StateConflict => ProjectionError::NotAllowed {
            act: text(&problem.act),
            what: text(&problem.what),
            state: text(&problem.state),
        },
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
impl Projections for ProjectionsClient {
    async fn put(&self, definition: ProjectionDefinition) -> Result<PutProjection, ProjectionError> {
        definition.validate()?;
        let path = || Path::below(&["projections", &definition.name]);
        let before = match self.get(&definition.name).await {
            Ok(status) => Some(status),
            Err(ProjectionError::Unknown(_)) => None,
            Err(error) => return Err(error),
        };
        let answer = self.send(Method::PUT, path(), definition.write()).await?;
        if answer.status == StatusCode::CREATED {
            return Ok(PutProjection::Created);
        }
        let after: ProjectionStatus =
            serde_json::from_slice(&answer.body).map_err(|error| unknown(&error.to_string()))?;
        let building = |status: &ProjectionStatus| status.building.as_ref().map(|building| building.build);
        let is_same = before.is_some_and(|before| {
            (before.build, building(&before)) == (after.build, building(&after))
                || building(&before) == Some(after.build)
        });
        Ok(if is_same { PutProjection::Unchanged } else { PutProjection::Changed })
    }

    async fn list(&self, after: Option<&str>, limit: usize) -> Result<ProjectionPage, ProjectionError> {
        self.ask(Method::GET, page(&["projections"], after, limit), String::new()).await
    }

    async fn get(&self, name: &str) -> Result<ProjectionStatus, ProjectionError> {
        self.ask(Method::GET, Path::below(&["projections", name]), String::new()).await
    }

    async fn delete(&self, name: &str, reason: Reason) -> Result<(), ProjectionError> {
        self.send(Method::DELETE, Path::below(&["projections", name]), why(reason)).await.map(drop)
    }

    async fn act(&self, name: &str, act: ProjectionAct, reason: Reason) -> Result<(), ProjectionError> {
        self.send(Method::POST, Path::below(&["projections", name, act.name()]), why(reason)).await.map(drop)
    }

    async fn acts(&self, name: &str, after: Option<&str>, limit: usize) -> Result<ActPage, ProjectionError> {
        self.ask(Method::GET, page(&["projections", name, "acts"], after, limit), String::new()).await
    }

    async fn find(&self, name: &str, query: RecordQuery) -> Result<RecordPage, ProjectionError> {
        let any_time = Now::utc(Timestamp::from_millis(0));
        query.clone().resolved(DocumentKind::Record, &any_time)?.validate()?;
        let path = Path::below(&["projections", name, "records"]);
        let answer = self.document(Method::POST, path, wire::write_query(&query)?.into_bytes()).await?;
        Ok(wire::read_page(&answer.body).map_err(|error| unknown(&error))?)
    }

    async fn record(&self, name: &str, key: &Bson) -> Result<Option<Record>, ProjectionError> {
        // A key in Extended JSON can be of any BSON type.
        let text = serde_json::to_string(&ExactJson(key)).unwrap_or_default();
        let path = Path::below(&["projections", name, "records", &text]).number("ejson", "true");
        match self.document(Method::GET, path, Vec::new()).await {
            Ok(answer) => Ok(Some(wire::read_record(&answer.body).map_err(|error| unknown(&error))?)),
            Err(ProjectionError::Invalid(invalid)) if invalid.code == Code::UnknownRecord => Ok(None),
            Err(error) => Err(error),
        }
    }
}
