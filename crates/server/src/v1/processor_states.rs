//! `/v1/processor-states`: the states of handlers and filters in the layout of the Dolittle Runtime.

use std::sync::Arc;

use annals_core::DEFAULT_SCOPE;
use annals_core::bson::Bson;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use utoipa::ToSchema;

use crate::answer::json;
use crate::caller::Caller;
use crate::payload::Payload;
use crate::problem::Problem;
use crate::query::{Query, ScopeQuery};
use crate::route::{Feature, Permission, get};
use crate::state::Server;

/// Returns the operation.
pub(crate) fn feature() -> Feature {
    let list = get("/v1/processor-states", Permission::Reader, list).described(
        "listProcessorStates",
        "Lists the states of handlers and filters as documents of the collection stream-processor-states of the Dolittle Runtime.",
        Payload::json::<ProcessorStates>(),
    );
    Feature::new("Handlers", [list])
}

/// The states of handlers and filters.
#[derive(Serialize, ToSchema)]
struct ProcessorStates {
    /// Documents in canonical Extended JSON, without `_id`.
    items: Vec<serde_json::Value>,
}

/// `GET /v1/processor-states`.
async fn list(
    State(server): State<Arc<Server>>,
    Query(query): Query<ScopeQuery>,
    caller: Caller,
) -> Result<Response, Problem> {
    let scope = query.scope.as_deref().unwrap_or(DEFAULT_SCOPE);
    let states = server.host.handlers(&caller.tenant)?.states(scope).await?;
    let items = states.into_iter().map(|state| Bson::Document(state).into_canonical_extjson()).collect();
    json(StatusCode::OK, &ProcessorStates { items })
}
