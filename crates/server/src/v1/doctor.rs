//! `GET /v1/doctor`: findings about the store and what runs on it, with advice, the worst first.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use crate::answer::json;
use crate::payload::Payload;
use crate::problem::Problem;
use crate::route::{Feature, Permission, get};
use crate::schemas;
use crate::state::Server;

/// Returns the operation that examines the server.
pub(crate) fn feature() -> Feature {
    let examine = get("/v1/doctor", Permission::Admin, examine).described(
        "examine",
        "Examines the store, what it runs on and everything that runs on it, and advises what to do. The worst finding is first.",
        Payload::json::<schemas::Diagnosis>(),
    );
    Feature::new("Doctor", [examine])
}

/// `GET /v1/doctor`.
async fn examine(State(server): State<Arc<Server>>) -> Result<Response, Problem> {
    json(StatusCode::OK, &server.host.diagnose().await)
}
