//! The service `Commits`.

use std::sync::Arc;

use annals_core::CommitOutcome;
use axum::extract::{Request, State};
use axum::response::Response;

use super::generated::{self, CommitRequest, TransactRequest, TransactResponse};
use super::{Method, documents, frames};
use crate::body::parse;
use crate::caller::Caller;
use crate::problem::Problem;
use crate::route::Permission;
use crate::source::Source;
use crate::state::Server;
use crate::v1;

pub(super) fn methods() -> Vec<Method> {
    vec![
        Method::new("/annals.v1.Commits/Commit", Permission::Writer, commit).checking_event_types(),
        Method::new("/annals.v1.Commits/Transact", Permission::Writer, transact).checking_event_types(),
    ]
}

async fn commit(State(server): State<Arc<Server>>, caller: Caller, request: Request) -> Result<Response, Problem> {
    let made = made(&server, caller, request).await;
    made.map(|outcome| frames::answered(&message(outcome)))
        .inspect_err(|problem| server.metrics.refused(problem.code()))
}

async fn made(server: &Server, caller: Caller, request: Request) -> Result<CommitOutcome, Problem> {
    let source = Source::to_commit(server, caller)?;
    let frames::Asked::<CommitRequest> { message, held } = frames::read(server, request).await?;
    let commit = parse(held.bytes.len(), move || documents::commit(message.commit)).await??;
    v1::commits::make(server, &source, commit, held).await
}

async fn transact(State(server): State<Arc<Server>>, caller: Caller, request: Request) -> Result<Response, Problem> {
    let outcomes = transacted(&server, caller, request).await;
    let outcomes = outcomes.inspect_err(|problem| server.metrics.refused(problem.code()))?;
    Ok(frames::answered(&TransactResponse { outcomes: outcomes.into_iter().map(message).collect() }))
}

async fn transacted(server: &Server, caller: Caller, request: Request) -> Result<Vec<CommitOutcome>, Problem> {
    let source = Source::to_commit(server, caller)?;
    let asked: frames::Asked<TransactRequest> = frames::read(server, request).await?;
    let (message, held) = (asked.message, asked.held);
    let transaction = parse(held.bytes.len(), move || documents::transaction(message.transaction)).await??;
    v1::transactions::make(server, &source, transaction).await
}

fn message(outcome: CommitOutcome) -> generated::CommitOutcome {
    generated::CommitOutcome {
        commit_id: outcome.commit_id.to_string(),
        version: outcome.version,
        first_sequence_number: outcome.first_sequence_number,
        event_ids: outcome.event_ids.iter().map(ToString::to_string).collect(),
        duplicate: outcome.duplicate,
        reached: outcome.reached().as_str().to_owned(),
    }
}
