//! `GET /v1/stats`: what a log holds, in numbers.

use std::sync::Arc;

use annals_core::LogStats;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;

use crate::answer;
use crate::caller::Caller;
use crate::payload::{Document, Payload};
use crate::problem::Problem;
use crate::query::{Query, ScopeQuery};
use crate::route::{Feature, Permission, get};
use crate::source::Source;
use crate::state::Server;

/// The operation that counts.
pub(crate) fn feature() -> Feature {
    let stats = get("/v1/stats", Permission::Reader, stats).described(
        "stats",
        "Counts what a log holds.",
        Payload::json::<Document>(),
    );
    Feature::new("Statistics", [stats])
}

#[derive(Serialize)]
struct Stats<'a> {
    tenant: &'a str,
    scope: &'a str,
    #[serde(flatten)]
    stats: LogStats,
}

/// The handler.
async fn stats(
    State(server): State<Arc<Server>>,
    Query(query): Query<ScopeQuery>,
    caller: Caller,
) -> Result<Response, Problem> {
    let source = Source::to_read(&server, caller, query.scope)?;
    let stats = source.log.stats(&mut |_, _| {}).await?;
    answer::json(StatusCode::OK, &Stats { tenant: &source.caller.tenant, scope: &source.scope, stats })
}
