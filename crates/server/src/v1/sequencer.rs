//! `GET /v1/sequencer`, `GET /v1/held`, `POST /v1/held/retry` and `POST /v1/held/accept`: what gives commits their numbers where the log's
//! own writer does not, and what it holds back.

use std::sync::Arc;

use annals_core::wire::parse_json;
use annals_core::{Ask, HeldCommit, HeldId, Sequencing, limits};
use axum::extract::{RawQuery, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::Serialize;

use crate::answer::json;
use crate::body;
use crate::problem::Problem;
use crate::query::Query;
use crate::router::Server;
use crate::source::tenant;

fn sequencing(server: &Server, headers: &HeaderMap) -> Result<Arc<dyn Sequencing>, Problem> {
    Ok(server.store.sequencing(tenant(headers)?)?)
}

/// Who leads, and how far the tenant's log is.
pub(crate) async fn state(
    State(server): State<Arc<Server>>,
    RawQuery(raw): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    Query::parse(raw.as_deref(), &[])?;
    json(StatusCode::OK, &sequencing(&server, &headers)?.state().await?)
}

/// The commits that are held back.
pub(crate) async fn held(
    State(server): State<Arc<Server>>,
    RawQuery(raw): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    #[derive(Serialize)]
    struct List {
        held: Vec<HeldCommit>,
        /// What `after` is for the next page; none behind the last.
        next: Option<String>,
    }
    let query = Query::parse(raw.as_deref(), &["after", "limit"])?;
    let sequencing = sequencing(&server, &headers)?;
    let limit = query.limit("limit")?.unwrap_or(limits::PAGE_DEFAULT);
    let after = match query.text("after")? {
        None => None,
        Some(after) => {
            let (collection, commit) =
                after.split_once('/').ok_or_else(|| Problem::query("after", "is COLLECTION/COMMIT"))?;
            Some(HeldId { collection: collection.to_owned(), commit: commit.to_owned() })
        }
    };
    let held = sequencing.held(after, limit).await?;
    let next = held.last().filter(|_| held.len() == limit);
    let next = next.map(|last| format!("{}/{}", last.id.collection, last.id.commit));
    json(StatusCode::OK, &List { held, next })
}

/// Looks at a held commit again.
pub(crate) async fn retry(State(server): State<Arc<Server>>, request: Request) -> Result<Response, Problem> {
    ask(&server, request, Ask::Retry).await
}

/// Gives a held commit numbers although versions before it are missing.
pub(crate) async fn accept(State(server): State<Arc<Server>>, request: Request) -> Result<Response, Problem> {
    ask(&server, request, Ask::Accept).await
}

async fn ask(server: &Server, request: Request, what: Ask) -> Result<Response, Problem> {
    let (parts, received) = request.into_parts();
    let found = Query::parse(parts.uri.query(), &[]).and_then(|_| sequencing(server, &parts.headers));
    let sequencing = match found {
        Ok(sequencing) => sequencing,
        Err(problem) => {
            body::discard(&server.options, received);
            return Err(problem);
        }
    };
    let held = body::read(server, &parts, received).await?;
    let commit: HeldId = parse_json(&held.bytes)?;
    json(StatusCode::OK, &sequencing.ask(commit, what).await?)
}
