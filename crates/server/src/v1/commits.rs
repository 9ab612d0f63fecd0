//! `POST /v1/commits`: the server's part of the write path.

use std::sync::Arc;

use annals_core::wire::{parse_commit, write_commit_answer};
use annals_core::{Code, Invalid, NewCommit};
use axum::extract::State;
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;

use crate::answer::written;
use crate::body::{self, RequestBody};
use crate::problem::Problem;
use crate::query::Query;
use crate::router::Server;
use crate::source::Source;

/// A body up to this size is read as JSON at once; a larger one would hold up other requests, so a thread does it.
const PARSED_AT_ONCE_BYTES_MAX: usize = 256 * 1024;

/// The address.
pub(crate) const PATH: &str = "/v1/commits";

pub(crate) async fn commit(State(server): State<Arc<Server>>, request: axum::extract::Request) -> Response {
    answer(&server, request).await
}

pub(crate) async fn answer<B: RequestBody>(server: &Server, request: Request<B>) -> Response {
    match accept(server, request).await {
        Ok(response) => response,
        Err(problem) => {
            server.metrics.refused(problem.code());
            problem.into_response()
        }
    }
}

async fn accept<B: RequestBody>(server: &Server, request: Request<B>) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let found = Query::parse(parts.uri.query(), &[]).and_then(|_| Source::to_commit(server, &parts.headers));
    let source = match found {
        Ok(source) => source,
        Err(problem) => {
            body::discard(&server.options, body);
            return Err(problem);
        }
    };
    let held = body::read(server, &parts, body).await?;
    let _slot = server.commits.try_acquire().map_err(|_| {
        Problem::new(
            Code::Overloaded,
            "too many commits are under way; try again in a moment, with the same request id",
        )
    })?;
    let commit = parse(held.bytes.clone()).await?;
    let outcome = source.log.commit(commit).await?;
    server.metrics.committed(&outcome);
    let status = if outcome.duplicate { StatusCode::OK } else { StatusCode::CREATED };
    let mut json = Vec::new();
    write_commit_answer(&outcome, &mut json);
    Ok(written(status, json))
}

async fn parse(json: Bytes) -> Result<NewCommit, Problem> {
    if json.len() <= PARSED_AT_ONCE_BYTES_MAX {
        return Ok(parse_commit(&json)?);
    }
    let parsed: Result<Result<_, Invalid>, _> = tokio::task::spawn_blocking(move || parse_commit(&json)).await;
    let parsed = parsed.map_err(|error| Problem::new(Code::Internal, format!("reading the body failed: {error}")))?;
    Ok(parsed?)
}
