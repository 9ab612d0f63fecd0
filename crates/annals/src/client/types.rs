//! The event types of a server's tenant, over HTTP, behind the same port as the registry of a store in this process.

use annals_core::types::{
    EventTypes, PutType, TypeDefinition, TypeError, TypePage, TypeSettings, TypeStatus, UnknownTypes,
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

/// The event types of one tenant of a server. It keeps the contract of [`EventTypes`].
#[derive(Clone)]
pub struct TypesClient(Client);

impl Client {
    /// Returns the event types of the same tenant, over the same connections.
    pub fn event_types(&self) -> TypesClient {
        TypesClient(self.clone())
    }
}

impl TypesClient {
    async fn send(&self, method: Method, path: Path, body: String) -> Result<Answer, TypeError> {
        let json = "application/json";
        let answer = self.0.http.ask(method, &path.done(), Bytes::from(body), json, json).await;
        let answer = answer.map_err(StoreError::Unreachable)?;
        if answer.status.is_success() { Ok(answer) } else { Err(refused(&answer)) }
    }

    async fn ask<T: DeserializeOwned>(&self, method: Method, path: Path, body: String) -> Result<T, TypeError> {
        let answer = self.send(method, path, body).await?;
        let read = serde_json::from_slice(&answer.body);
        read.map_err(|error| unknown(&format!("{} with {error}", answer.status)).into())
    }
}

fn refused(answer: &Answer) -> TypeError {
    let (code, problem) = match problem(answer) {
        Ok(problem) => problem,
        Err(unknown) => return unknown.into(),
    };
    match code {
        Code::UnknownType => TypeError::Unknown(problem.name.unwrap_or_default().into()),
        Code::TypeIncompatible => TypeError::Incompatible {
            name: problem.name.clone().unwrap_or_default().into(),
            generation: problem.generation.unwrap_or(0),
            path: problem.path.clone(),
            reason: problem.into_reason(),
        },
        code => match answers::other::<ReadError>(code, problem) {
            ReadError::Store(error) => error.into(),
            ReadError::Invalid(invalid) => invalid.into(),
            other => Invalid::new(code, "", other.to_string()).into(),
        },
    }
}

#[async_trait]
impl EventTypes for TypesClient {
    async fn put(&self, definition: TypeDefinition) -> Result<PutType, TypeError> {
        definition.validate()?;
        let before = match self.get(&definition.name).await {
            Ok(status) => Some(status),
            Err(TypeError::Unknown(_)) => None,
            Err(error) => return Err(error),
        };
        let path = Path::below(&["types", &definition.name]);
        let answer = self.send(Method::PUT, path, definition.write()).await?;
        if answer.status == StatusCode::CREATED {
            return Ok(PutType::Created);
        }
        let after: TypeStatus = serde_json::from_slice(&answer.body).map_err(|error| unknown(&error.to_string()))?;
        Ok(if before == Some(after) { PutType::Unchanged } else { PutType::Changed })
    }

    async fn list(&self, after: Option<&str>, limit: usize) -> Result<TypePage, TypeError> {
        let path = Path::below(&["types"]).maybe("cursor", after).number("limit", limit);
        self.ask(Method::GET, path, String::new()).await
    }

    async fn get(&self, name: &str) -> Result<TypeStatus, TypeError> {
        self.ask(Method::GET, Path::below(&["types", name]), String::new()).await
    }

    async fn unknown(&self) -> Result<UnknownTypes, TypeError> {
        #[derive(Deserialize)]
        struct Listed {
            unknown: UnknownTypes,
        }
        let path = Path::below(&["types"]).number("limit", 1);
        Ok(self.ask::<Listed>(Method::GET, path, String::new()).await?.unknown)
    }

    async fn set_unknown(&self, unknown: UnknownTypes) -> Result<(), TypeError> {
        let body = serde_json::to_string(&TypeSettings { unknown }).unwrap_or_default();
        self.send(Method::PUT, Path::below(&["types"]), body).await.map(drop)
    }
}
