//! `GET /v1`: what this is, and who the tenant's store is.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde_json::json;

use crate::answer;
use crate::problem::Problem;
use crate::query::Query;
use crate::router::{Server, paths};
use crate::source::{tenant, unknown_tenant};

/// The handler.
pub(crate) async fn index(
    State(server): State<Arc<Server>>,
    RawQuery(raw): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    Query::parse(raw.as_deref(), &[])?;
    let tenant = tenant(&headers)?;
    let identity = server.store.identity(tenant).ok_or_else(|| unknown_tenant(tenant))?;
    let answer = json!({
        "service": "annals",
        "version": env!("CARGO_PKG_VERSION"),
        "tenant": tenant,
        "store_id": identity.store_id.to_string(),
        "incarnation": identity.incarnation,
        "incarnation_start": identity.incarnation_start,
        "addresses": paths(),
    });
    answer::json(StatusCode::OK, &answer)
}
