//! `GET /v1/sequencer`, `GET /v1/held`, `POST /v1/held/retry` and `POST /v1/held/accept`: the sequencer, for stores on which the log's
//! writer does not assign sequence numbers, and the commits that it holds.

use std::sync::Arc;

use annals_core::wire::parse_json;
use annals_core::{Ask, Code, HeldCommit, HeldId};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use crate::answer::json;
use crate::body::{self, parse};
use crate::caller::Caller;
use crate::payload::Payload;
use crate::problem::Problem;
use crate::query::{Limit, Query};
use crate::route::{Feature, Permission, get, post};
use crate::schemas;
use crate::state::Server;

/// Returns the operations on the sequencer and on held commits.
pub(crate) fn feature() -> Feature {
    let refusals = &[Code::NotSupportedByStore];
    let of_one = &[Code::NotSupportedByStore, Code::UnknownHeldCommit, Code::Unreachable];
    Feature::new(
        "Sequencer",
        [
            get("/v1/sequencer", Permission::Operator, state)
                .described(
                    "sequencerState",
                    "Returns which process leads, and how far the tenant's log is.",
                    Payload::json::<schemas::SequencerState>(),
                )
                .refuses(refusals),
            get("/v1/held", Permission::Operator, held)
                .described("listHeldCommits", "Lists held commits.", Payload::json::<schemas::HeldList>())
                .refuses(refusals),
            post("/v1/held/retry", Permission::Operator, retry)
                .described("retryHeldCommit", "Checks a held commit again.", Payload::json::<schemas::HeldOutcome>())
                .takes(Payload::json::<schemas::HeldId>())
                .refuses(of_one),
            post("/v1/held/accept", Permission::Operator, accept)
                .described(
                    "acceptHeldCommit",
                    "Assigns sequence numbers to a held commit although earlier versions are missing.",
                    Payload::json::<schemas::HeldOutcome>(),
                )
                .takes(Payload::json::<schemas::HeldId>())
                .refuses(of_one),
        ],
    )
}

/// The parameters of a list of held commits.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct HeldQuery {
    /// Resumes after this commit, `COLLECTION/COMMIT`: the `next` of an earlier page.
    after: Option<String>,
    /// The length of the page: 1 to 1,000, 100 when absent.
    #[param(inline)]
    limit: Option<Limit>,
}

/// `GET /v1/sequencer`: which process leads, and how far the tenant's log is.
async fn state(State(server): State<Arc<Server>>, caller: Caller) -> Result<Response, Problem> {
    json(StatusCode::OK, &server.store.sequencing(&caller.tenant)?.state().await?)
}

/// `GET /v1/held`: the commits that are held.
async fn held(
    State(server): State<Arc<Server>>,
    Query(query): Query<HeldQuery>,
    caller: Caller,
) -> Result<Response, Problem> {
    #[derive(Serialize)]
    struct List {
        held: Vec<HeldCommit>,
        /// The value of `after` for the next page; `None` on the last one.
        next: Option<String>,
    }
    let sequencing = server.store.sequencing(&caller.tenant)?;
    let limit = Limit::or_default(query.limit);
    let after = match &query.after {
        None => None,
        Some(after) => {
            let (collection, commit) =
                after.split_once('/').ok_or_else(|| Problem::query("after", "must be COLLECTION/COMMIT"))?;
            Some(HeldId { collection: collection.to_owned(), commit: commit.to_owned() })
        }
    };
    let held = sequencing.held(after, limit).await?;
    let next = held.last().filter(|_| held.len() == limit);
    let next = next.map(|last| format!("{}/{}", last.id.collection, last.id.commit));
    json(StatusCode::OK, &List { held, next })
}

/// `POST /v1/held/retry`: evaluates a held commit again.
async fn retry(State(server): State<Arc<Server>>, caller: Caller, request: Request) -> Result<Response, Problem> {
    ask(&server, caller, request, Ask::Retry).await
}

/// `POST /v1/held/accept`: assigns sequence numbers to a held commit although versions before it are missing.
async fn accept(State(server): State<Arc<Server>>, caller: Caller, request: Request) -> Result<Response, Problem> {
    ask(&server, caller, request, Ask::Accept).await
}

async fn ask(server: &Server, caller: Caller, request: Request, what: Ask) -> Result<Response, Problem> {
    let sequencing = server.store.sequencing(&caller.tenant)?;
    let (parts, received) = request.into_parts();
    let held = body::read(server, &parts, received).await?;
    let bytes = held.bytes.clone();
    let commit: HeldId = parse(held.bytes.len(), move || parse_json(&bytes)).await??;
    json(StatusCode::OK, &sequencing.ask(commit, what).await?)
}
