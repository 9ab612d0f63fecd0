//! `GET /v1`: what this is, and who the tenant's store is.

use std::sync::Arc;

use annals_core::SequenceNumber;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::Serialize;

use crate::answer;
use crate::problem::Problem;
use crate::query::Query;
use crate::router::{Server, paths};
use crate::source::{tenant, unknown_tenant};

#[derive(Serialize)]
struct Index<'a> {
    service: &'static str,
    version: &'static str,
    tenant: &'a str,
    store_id: String,
    incarnation: u32,
    incarnation_start: SequenceNumber,
    addresses: Vec<&'static str>,
}

/// The handler.
pub(crate) async fn index(
    State(server): State<Arc<Server>>,
    RawQuery(raw): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    Query::parse(raw.as_deref(), &[])?;
    let tenant = tenant(&headers)?;
    let identity = server.store.identity(tenant).ok_or_else(|| unknown_tenant(tenant))?;
    let answer = Index {
        service: "annals",
        version: env!("CARGO_PKG_VERSION"),
        tenant,
        store_id: identity.store_id.to_string(),
        incarnation: identity.incarnation,
        incarnation_start: identity.incarnation_start,
        addresses: paths(),
    };
    answer::json(StatusCode::OK, &answer)
}
