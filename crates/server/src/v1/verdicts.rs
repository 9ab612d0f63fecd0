//! `POST /v1/streams/{name}/verdicts`: what a filter says of the log's events.

use std::sync::Arc;

use annals_core::wire::{AppendedAnswer, VerdictsBody, parse_json};
use annals_core::{Code, Streams};
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;

use crate::answer::json;
use crate::body;
use crate::problem::Problem;
use crate::query::Query;
use crate::router::Server;
use crate::source::Source;

/// The handler. Verdicts share the places of commits that are under way.
pub(crate) async fn append(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let streams = match streams(&server, &parts) {
        Ok(streams) => streams,
        Err(problem) => {
            body::discard(&server.options, body);
            return Err(problem);
        }
    };
    let held = body::read_as(&server, &parts, body, &[body::JSON]).await?;
    let verdicts: VerdictsBody = parse_json(&held.bytes)?;
    let _place = server.commits.try_acquire().map_err(|_| {
        Problem::new(Code::Overloaded, "too many commits are under way; append the same again in a moment")
    })?;
    let appended = streams.append(verdicts.of(name)).await?;
    let status = if appended.duplicate { StatusCode::OK } else { StatusCode::CREATED };
    json(status, &AppendedAnswer::from(appended))
}

fn streams(server: &Server, parts: &Parts) -> Result<Arc<dyn Streams>, Problem> {
    let query = Query::parse(parts.uri.query(), &["scope"])?;
    let source = Source::to_read(server, &parts.headers, &query)?;
    Ok(server.store.streams(&source.tenant, &source.scope)?)
}
