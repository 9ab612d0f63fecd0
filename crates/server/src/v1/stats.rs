//! `GET /v1/stats`: statistics of a log.

use std::collections::HashMap;
use std::sync::Arc;

use annals_core::LogStats;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use utoipa::ToSchema;

use crate::answer;
use crate::caller::Caller;
use crate::payload::Payload;
use crate::problem::Problem;
use crate::query::{Query, ScopeQuery};
use crate::route::{Feature, Permission, get};
use crate::source::Source;
use crate::state::Server;

/// Returns the operation that counts.
pub(crate) fn feature() -> Feature {
    let stats = get("/v1/stats", Permission::Reader, stats).described(
        "stats",
        "Counts what a log holds.",
        Payload::json::<StatsAnswer>(),
    );
    Feature::new("Statistics", [stats])
}

/// The contents of a log in numbers.
#[derive(ToSchema)]
#[schema(as = Stats)]
#[expect(dead_code, reason = "describes `Stats`")]
struct StatsAnswer {
    tenant: String,
    scope: String,
    events: u64,
    commits: u64,
    aggregates: u64,
    aggregates_by_name: HashMap<String, u64>,
    events_by_type: HashMap<String, u64>,
    segments: u64,
    /// Bytes of the commits as they are stored.
    bytes: u64,
    #[schema(format = DateTime, required = true)]
    oldest: Option<String>,
    #[schema(format = DateTime, required = true)]
    newest: Option<String>,
}

#[derive(Serialize)]
struct Stats<'a> {
    tenant: &'a str,
    scope: &'a str,
    #[serde(flatten)]
    stats: LogStats,
}

/// `GET /v1/stats`.
async fn stats(
    State(server): State<Arc<Server>>,
    Query(query): Query<ScopeQuery>,
    caller: Caller,
) -> Result<Response, Problem> {
    let source = Source::to_read(&server, caller, query.scope)?;
    // This may read the whole log. Counts of closed segments are kept, so that a retry continues from there.
    let log = Arc::clone(&source.log);
    let stats = server.query(async move { log.stats(&mut |_, _| {}).await }).await?;
    answer::json(StatusCode::OK, &Stats { tenant: &source.caller.tenant, scope: &source.scope, stats })
}
