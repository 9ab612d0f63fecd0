//! `/v1/sagas` and `/v1/saga-definitions`: long-running work over many services, and its definitions.

use std::sync::Arc;

use annals_core::handlers::ActBody;
use annals_core::sagas::{PutSaga, SagaDefinition, SagaError, SagaQuery, SagaState, Sagas};
use annals_core::{Code, limits};
use annals_runtime::HostSagas;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use super::managed::{page_length, read};
use crate::answer::json;
use crate::body;
use crate::caller::Caller;
use crate::payload::Payload;
use crate::problem::Problem;
use crate::query::{Limit, Query, Switch};
use crate::route::{self, Feature, Permission, get, post};
use crate::schemas;
use crate::state::Server;

const DEFINITION: &str = "/v1/saga-definitions/{name}";

/// Returns the operations on sagas.
pub(crate) fn feature() -> Feature {
    const OF_SAGA: &[Code] = &[Code::UnknownSaga, Code::StateConflict];
    let operator = Permission::Operator;
    let saga = Payload::json::<schemas::SagaStatus>;
    let definition = Payload::json::<schemas::SagaDefinitionStatus>;
    let operations = [
        get("/v1/saga-definitions", Permission::Reader, definitions).described(
            "listSagaDefinitions",
            "Lists the definitions of sagas and their state.",
            Payload::json::<schemas::SagaDefinitionPage>(),
        ),
        get(DEFINITION, Permission::Reader, one_definition)
            .described("getSagaDefinition", "Returns a definition of sagas and its state.", definition())
            .refuses(&[Code::UnknownSagaDefinition]),
        route::put(DEFINITION, operator, put)
            .described(
                "putSagaDefinition",
                "Defines sagas, or adds a version with which new sagas begin.",
                definition().created(),
            )
            .takes(Payload::body::<schemas::SagaDefinition>())
            .refuses(&[Code::InvalidSaga, Code::StateConflict]),
        route::delete(DEFINITION, operator, delete)
            .described(
                "deleteSagaDefinition",
                "Deletes a definition all of whose sagas have ended.",
                Payload::json::<schemas::Deleted>(),
            )
            .takes(Payload::body::<schemas::Reason>())
            .refuses(&[Code::UnknownSagaDefinition, Code::StateConflict]),
        get("/v1/sagas", Permission::Reader, list).described(
            "listSagas",
            "Lists sagas, newest first.",
            Payload::json::<schemas::SagaPage>(),
        ),
        get("/v1/sagas/statistics", Permission::Reader, statistics).described(
            "getSagaStatistics",
            "Counts sagas by state.",
            Payload::json::<schemas::SagaStatistics>(),
        ),
        get("/v1/sagas/{id}", Permission::Reader, one)
            .described("getSaga", "Returns a saga with the timeline of its steps.", saga())
            .refuses(&[Code::UnknownSaga]),
        post("/v1/sagas/{id}/cancel", operator, cancel)
            .described("cancelSaga", "Cancels a saga: its completed steps are undone.", saga())
            .takes(Payload::body::<schemas::Reason>())
            .refuses(OF_SAGA),
        post("/v1/sagas/{id}/retry", operator, retry)
            .described("retrySaga", "Retries a waiting step or compensation immediately.", saga())
            .takes(Payload::body::<schemas::Reason>())
            .refuses(OF_SAGA),
    ];
    Feature::new("Sagas", operations)
}

/// The parameters of a list of definitions.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    /// The length of the page: 1 to 1,000, 100 when absent.
    #[param(inline)]
    limit: Option<Limit>,
    /// The `cursor` of the previous page.
    cursor: Option<String>,
}

/// The parameters of a list of sagas.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct SagasQuery {
    /// Only sagas of this definition.
    name: Option<String>,
    /// Only those in this state: `created`, `running`, `compensating`, `completed`, `failed`, `timeout` or `cancelled`.
    state: Option<String>,
    /// Only sagas with this correlation.
    execution_id: Option<String>,
    /// Only sagas with a compensation that needs an operator.
    #[param(inline)]
    parked: Option<Switch>,
    /// The length of the page: 1 to 1,000, 100 when absent.
    #[param(inline)]
    limit: Option<Limit>,
    /// The `cursor` of the previous page.
    cursor: Option<String>,
}

/// The parameters of statistics.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct StatisticsQuery {
    /// Only sagas of this definition.
    name: Option<String>,
}

fn sagas(server: &Server, caller: &Caller) -> Result<Arc<HostSagas>, Problem> {
    Ok(server.host.sagas(&caller.tenant)?)
}

/// `GET /v1/saga-definitions`.
async fn definitions(
    State(server): State<Arc<Server>>,
    Query(query): Query<ListQuery>,
    caller: Caller,
) -> Result<Response, Problem> {
    let limit = page_length(query.limit)?;
    json(StatusCode::OK, &sagas(&server, &caller)?.definitions(query.cursor.as_deref(), limit).await?)
}

/// `GET /v1/saga-definitions/{name}`.
async fn one_definition(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    caller: Caller,
) -> Result<Response, Problem> {
    json(StatusCode::OK, &sagas(&server, &caller)?.definition(&name).await?)
}

/// `PUT /v1/saga-definitions/{name}`.
async fn put(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let sagas = sagas(&server, &caller)?;
    let (parts, body) = request.into_parts();
    let held = body::read(&server, &parts, body).await?;
    let put = sagas.define(SagaDefinition::read(&name, &held.bytes)?).await?;
    let status = if put == PutSaga::Created { StatusCode::CREATED } else { StatusCode::OK };
    json(status, &sagas.definition(&name).await?)
}

/// `DELETE /v1/saga-definitions/{name}`.
async fn delete(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    #[derive(Serialize)]
    struct Deleted {
        deleted: bool,
    }
    let sagas = sagas(&server, &caller)?;
    let body: ActBody = read(&server, request).await?;
    sagas.delete_definition(&name, body.of_deletion()?).await?;
    json(StatusCode::OK, &Deleted { deleted: true })
}

/// `GET /v1/sagas`.
async fn list(
    State(server): State<Arc<Server>>,
    Query(query): Query<SagasQuery>,
    caller: Caller,
) -> Result<Response, Problem> {
    let state = match query.state.as_deref() {
        None => None,
        Some(name) => Some(SagaState::from_name(name).ok_or_else(|| {
            let known = SagaState::ALL.map(SagaState::name).join(", ");
            Problem::query("state", format!("{name:?} is not a state; the states are {known}"))
        })?),
    };
    let query = SagaQuery {
        name: query.name,
        state,
        execution_id: query.execution_id,
        parked: Switch::is_on(query.parked),
        limit: page_length(query.limit)?.min(limits::PAGE_MAX),
        cursor: query.cursor,
    };
    json(StatusCode::OK, &sagas(&server, &caller)?.list(query).await?)
}

/// `GET /v1/sagas/statistics`.
async fn statistics(
    State(server): State<Arc<Server>>,
    Query(query): Query<StatisticsQuery>,
    caller: Caller,
) -> Result<Response, Problem> {
    let sagas = sagas(&server, &caller)?;
    json(StatusCode::OK, &server.query(async move { sagas.statistics(query.name.as_deref()).await }).await?)
}

/// `GET /v1/sagas/{id}`.
async fn one(State(server): State<Arc<Server>>, Path(id): Path<String>, caller: Caller) -> Result<Response, Problem> {
    json(StatusCode::OK, &sagas(&server, &caller)?.get(&id).await?)
}

/// `POST /v1/sagas/{id}/cancel`.
async fn cancel(
    State(server): State<Arc<Server>>,
    Path(id): Path<String>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let sagas = sagas(&server, &caller)?;
    let body: ActBody = read(&server, request).await?;
    json(StatusCode::OK, &sagas.cancel(&id, body.of_deletion()?).await?)
}

/// `POST /v1/sagas/{id}/retry`.
async fn retry(
    State(server): State<Arc<Server>>,
    Path(id): Path<String>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let sagas = sagas(&server, &caller)?;
    let body: ActBody = read(&server, request).await?;
    json(StatusCode::OK, &sagas.retry(&id, body.of_deletion()?).await?)
}

impl From<SagaError> for Problem {
    fn from(error: SagaError) -> Self {
        let problem = Self::new(error.code(), error.to_string());
        match error {
            SagaError::Invalid(invalid) => invalid.into(),
            SagaError::Store(error) => annals_core::ReadError::Store(error).into(),
            SagaError::Unknown(name) | SagaError::UnknownDefinition(name) => problem.fact("name", &*name),
            SagaError::NotAllowed { act, what, state } => {
                problem.fact("act", act).fact("what", what).fact("state", state)
            }
            _ => problem,
        }
    }
}
