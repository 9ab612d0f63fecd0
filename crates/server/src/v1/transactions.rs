//! `POST /v1/transactions`: commits to several aggregates, all or none.

use std::sync::Arc;

use annals_core::Code;
use annals_core::wire::{CommitAnswer, parse_transaction};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::commits;
use crate::answer::json;
use crate::body;
use crate::problem::Problem;
use crate::query::Query;
use crate::router::Server;
use crate::source::Source;

pub(crate) async fn transact(State(server): State<Arc<Server>>, request: Request) -> Response {
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
            body::discard(&server.options, body);
            return Err(problem);
        }
    };
    let held = body::read(server, &parts, body).await?;
    let _place = server.commits.try_acquire().map_err(|_| {
        Problem::new(
            Code::Overloaded,
            "too many commits are under way; try again in a moment, with the same request id",
        )
    })?;
    let bytes = held.bytes.clone();
    let transaction = commits::read(bytes.len(), move || parse_transaction(&bytes)).await??;
    let outcomes = source.log.transact(transaction).await?;
    server.metrics.transacted(&outcomes);
    // A transaction is a repeat as a whole or not at all.
    let repeat = outcomes.iter().all(|outcome| outcome.duplicate);
    let answers: Vec<_> = outcomes.into_iter().map(CommitAnswer::from).collect();
    json(if repeat { StatusCode::OK } else { StatusCode::CREATED }, &answers)
}
