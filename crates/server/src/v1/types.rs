//! `/v1/types`: the registry of event types.

use std::sync::Arc;

use annals_core::Code;
use annals_core::types::{EventTypes, PutType, TypeDefinition, TypeError, TypeSettings};
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::Response;

use super::managed::{self, ListQuery, definition, read};
use crate::answer::json;
use crate::caller::Caller;
use crate::payload::Payload;
use crate::problem::Problem;
use crate::query::Query;
use crate::route::{self, Feature, Permission, get};
use crate::schemas;
use crate::state::Server;

const ALL: &str = "/v1/types";
const ONE: &str = "/v1/types/{name}";

/// How long a registration waits for its topic to be created.
const TOPIC_MAX: std::time::Duration = std::time::Duration::from_secs(2);

/// Returns the operations on event types.
pub(crate) fn feature() -> Feature {
    let operations = [
        get(ALL, Permission::Reader, list).described(
            "listTypes",
            "Lists event types and their schemas.",
            Payload::json::<schemas::EventTypePage>(),
        ),
        route::put(ALL, Permission::Operator, settings)
            .described(
                "putTypeSettings",
                "Sets what happens to events whose type is not registered.",
                Payload::json::<schemas::EventTypeSettings>(),
            )
            .takes(Payload::body::<schemas::EventTypeSettings>()),
        get(ONE, Permission::Reader, one)
            .described("getType", "Returns an event type.", Payload::json::<schemas::EventTypeStatus>())
            .refuses(&[Code::UnknownType]),
        route::put(ONE, Permission::Operator, put)
            .described(
                "putType",
                "Registers an event type or a generation of it.",
                Payload::json::<schemas::EventTypeStatus>().created(),
            )
            .takes(Payload::body::<schemas::EventTypeDefinition>())
            .refuses(&[Code::InvalidType, Code::TypeIncompatible]),
    ];
    Feature::new("Event types", operations)
}

pub(super) fn types(server: &Server, caller: &Caller) -> Result<Arc<dyn EventTypes>, Problem> {
    Ok(server.store.event_types(&caller.tenant)?)
}

/// `GET /v1/types`.
async fn list(
    State(server): State<Arc<Server>>,
    Query(query): Query<ListQuery>,
    caller: Caller,
) -> Result<Response, Problem> {
    let (after, limit) = query.page()?;
    let types = types(&server, &caller)?;
    let page = types.list(after, limit).await?;
    let mut shown = serde_json::to_value(&page).unwrap_or_default();
    shown["unknown"] = serde_json::to_value(types.unknown().await?).unwrap_or_default();
    json(StatusCode::OK, &shown)
}

/// `PUT /v1/types`.
async fn settings(State(server): State<Arc<Server>>, caller: Caller, request: Request) -> Result<Response, Problem> {
    let types = types(&server, &caller)?;
    let settings: TypeSettings = read(&server, request).await?;
    types.set_unknown(settings.unknown).await?;
    json(StatusCode::OK, &settings)
}

/// `GET /v1/types/{name}`.
async fn one(State(server): State<Arc<Server>>, Path(name): Path<String>, caller: Caller) -> Result<Response, Problem> {
    json(StatusCode::OK, &types(&server, &caller)?.get(&name).await?)
}

/// `PUT /v1/types/{name}`.
async fn put(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let types = types(&server, &caller)?;
    let held = definition(&server, request).await?;
    let put = types.put(TypeDefinition::read(&name, &held.bytes)?).await?;
    let topics = server.host.topics(&caller.tenant)?;
    // An unreachable broker does not fail the registration, and delays it by at most `TOPIC_MAX`. The topic is created when topics are
    // listed, and before its first event is published.
    match tokio::time::timeout(TOPIC_MAX, topics.create_missing()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::warn!(event_type = name, %error, "could not create the topic of a registered type")
        }
        Err(_) => tracing::warn!(
            event_type = name,
            "the broker is unreachable; the topic of a registered type is not created yet"
        ),
    }
    managed::put(put == PutType::Created, &types.get(&name).await?)
}

impl From<TypeError> for Problem {
    fn from(error: TypeError) -> Self {
        let problem = Self::new(error.code(), error.to_string());
        match error {
            TypeError::Invalid(invalid) => invalid.into(),
            TypeError::Store(error) => annals_core::ReadError::Store(error).into(),
            TypeError::Unknown(name) => problem.fact("name", &*name),
            TypeError::Incompatible { name, generation, path, reason } => {
                problem.at(path).fact("name", &*name).fact("generation", generation).fact("reason", reason)
            }
            _ => problem,
        }
    }
}
