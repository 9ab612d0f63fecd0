//! The sagas of a server's tenant, over HTTP, behind the same port as sagas in this process.

use annals_core::handlers::{ActBody, Reason};
use annals_core::sagas::{
    PutSaga, SagaDefinition, SagaDefinitionPage, SagaDefinitionStatus, SagaError, SagaPage, SagaQuery, SagaState,
    SagaStatistics, SagaStatus, Sagas,
};
use annals_core::{Code, Invalid, ReadError, StoreError};
use async_trait::async_trait;
use bytes::Bytes;
use hyper::{Method, StatusCode};
use serde::de::DeserializeOwned;

use super::answers::{self, problem, unknown};
use super::http::Answer;
use super::{Client, Path};

/// The sagas of one tenant of a server. It keeps the contract of [`Sagas`]. Sagas whose steps are Rust functions are defined by the
/// program that contains the functions.
#[derive(Clone)]
pub struct SagasClient(Client);

impl Client {
    /// Returns the sagas of the same tenant, over the same connections.
    pub fn sagas(&self) -> SagasClient {
        SagasClient(self.clone())
    }
}

impl SagasClient {
    async fn send(&self, method: Method, path: Path, body: String) -> Result<Answer, SagaError> {
        let json = "application/json";
        let answer = self.0.http.ask(method, &path.done(), Bytes::from(body), json, json).await;
        let answer = answer.map_err(StoreError::Unreachable)?;
        if answer.status.is_success() { Ok(answer) } else { Err(refused(&answer)) }
    }

    async fn ask<T: DeserializeOwned>(&self, method: Method, path: Path, body: String) -> Result<T, SagaError> {
        read(&self.send(method, path, body).await?)
    }
}

fn read<T: DeserializeOwned>(answer: &Answer) -> Result<T, SagaError> {
    let read = serde_json::from_slice(&answer.body);
    read.map_err(|error| unknown(&format!("{} with {error}", answer.status)).into())
}

/// Returns the body of an act, which contains its reason.
fn why(reason: Reason) -> String {
    let Reason { reason, by } = reason;
    let body = ActBody { reason, by, position: None, to: None, from: None };
    // Strings always serialise to JSON.
    serde_json::to_string(&body).unwrap_or_default()
}

fn refused(answer: &Answer) -> SagaError {
    let (code, problem) = match problem(answer) {
        Ok(problem) => problem,
        Err(unknown) => return unknown.into(),
    };
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    match code {
        Code::UnknownSaga => SagaError::Unknown(text(&problem.name).into()),
        Code::UnknownSagaDefinition => SagaError::UnknownDefinition(text(&problem.name).into()),
        Code::StateConflict => {
            SagaError::NotAllowed { act: text(&problem.act), what: text(&problem.what), state: text(&problem.state) }
        }
        code => match answers::other::<ReadError>(code, problem) {
            ReadError::Store(error) => error.into(),
            ReadError::Invalid(invalid) => invalid.into(),
            other => Invalid::new(code, "", other.to_string()).into(),
        },
    }
}

#[async_trait]
impl Sagas for SagasClient {
    async fn define(&self, definition: SagaDefinition) -> Result<PutSaga, SagaError> {
        let before = match self.definition(&definition.name).await {
            Ok(status) => Some(status.version),
            Err(SagaError::UnknownDefinition(_)) => None,
            Err(error) => return Err(error),
        };
        let path = Path::below(&["saga-definitions", &definition.name]);
        let answer = self.send(Method::PUT, path, definition.write()).await?;
        if answer.status == StatusCode::CREATED {
            return Ok(PutSaga::Created);
        }
        let after: SagaDefinitionStatus = read(&answer)?;
        Ok(if before == Some(after.version) { PutSaga::Unchanged } else { PutSaga::Changed })
    }

    async fn definitions(&self, after: Option<&str>, limit: usize) -> Result<SagaDefinitionPage, SagaError> {
        let path = Path::below(&["saga-definitions"]).maybe("cursor", after).number("limit", limit);
        self.ask(Method::GET, path, String::new()).await
    }

    async fn definition(&self, name: &str) -> Result<SagaDefinitionStatus, SagaError> {
        self.ask(Method::GET, Path::below(&["saga-definitions", name]), String::new()).await
    }

    async fn delete_definition(&self, name: &str, reason: Reason) -> Result<(), SagaError> {
        self.send(Method::DELETE, Path::below(&["saga-definitions", name]), why(reason)).await.map(drop)
    }

    async fn list(&self, query: SagaQuery) -> Result<SagaPage, SagaError> {
        let SagaQuery { name, state, execution_id, parked, limit, cursor } = query;
        let path = Path::below(&["sagas"])
            .maybe("name", name.as_deref())
            .maybe("state", state.map(SagaState::name))
            .maybe("execution_id", execution_id.as_deref())
            .maybe("parked", parked.then_some("true"))
            .maybe("cursor", cursor.as_deref())
            .number("limit", limit);
        self.ask(Method::GET, path, String::new()).await
    }

    async fn get(&self, id: &str) -> Result<SagaStatus, SagaError> {
        self.ask(Method::GET, Path::below(&["sagas", id]), String::new()).await
    }

    async fn cancel(&self, id: &str, reason: Reason) -> Result<SagaStatus, SagaError> {
        self.ask(Method::POST, Path::below(&["sagas", id, "cancel"]), why(reason)).await
    }

    async fn retry(&self, id: &str, reason: Reason) -> Result<SagaStatus, SagaError> {
        self.ask(Method::POST, Path::below(&["sagas", id, "retry"]), why(reason)).await
    }

    async fn statistics(&self, name: Option<&str>) -> Result<SagaStatistics, SagaError> {
        self.ask(Method::GET, Path::below(&["sagas", "statistics"]).maybe("name", name), String::new()).await
    }
}
