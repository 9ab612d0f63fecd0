//! `POST /v1/commits`: the server's part of the write path.

use std::sync::Arc;

use annals_core::Code;
use annals_core::wire::{CommitAnswer, parse_commit};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use crate::answer::json;
use crate::body;
use crate::problem::Problem;
use crate::query::Query;
use crate::router::Server;
use crate::source::Source;

/// A body up to this size is read as JSON at once; a larger one would hold up other requests, so a thread does it.
const PARSED_AT_ONCE_BYTES_MAX: usize = 256 * 1024;

pub(crate) async fn commit(State(server): State<Arc<Server>>, request: Request) -> Response {
    match accept(&server, request).await {
        Ok(response) => response,
        Err(problem) => {
            server.metrics.refused(problem.code());
            problem.into_response()
        }
    }
}

async fn accept(server: &Server, request: Request) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let found = Query::parse(parts.uri.query(), &[]).and_then(|_| Source::to_commit(server, &parts.headers));
    let source = match found {
        Ok(source) => source,
        Err(problem) => {
            body::discard(server, body);
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
    let bytes = held.bytes.clone();
    let commit = read(bytes.len(), move || parse_commit(&bytes)).await??;
    let outcome = source.log.commit(commit).await?;
    server.metrics.committed(&outcome);
    let status = if outcome.duplicate { StatusCode::OK } else { StatusCode::CREATED };
    json(status, &CommitAnswer::from(outcome))
}

/// Calls `parse`, which reads so many bytes.
pub(super) async fn read<T: Send + 'static>(
    bytes: usize,
    parse: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    if bytes <= PARSED_AT_ONCE_BYTES_MAX {
        return Ok(parse());
    }
    let parsed = tokio::task::spawn_blocking(parse).await;
    parsed.map_err(|error| Problem::new(Code::Internal, format!("reading the body failed: {error}")))
}
