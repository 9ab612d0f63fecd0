//! `POST /v1/commits`: the server's part of the write path.

use std::sync::Arc;

use annals_core::wire::{parse_commit, write_commit_answer};
use annals_core::{Code, CommitOutcome, NewCommit};
use annals_runtime::StageError;
use axum::extract::State;
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse, Response};

use super::many::{self, Format};
use crate::answer::written;
use crate::body::{self, RequestBody, parse};
use crate::caller::{Caller, Principal};
use crate::event_types;
use crate::gate::Gate;
use crate::media;
use crate::payload::Payload;
use crate::problem::Problem;
use crate::route::{Feature, Permission, post};
use crate::schemas;
use crate::scoped::ScopedHandlers;
use crate::security::Needs;
use crate::source::Source;
use crate::state::Server;

/// The path. Connections compare it before they call the router.
pub(crate) const PATH: &str = "/v1/commits";
const PERMISSION: Permission = Permission::Writer;

/// Returns the operation that commits.
pub(crate) fn feature() -> Feature {
    const LINES: &str = "Several commits, one JSON document per line, each with a response of its own.";
    const DOCUMENTS: &str = "Several commits as consecutive BSON documents, each with a response of its own.";
    let commit = post(PATH, PERMISSION, commit)
        .described(
            "commit",
            "Commits events of one aggregate, all or none.",
            Payload::json::<schemas::CommitAnswer>().created().or(media::LINES, LINES).or(media::BSON, DOCUMENTS),
        )
        .takes(Payload::json::<schemas::NewCommit>().or(media::LINES, LINES).or(media::BSON, DOCUMENTS))
        .refuses(COMMIT_REFUSALS)
        .checking_event_types();
    Feature::new("Commits", [commit])
}

/// The refusals that depend on the contents of the store, in the order in which they are checked. The first two concern the stage to wait
/// for.
const COMMIT_REFUSALS: &[Code] = &[
    Code::UnknownHandler,
    Code::UnknownProjection,
    Code::AggregateOfOtherTenant,
    Code::RequestIdReused,
    Code::AppendConditionFailed,
    Code::KeyTaken,
    Code::KeyNotHeld,
    Code::VersionConflict,
    Code::DiskFull,
    Code::StoreFailed,
];

/// The refusals of requests that wait for no stage.
pub(super) const REFUSALS: &[Code] = COMMIT_REFUSALS.split_at(2).1;

/// Returns the gate of the operation, for connections that call it without the router.
pub(crate) fn gate(server: &Arc<Server>) -> Gate {
    Gate::new(server, PATH, Needs::new(PERMISSION).checking_event_types(), false)
}

async fn commit(State(server): State<Arc<Server>>, request: axum::extract::Request) -> Response {
    answer(&server, request).await
}

/// `POST /v1/commits`.
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
    let source = Source::to_commit(server, Caller::of(&parts.headers, Principal::of(&parts))?)?;
    let held = body::read_as(server, &parts, body, &[media::JSON, media::LINES, media::BSON]).await?;
    let bytes = held.bytes.clone();
    if let Some(format) = Format::of(&parts.headers) {
        let commits = parse(held.bytes.len(), move || format.parse(&bytes)).await??;
        return Ok(many::answer(server, Arc::new(source), format, commits, held).await);
    }
    let commit = parse(held.bytes.len(), move || parse_commit(&bytes)).await??;
    let outcome = make(server, &source, commit, held).await?;
    let status = if outcome.duplicate { StatusCode::OK } else { StatusCode::CREATED };
    let mut json = Vec::new();
    write_commit_answer(&outcome, &mut json);
    Ok(written(status, json))
}

/// The advice for a caller whose commit was refused for lack of a place.
pub(super) const RETRY: &str = "retry in a moment with the same request id";

/// Makes one commit, if the caller may commit its events and there is a place for it. `held` is dropped once the commit is stored, so
/// that waiting for a stage holds no resources that others need.
pub(crate) async fn make<H: Send>(
    server: &Server,
    source: &Source,
    commit: NewCommit,
    held: H,
) -> Result<CommitOutcome, Problem> {
    event_types::may_commit(&source.caller.principal, &commit)?;
    if let Some(stage) = commit.wait.until.stage().cloned() {
        // Boxed because it is rare; the other commits then need no room for it.
        return Box::pin(make_until_stage(server, source, (commit, held), &stage)).await;
    }
    let _held = held;
    make_at_once(server, source, commit).await
}

async fn make_at_once(server: &Server, source: &Source, mut commit: NewCommit) -> Result<CommitOutcome, Problem> {
    let _place = server.place(RETRY)?;
    source.caller.trace.iter().for_each(|trace| trace.note(&mut commit));
    let outcome = source.log.commit(commit).await?;
    server.metrics.committed(&outcome);
    Ok(outcome)
}

/// Commits and waits for a stage. Refuses an unknown stage before it commits. The place is released before the wait, whose time counts
/// from the stored commit.
async fn make_until_stage<H: Send>(
    server: &Server,
    source: &Source,
    (commit, held): (NewCommit, H),
    stage: &str,
) -> Result<CommitOutcome, Problem> {
    commit.wait.validate()?;
    if let Some(handler) = stage.strip_prefix("handled:") {
        // A handler of another scope is reported as unknown, because any other refusal would reveal its scope.
        ScopedHandlers::of(server, &source.caller)?.check(handler).await?;
    }
    let stage = server.host.stage(&source.caller.tenant, stage).await?;
    let (aggregate, at_most) = (commit.aggregate.clone(), commit.wait.time());
    let mut outcome = make_at_once(server, source, commit).await?;
    drop(held);
    tokio::select! {
        () = stage.wait(&aggregate, &mut outcome, at_most) => {}
        () = server.options.stop.stopped() => {}
    }
    Ok(outcome)
}

impl From<StageError> for Problem {
    fn from(error: StageError) -> Self {
        match error {
            StageError::Invalid(invalid) => invalid.into(),
            StageError::UnknownLog(error) => error.into(),
            StageError::Handler(error) => error.into(),
            StageError::Projection(error) => error.into(),
            StageError::Store(error) => annals_core::ReadError::Store(error).into(),
            _ => Self::new(error.code(), error.to_string()),
        }
    }
}
