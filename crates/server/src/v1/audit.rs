//! `GET /v1/audit`: the acts of administrators and operators.

use std::sync::Arc;

use annals_core::Code;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use utoipa::IntoParams;

use super::credentials::without;
use super::managed::page_length;
use crate::answer::json;
use crate::payload::Payload;
use crate::problem::Problem;
use crate::query::{Limit, Query};
use crate::route::{Feature, Permission, get};
use crate::schemas;
use crate::state::Server;

/// Returns the operation that reads the audit log.
pub(crate) fn feature() -> Feature {
    let list = get("/v1/audit", Permission::Admin, list).described(
        "listAudit",
        "Lists administrative acts, newest first, each with its caller, reason and origin.",
        Payload::json::<schemas::AuditPage>(),
    );
    Feature::new("Audit", [list.refuses(&[Code::NotSupportedByStore])])
}

/// The parameters of the list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct AuditQuery {
    /// The length of the page: 1 to 1,000, 100 when absent.
    #[param(inline)]
    limit: Option<Limit>,
    /// The `cursor` of the previous page.
    cursor: Option<String>,
}

/// `GET /v1/audit`.
async fn list(State(server): State<Arc<Server>>, Query(query): Query<AuditQuery>) -> Result<Response, Problem> {
    let limit = page_length(query.limit)?;
    let Some(Ok(audit)) = server.guard.as_ref().map(|guard| &guard.audit) else { return Err(without("audit log")) };
    json(StatusCode::OK, &audit.list(query.cursor.as_deref(), limit).await?)
}
