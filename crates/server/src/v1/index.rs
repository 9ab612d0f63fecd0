//! `GET /v1`: the service and the identity of the tenant's store.

use std::sync::Arc;

use annals_core::SequenceNumber;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use utoipa::ToSchema;

use crate::answer;
use crate::caller::{Caller, unknown_tenant};
use crate::payload::Payload;
use crate::problem::Problem;
use crate::route::{Feature, Permission, get};
use crate::router::PATHS;
use crate::state::Server;

/// Returns the operation at the root.
pub(crate) fn feature() -> Feature {
    let index = get("/v1", Permission::Reader, index).described(
        "index",
        "Describes the service, with the identity of the tenant's store.",
        Payload::json::<Index>(),
    );
    // It returns no events.
    Feature::new("Index", [index.checking_event_types().checking_streams()])
}

/// The description of the service, and the identity of the tenant's store.
#[derive(Serialize, ToSchema)]
#[schema(as = Service)]
struct Index {
    service: &'static str,
    version: &'static str,
    tenant: String,
    store_id: String,
    incarnation: u32,
    incarnation_start: SequenceNumber,
    /// Every path of the API.
    addresses: &'static [&'static str],
}

/// `GET /v1`.
async fn index(State(server): State<Arc<Server>>, caller: Caller) -> Result<Response, Problem> {
    let identity = server.store.identity(&caller.tenant).ok_or_else(|| unknown_tenant(&caller.tenant))?;
    let answer = Index {
        service: "annals",
        version: env!("CARGO_PKG_VERSION"),
        tenant: caller.tenant,
        store_id: identity.store_id.to_string(),
        incarnation: identity.incarnation,
        incarnation_start: identity.incarnation_start,
        addresses: &PATHS,
    };
    answer::json(StatusCode::OK, &answer)
}
