//! `/v1/credentials`: creating, listing and revoking keys of the server's API.

use std::sync::Arc;

use annals_core::Code;
use annals_core::credentials::{CredentialError, Credentials, NewCredential, RevokeBody};
use annals_core::wire::parse_json;
use axum::body::HttpBody;
use axum::extract::{Path, Request, State};
use axum::http::{StatusCode, header};
use axum::response::Response;

use super::managed::{ListQuery, read};
use crate::answer::json;
use crate::body;
use crate::payload::Payload;
use crate::problem::Problem;
use crate::query::Query;
use crate::route::{self, Feature, Permission, get, post};
use crate::schemas;
use crate::state::Server;

/// Returns the operations on credentials.
pub(crate) fn feature() -> Feature {
    const ALL: &str = "/v1/credentials";
    const ONE: &str = "/v1/credentials/{id}";
    Feature::new(
        "Credentials",
        [
            post(ALL, Permission::Admin, create)
                .described(
                    "createCredential",
                    "Creates a credential and returns its key, which cannot be read again.",
                    Payload::json::<schemas::CreatedCredential>().created(),
                )
                .takes(Payload::body::<schemas::NewCredential>())
                .refuses(&[Code::InvalidCredential, Code::NotSupportedByStore]),
            get(ALL, Permission::Admin, list)
                .described(
                    "listCredentials",
                    "Lists credentials, without their keys.",
                    Payload::json::<schemas::CredentialPage>(),
                )
                .refuses(&[Code::NotSupportedByStore]),
            get(ONE, Permission::Admin, one)
                .described(
                    "getCredential",
                    "Returns a credential, without its key.",
                    Payload::json::<schemas::Credential>(),
                )
                .refuses(&[Code::UnknownCredential, Code::NotSupportedByStore]),
            route::delete(ONE, Permission::Admin, revoke)
                .described(
                    "revokeCredential",
                    "Revokes a credential: its key is refused, and its streams end within seconds.",
                    Payload::json::<schemas::Credential>(),
                )
                .takes(Payload::body::<schemas::RevokeBody>())
                .refuses(&[Code::UnknownCredential, Code::InvalidCredential, Code::NotSupportedByStore]),
        ],
    )
}

fn credentials(server: &Server) -> Result<&dyn Credentials, Problem> {
    match server.guard.as_ref().map(|guard| &guard.credentials) {
        Some(Ok(credentials)) => Ok(&**credentials),
        _ => Err(without("credentials")),
    }
}

/// Returns the error for a feature that a server without credentials does not have.
pub(super) fn without(what: &str) -> Problem {
    let message = format!("this server runs without credentials (--dev), so it has no {what}");
    Problem::new(Code::NotSupportedByStore, message)
        .advise("Create the first key with `annals credential create --store URL`, and start the server without --dev.")
}

/// `POST /v1/credentials`.
async fn create(State(server): State<Arc<Server>>, request: Request) -> Result<Response, Problem> {
    let credentials = credentials(&server)?;
    let new: NewCredential = read(&server, request).await?;
    let mut response = json(StatusCode::CREATED, &credentials.create(new).await?)?;
    response.headers_mut().insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-store"));
    Ok(response)
}

/// `GET /v1/credentials`.
async fn list(State(server): State<Arc<Server>>, Query(query): Query<ListQuery>) -> Result<Response, Problem> {
    let (after, limit) = query.page()?;
    json(StatusCode::OK, &credentials(&server)?.list(after, limit).await?)
}

/// `GET /v1/credentials/{id}`.
async fn one(State(server): State<Arc<Server>>, Path(id): Path<String>) -> Result<Response, Problem> {
    json(StatusCode::OK, &credentials(&server)?.get(&id).await?)
}

/// `DELETE /v1/credentials/{id}`, with or without a body that gives the reason.
async fn revoke(
    State(server): State<Arc<Server>>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let credentials = credentials(&server)?;
    let why = if request.body().is_end_stream() {
        RevokeBody::default()
    } else {
        let (parts, received) = request.into_parts();
        parse_json(&body::read(&server, &parts, received).await?.bytes)?
    };
    json(StatusCode::OK, &credentials.revoke(&id, why).await?)
}

impl From<CredentialError> for Problem {
    fn from(error: CredentialError) -> Self {
        let problem = Self::new(error.code(), error.to_string());
        match error {
            CredentialError::Invalid(invalid) => invalid.into(),
            CredentialError::Store(error) => annals_core::ReadError::Store(error).into(),
            CredentialError::Unknown(id) => problem.fact("name", &*id),
            _ => problem,
        }
    }
}
