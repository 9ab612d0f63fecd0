//! `POST /v1/streams/{name}/verdicts`: the verdicts of a filter on the log's events.

use std::sync::Arc;

use annals_core::wire::{AppendedAnswer, VerdictsBody, parse_json};
use annals_core::{Appended, Code, Streams, Verdicts};
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::Response;

use super::streams;
use crate::answer::json;
use crate::body::{self, parse};
use crate::caller::Caller;
use crate::payload::Payload;
use crate::problem::Problem;
use crate::query::{Query, ScopeQuery};
use crate::route::{Feature, Permission, post};
use crate::schemas;
use crate::state::Server;

/// Returns the operation that appends verdicts.
pub(crate) fn feature() -> Feature {
    let append = post("/v1/streams/{name}/verdicts", Permission::Writer, append)
        .described(
            "appendVerdicts",
            "Appends the verdicts of a filter on events of the log.",
            Payload::json::<schemas::Appended>().created(),
        )
        .takes(Payload::json::<schemas::Verdicts>())
        .refuses(&[Code::StreamMoved, Code::VerdictsDiffer]);
    Feature::new("Streams", [append])
}

/// `POST /v1/streams/{name}/verdicts`.
async fn append(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    Query(query): Query<ScopeQuery>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let (_, streams) = streams::found(&server, caller, query.scope)?;
    let (parts, body) = request.into_parts();
    let held = body::read(&server, &parts, body).await?;
    let bytes = held.bytes.clone();
    let verdicts: VerdictsBody = parse(held.bytes.len(), move || parse_json(&bytes)).await??;
    let appended = make(&server, &*streams, verdicts.of(name)).await?;
    let status = if appended.duplicate { StatusCode::OK } else { StatusCode::CREATED };
    json(status, &AppendedAnswer::from(appended))
}

/// Appends verdicts, if there is a place for them. They share the places of commits in flight.
pub(crate) async fn make(server: &Server, streams: &dyn Streams, verdicts: Verdicts) -> Result<Appended, Problem> {
    let _place = server.place("retry the same append in a moment")?;
    Ok(streams.append(verdicts).await?)
}
