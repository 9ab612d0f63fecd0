//! `/v1/filters`: filters, which fill streams by a definition or by the verdicts of a client.

use std::sync::Arc;

use annals_core::filters::{FilterDefinition, FilterError, FilterName, FilterSettleBody};
use annals_core::handlers::{PullBody, SettleResult};
use annals_core::{Code, DEFAULT_SCOPE};
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use super::handlers::delivered;
use super::managed::{self, ListQuery, definition, deleted, page_length, read, reason, while_serving};
use crate::accept::Accept;
use crate::answer::json;
use crate::caller::Caller;
use crate::payload::Payload;
use crate::problem::Problem;
use crate::query::{Limit, Query, ScopeQuery};
use crate::route::{self, Feature, Permission, get, post};
use crate::schemas;
use crate::scoped::ScopedFilters;
use crate::state::Server;

const ONE: &str = "/v1/filters/{stream}";

/// Returns the operations on filters.
pub(crate) fn feature() -> Feature {
    let operations = [
        get("/v1/filters", Permission::Reader, list)
            .described("listFilters", "Lists filters and their state.", Payload::json::<schemas::FilterPage>())
            .with_scope_in_definition(),
        get(ONE, Permission::Reader, one)
            .described("getFilter", "Returns the state of a filter.", Payload::json::<schemas::FilterStatus>())
            .refuses(&[Code::UnknownFilter]),
        route::put(ONE, Permission::Operator, put)
            .described(
                "putFilter",
                "Defines a filter, or changes its definition if the change agrees with the content of the stream.",
                Payload::json::<schemas::FilterStatus>().created(),
            )
            .takes(Payload::body::<schemas::FilterDefinition>())
            .refuses(&[Code::InvalidFilter, Code::FilterChanged]),
        route::delete(ONE, Permission::Operator, delete)
            .described(
                "deleteFilter",
                "Deletes a filter. Its stream keeps its entries and gets no more.",
                Payload::json::<schemas::Deleted>(),
            )
            .takes(Payload::body::<schemas::Reason>())
            .refuses(&[Code::UnknownFilter]),
        post("/v1/filters/{stream}/pull", Permission::Writer, pull)
            .described(
                "pullFilter",
                "Returns the events that a remote filter evaluates next.",
                Payload::document::<schemas::Deliveries>(),
            )
            .takes(Payload::body::<schemas::Pull>())
            .refuses(&[Code::UnknownFilter, Code::StateConflict]),
        post("/v1/filters/{stream}/settle", Permission::Writer, settle)
            .described("settleFilter", "Stores the verdicts of a remote filter.", Payload::json::<schemas::Settled>())
            .takes(Payload::body::<schemas::FilterSettlements>())
            .refuses(&[Code::UnknownFilter, Code::StateConflict, Code::FilterOwnedElsewhere]),
        get("/v1/filters/{stream}/acts", Permission::Reader, acts)
            .described(
                "listFilterActs",
                "Lists the acts of operators on a filter, newest first, even after its deletion.",
                Payload::json::<schemas::HandlerActPage>(),
            )
            .refuses(&[Code::UnknownFilter]),
    ];
    Feature::new("Filters", operations)
}

/// The parameters of a list that belongs to one filter.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct ActsQuery {
    /// The length of the page: 1 to 1,000, 100 when absent.
    #[param(inline)]
    limit: Option<Limit>,
    /// The `cursor` of the previous page.
    cursor: Option<String>,
    /// The scope of the filter; `default` when absent.
    scope: Option<String>,
}

fn filters(server: &Server, caller: &Caller) -> Result<ScopedFilters, Problem> {
    ScopedFilters::of(server, caller)
}

fn named(stream: String, query: ScopeQuery) -> FilterName {
    FilterName::of_scope(query.scope.unwrap_or_else(|| DEFAULT_SCOPE.to_owned()), stream)
}

/// `GET /v1/filters`.
async fn list(
    State(server): State<Arc<Server>>,
    Query(query): Query<ListQuery>,
    caller: Caller,
) -> Result<Response, Problem> {
    let (after, limit) = query.page()?;
    json(StatusCode::OK, &filters(&server, &caller)?.list(after, limit).await?)
}

/// `GET /v1/filters/{stream}`.
async fn one(
    State(server): State<Arc<Server>>,
    Path(stream): Path<String>,
    Query(query): Query<ScopeQuery>,
    caller: Caller,
) -> Result<Response, Problem> {
    json(StatusCode::OK, &filters(&server, &caller)?.get(&named(stream, query)).await?)
}

/// `PUT /v1/filters/{stream}`.
async fn put(
    State(server): State<Arc<Server>>,
    Path(stream): Path<String>,
    Query(query): Query<ScopeQuery>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let filters = filters(&server, &caller)?;
    let held = definition(&server, request).await?;
    let scope = query.scope.as_deref().unwrap_or(DEFAULT_SCOPE);
    let definition = FilterDefinition::read(&stream, scope, &held.bytes)?;
    let name = definition.name.clone();
    let new = filters.put(definition).await?;
    managed::put(new, &filters.get(&name).await?)
}

/// `DELETE /v1/filters/{stream}`.
async fn delete(
    State(server): State<Arc<Server>>,
    Path(stream): Path<String>,
    Query(query): Query<ScopeQuery>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let filters = filters(&server, &caller)?;
    filters.delete(&named(stream, query), reason(&server, request).await?).await?;
    deleted()
}

/// `POST /v1/filters/{stream}/pull`. If the caller disconnects before the response, it has taken nothing.
async fn pull(
    State(server): State<Arc<Server>>,
    Path(stream): Path<String>,
    Query(query): Query<ScopeQuery>,
    caller: Caller,
    accept: Accept,
    request: Request,
) -> Result<Response, Problem> {
    let filters = filters(&server, &caller)?;
    let pull: PullBody = read(&server, request).await?;
    let name = named(stream, query);
    let deliveries = while_serving(&server, filters.pull(&name, pull), "pull").await?;
    delivered(deliveries, (caller.tenant, name.scope.to_string()), &accept).await
}

/// `POST /v1/filters/{stream}/settle`.
async fn settle(
    State(server): State<Arc<Server>>,
    Path(stream): Path<String>,
    Query(query): Query<ScopeQuery>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    #[derive(Serialize)]
    struct Settled {
        results: Vec<SettleResult>,
    }
    let filters = filters(&server, &caller)?;
    let settle: FilterSettleBody = read(&server, request).await?;
    json(StatusCode::OK, &Settled { results: filters.settle(&named(stream, query), settle).await? })
}

/// `GET /v1/filters/{stream}/acts`.
async fn acts(
    State(server): State<Arc<Server>>,
    Path(stream): Path<String>,
    Query(query): Query<ActsQuery>,
    caller: Caller,
) -> Result<Response, Problem> {
    let ActsQuery { limit, cursor, scope } = query;
    let name = named(stream, ScopeQuery { scope });
    let limit = page_length(limit)?;
    json(StatusCode::OK, &filters(&server, &caller)?.acts(&name, cursor.as_deref(), limit).await?)
}

impl From<FilterError> for Problem {
    fn from(error: FilterError) -> Self {
        let problem = Self::new(error.code(), error.to_string());
        match error {
            FilterError::Invalid(invalid) => invalid.into(),
            FilterError::Store(error) => annals_core::ReadError::Store(error).into(),
            FilterError::Unknown(name) => problem.fact("name", name),
            FilterError::Changed { name, setting, first_difference } => {
                problem.fact("name", name).fact("setting", setting).fact("first_difference", first_difference)
            }
            FilterError::NotAllowed { act, name, state } => {
                problem.fact("act", act).fact("name", name).fact("state", state)
            }
            FilterError::OwnedElsewhere { name, owner } => problem.fact("name", name).fact("owner", owner),
            _ => problem,
        }
    }
}
