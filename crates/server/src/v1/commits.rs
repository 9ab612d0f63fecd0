//! `POST /v1/commits`: the server's part of the write path.

use std::sync::Arc;

use annals_core::wire::{parse_commit, write_commit_answer};
use annals_core::{Code, CommitOutcome, NewCommit, Reached, until_snapshot};
use axum::extract::State;
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse, Response};

use super::lines;
use super::many::{self, Format};
use crate::answer::written;
use crate::body::{self, RequestBody};
use crate::problem::Problem;
use crate::query::Query;
use crate::router::Server;
use crate::source::Source;

/// A body up to this size is read at once; a larger one would hold up other requests, so a thread does it.
const PARSED_AT_ONCE_BYTES_MAX: usize = 256 * 1024;

/// The address.
pub(crate) const PATH: &str = "/v1/commits";

pub(crate) async fn commit(State(server): State<Arc<Server>>, request: axum::extract::Request) -> Response {
    answer(&server, request).await
}

/// The handler.
pub(crate) async fn answer<B: RequestBody>(server: &Arc<Server>, request: Request<B>) -> Response {
    match accept(server, request).await {
        Ok(response) => response,
        Err(problem) => {
            server.metrics.refused(problem.code());
            problem.into_response()
        }
    }
}

async fn accept<B: RequestBody>(server: &Arc<Server>, request: Request<B>) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let found = Query::parse(parts.uri.query(), &[]).and_then(|_| Source::to_commit(server, &parts.headers));
    let source = match found {
        Ok(source) => source,
        Err(problem) => {
            body::discard(&server.options, body);
            return Err(problem);
        }
    };
    let held = body::read_as(server, &parts, body, &[body::JSON, lines::MEDIA_TYPE, Format::DOCUMENTS]).await?;
    let bytes = held.bytes.clone();
    if let Some(format) = Format::of(&parts.headers) {
        let commits = read(held.bytes.len(), move || format.parse(&bytes)).await??;
        return Ok(many::answer(server, Arc::new(source), format, commits, held).await);
    }
    let commit = read(held.bytes.len(), move || parse_commit(&bytes)).await??;
    let outcome = make(server, &source, commit).await?;
    let status = if outcome.duplicate { StatusCode::OK } else { StatusCode::CREATED };
    let mut json = Vec::new();
    write_commit_answer(&outcome, &mut json);
    Ok(written(status, json))
}

/// Makes one commit, if there is a place for it.
pub(crate) async fn make(server: &Server, source: &Source, commit: NewCommit) -> Result<CommitOutcome, Problem> {
    if commit.wait.until == Reached::Snapshot {
        // Rare, so the others carry no room for it.
        return Box::pin(make_until_snapshot(server, source, commit)).await;
    }
    make_at_once(server, source, commit).await
}

async fn make_at_once(server: &Server, source: &Source, commit: NewCommit) -> Result<CommitOutcome, Problem> {
    let _place = server.commits.try_acquire().map_err(|_| {
        Problem::new(
            Code::Overloaded,
            "too many commits are under way; try again in a moment, with the same request id",
        )
    })?;
    let outcome = source.log.commit(commit).await?;
    server.metrics.committed(&outcome);
    Ok(outcome)
}

/// The place is given up before the snapshot is waited for; its time counts from here.
async fn make_until_snapshot(server: &Server, source: &Source, commit: NewCommit) -> Result<CommitOutcome, Problem> {
    commit.wait.validate()?;
    let (aggregate, time_is_up) = (commit.aggregate.clone(), tokio::time::sleep(commit.wait.time()));
    let ends = async {
        tokio::select! {
            () = time_is_up => {}
            () = server.options.stop.stopped() => {}
        }
    };
    let snapshots = server.store.snapshots(&source.tenant)?;
    let mut outcome = make_at_once(server, source, commit).await?;
    until_snapshot(&mut outcome, &aggregate, &*snapshots, ends).await;
    Ok(outcome)
}

/// Calls `parse`, which reads so many bytes.
pub(crate) async fn read<T: Send + 'static>(
    bytes: usize,
    parse: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    if bytes <= PARSED_AT_ONCE_BYTES_MAX {
        return Ok(parse());
    }
    let parsed = tokio::task::spawn_blocking(parse).await;
    parsed.map_err(|error| Problem::new(Code::Internal, format!("reading the body failed: {error}")))
}
