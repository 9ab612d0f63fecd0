//! `POST /v1/transactions`: commits to several aggregates, atomically.

use std::sync::Arc;

use annals_core::wire::{CommitAnswer, parse_transaction};
use annals_core::{CommitOutcome, NewTransaction};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::commits;
use crate::answer::json;
use crate::body::{self, parse};
use crate::caller::{Caller, Principal};
use crate::event_types;
use crate::payload::Payload;
use crate::problem::Problem;
use crate::route::{Feature, Permission, post};
use crate::schemas;
use crate::source::Source;
use crate::state::Server;

/// Returns the operation that commits to several aggregates.
pub(crate) fn feature() -> Feature {
    let transact = post("/v1/transactions", Permission::Writer, transact)
        .described(
            "transact",
            "Commits to several aggregates, all or none.",
            Payload::json::<Vec<schemas::CommitAnswer>>().created(),
        )
        .takes(Payload::json::<schemas::NewTransaction>())
        .refuses(commits::REFUSALS)
        .checking_event_types();
    Feature::new("Transactions", [transact])
}

async fn transact(State(server): State<Arc<Server>>, request: Request) -> Response {
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
    let principal = Principal::of(&parts);
    let source = Source::to_commit(server, Caller::of(&parts.headers, principal)?)?;
    let held = body::read(server, &parts, body).await?;
    let bytes = held.bytes.clone();
    let transaction = parse(bytes.len(), move || parse_transaction(&bytes)).await??;
    let outcomes = make(server, &source, transaction).await?;
    // A transaction is a duplicate as a whole or not at all.
    let repeat = outcomes.iter().all(|outcome| outcome.duplicate);
    let answers: Vec<_> = outcomes.into_iter().map(CommitAnswer::from).collect();
    json(if repeat { StatusCode::OK } else { StatusCode::CREATED }, &answers)
}

/// Makes a transaction, if the caller may commit its events and there is a place for it.
pub(crate) async fn make(
    server: &Server,
    source: &Source,
    mut transaction: NewTransaction,
) -> Result<Vec<CommitOutcome>, Problem> {
    for commit in &transaction.commits {
        event_types::may_commit(&source.caller.principal, commit)?;
    }
    let _place = server.place(commits::RETRY)?;
    if let Some(trace) = &source.caller.trace {
        transaction.commits.iter_mut().for_each(|commit| trace.note(commit));
    }
    let outcomes = source.log.transact(transaction).await?;
    server.metrics.transacted(&outcomes);
    Ok(outcomes)
}
