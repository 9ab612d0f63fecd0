//! `GET /v1/stats`: what a log holds, in numbers.

use std::sync::Arc;

use annals_core::LogStats;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::Serialize;

use crate::answer;
use crate::problem::Problem;
use crate::query::Query;
use crate::router::Server;
use crate::source::Source;

#[derive(Serialize)]
struct Stats<'a> {
    tenant: &'a str,
    scope: &'a str,
    #[serde(flatten)]
    stats: LogStats,
}

/// The handler.
pub(crate) async fn stats(
    State(server): State<Arc<Server>>,
    RawQuery(raw): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let query = Query::parse(raw.as_deref(), &["scope"])?;
    let source = Source::to_read(&server, &headers, &query)?;
    let stats = source.log.stats(&mut |_, _| {}).await?;
    answer::json(StatusCode::OK, &Stats { tenant: &source.tenant, scope: &source.scope, stats })
}
