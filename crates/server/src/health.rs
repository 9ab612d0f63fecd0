//! `GET /health/live` and `GET /health/ready`.

use std::sync::Arc;

use annals_core::{Code, LogStatus, StoreError};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};

use crate::answer;
use crate::problem::Problem;
use crate::router::Server;

/// The process answers. That is all it says.
pub(crate) async fn live() -> Result<Response, Problem> {
    answer::json(StatusCode::OK, &json!({"status": "live"}))
}

/// Every log takes commits; or which do not, and why.
pub(crate) async fn ready(State(server): State<Arc<Server>>) -> Result<Response, Problem> {
    if server.options.stop.is_stopped() {
        return Err(Problem::new(Code::Closing, StoreError::Closed.to_string()));
    }
    let status = server.store.status();
    let logs: Vec<Value> = status.iter().map(shown).collect();
    let refusing: Vec<(&LogStatus, &StoreError)> =
        status.iter().filter_map(|log| Some((log, log.refusing.as_ref()?))).collect();
    match refusing.first() {
        None => answer::json(StatusCode::OK, &json!({"status": "ready", "logs": logs})),
        Some(_) => {
            let reasons: Vec<_> =
                refusing.iter().map(|(log, error)| format!("{}/{}: {error}", log.tenant, log.scope)).collect();
            Err(Problem::new(Code::NotReady, reasons.join("; ")).fact("logs", logs))
        }
    }
}

fn shown(log: &LogStatus) -> Value {
    let mut shown = json!({
        "tenant": log.tenant,
        "scope": log.scope,
        "head": log.head,
        "commits": log.commits,
        "syncs": log.syncs,
        "bytes": log.bytes,
        "recovery": log.recovery,
    });
    if let Some(error) = &log.refusing {
        shown["refusing"] = json!({"code": error.code().as_str(), "detail": error.to_string()});
    }
    shown
}
