//! `/v1/dead-letters`: events that a consumer could not process, with acts on one letter or on many.

use std::sync::Arc;

use annals_core::Code;
use annals_core::dead_letters::{BulkAct, BulkBody, DeadLetterError, LetterQuery, LetterStatus, PolicyBody};
use annals_core::handlers::ActBody;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use utoipa::IntoParams;

use super::managed::{page_length, read};
use crate::answer::json;
use crate::caller::Caller;
use crate::payload::Payload;
use crate::problem::Problem;
use crate::query::{Limit, Query, Time};
use crate::route::{self, Feature, Permission, get, post};
use crate::schemas;
use crate::scoped::ScopedDeadLetters;
use crate::state::Server;

const ALL: &str = "/v1/dead-letters";
const POLICY: &str = "/v1/dead-letters/policies/{topic}";

/// Returns the operations on dead letters.
pub(crate) fn feature() -> Feature {
    let letter = Payload::json::<schemas::DeadLetter>;
    let policy = Payload::json::<schemas::LetterPolicyStatus>;
    let outcome = Payload::json::<schemas::BulkOutcome>;
    let (reader, operator) = (Permission::Reader, Permission::Operator);
    let operations = [
        get(ALL, reader, list)
            .described(
                "listDeadLetters",
                "Lists dead letters, most recently failed first.",
                Payload::json::<schemas::DeadLetterPage>(),
            )
            .refuses(&[Code::InvalidQuery, Code::InvalidTime]),
        get("/v1/dead-letters/statistics", reader, statistics).described(
            "countDeadLetters",
            "Counts dead letters by topic and status.",
            Payload::json::<schemas::DeadLetterStatistics>(),
        ),
        get("/v1/dead-letters/policies", reader, policies).described(
            "listLetterPolicies",
            "Lists the policies of topics that have their own.",
            Payload::json::<schemas::LetterPolicyPage>(),
        ),
        get(POLICY, reader, policy_of).described(
            "getLetterPolicy",
            "Returns the policy that a topic's dead letters follow.",
            policy(),
        ),
        route::put(POLICY, operator, put_policy)
            .described("putLetterPolicy", "Stores a policy for a topic's dead letters.", policy())
            .takes(Payload::body::<schemas::NewLetterPolicy>())
            .refuses(&[Code::InvalidPolicy]),
        route::delete(POLICY, operator, delete_policy)
            .described(
                "deleteLetterPolicy",
                "Removes the policy of a topic, whose dead letters then follow the policy of their category.",
                policy(),
            )
            .takes(Payload::body::<schemas::Reason>()),
        post("/v1/dead-letters/retry", operator, retry_many)
            .described("retryDeadLetters", "Makes many dead letters due immediately.", outcome())
            .takes(Payload::body::<schemas::BulkAct>())
            .refuses(&[Code::InvalidCondition]),
        post("/v1/dead-letters/discard", operator, discard_many)
            .described("discardDeadLetters", "Discards many dead letters.", outcome())
            .takes(Payload::body::<schemas::BulkAct>())
            .refuses(&[Code::InvalidCondition]),
        get("/v1/dead-letters/{id}", reader, one)
            .described("getDeadLetter", "Returns a dead letter with its event and its history.", letter())
            .refuses(&[Code::UnknownDeadLetter]),
        post("/v1/dead-letters/{id}/retry", operator, retry)
            .described("retryDeadLetter", "Makes a dead letter due immediately.", letter())
            .takes(Payload::body::<schemas::Reason>())
            .refuses(&[Code::UnknownDeadLetter, Code::StateConflict]),
        post("/v1/dead-letters/{id}/discard", operator, discard)
            .described("discardDeadLetter", "Discards a dead letter.", letter())
            .takes(Payload::body::<schemas::Reason>())
            .refuses(&[Code::UnknownDeadLetter, Code::StateConflict]),
    ];
    Feature::new("Dead letters", operations)
}

/// The parameters of the list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct LettersQuery {
    /// `pending`, `scheduled`, `retried` or `discarded`.
    status: Option<String>,
    /// The topic of the event.
    topic: Option<String>,
    /// The group that could not process it.
    group: Option<String>,
    /// The handler that could not process it.
    handler: Option<String>,
    /// The partner that an event was exchanged with.
    partner: Option<String>,
    /// The type of the event.
    r#type: Option<String>,
    /// Dead letters that failed at this time or later.
    #[param(inline)]
    since: Option<Time>,
    /// The length of the page: 1 to 1,000, 100 when absent.
    #[param(inline)]
    limit: Option<Limit>,
    /// The `cursor` of the previous page.
    cursor: Option<String>,
}

/// The parameters of a list of policies.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct PoliciesQuery {
    /// The length of the page: 1 to 1,000, 100 when absent.
    #[param(inline)]
    limit: Option<Limit>,
    /// The `cursor` of the previous page.
    cursor: Option<String>,
}

fn letters(server: &Server, caller: &Caller) -> Result<ScopedDeadLetters, Problem> {
    ScopedDeadLetters::of(server, caller)
}

/// `GET /v1/dead-letters`.
async fn list(
    State(server): State<Arc<Server>>,
    Query(query): Query<LettersQuery>,
    caller: Caller,
) -> Result<Response, Problem> {
    let unknown = |text: &str| {
        Problem::query("status", format!("{text:?} is not a status; use pending, scheduled, retried or discarded"))
    };
    let status = match &query.status {
        Some(text) => Some(LetterStatus::from_name(text).ok_or_else(|| unknown(text))?),
        None => None,
    };
    let query = LetterQuery {
        status,
        topic: query.topic.map(Into::into),
        group: query.group.map(Into::into),
        handler: query.handler.map(Into::into),
        partner: query.partner.map(Into::into),
        event_type: query.r#type.map(Into::into),
        since: query.since.map(|since| since.0),
        limit: Some(page_length(query.limit)?),
        cursor: query.cursor.map(Into::into),
    };
    json(StatusCode::OK, &letters(&server, &caller)?.list(query).await?)
}

/// `GET /v1/dead-letters/statistics`.
async fn statistics(State(server): State<Arc<Server>>, caller: Caller) -> Result<Response, Problem> {
    let letters = letters(&server, &caller)?;
    json(StatusCode::OK, &server.query(async move { letters.statistics().await }).await?)
}

/// `GET /v1/dead-letters/{id}`.
async fn one(State(server): State<Arc<Server>>, Path(id): Path<String>, caller: Caller) -> Result<Response, Problem> {
    json(StatusCode::OK, &letters(&server, &caller)?.get(&id).await?)
}

/// `POST /v1/dead-letters/{id}/retry`.
async fn retry(
    State(server): State<Arc<Server>>,
    Path(id): Path<String>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let letters = letters(&server, &caller)?;
    let body: ActBody = read(&server, request).await?;
    json(StatusCode::OK, &letters.retry(&id, body.of_deletion()?).await?)
}

/// `POST /v1/dead-letters/{id}/discard`.
async fn discard(
    State(server): State<Arc<Server>>,
    Path(id): Path<String>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let letters = letters(&server, &caller)?;
    let body: ActBody = read(&server, request).await?;
    json(StatusCode::OK, &letters.discard(&id, body.of_deletion()?).await?)
}

/// `POST /v1/dead-letters/retry`.
async fn retry_many(State(server): State<Arc<Server>>, caller: Caller, request: Request) -> Result<Response, Problem> {
    many(&server, &caller, BulkAct::Retry, request).await
}

/// `POST /v1/dead-letters/discard`.
async fn discard_many(
    State(server): State<Arc<Server>>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    many(&server, &caller, BulkAct::Discard, request).await
}

/// Runs an act in a task of its own, so that it continues if the caller disconnects.
async fn many(server: &Arc<Server>, caller: &Caller, act: BulkAct, request: Request) -> Result<Response, Problem> {
    let letters = letters(server, caller)?;
    let body: BulkBody = read(server, request).await?;
    let done = tokio::spawn(async move { letters.bulk(act, body).await }).await;
    let ended = |_| {
        Problem::new(Code::Closing, "the act was interrupted by a shutdown; the server continues it after its restart")
    };
    json(StatusCode::OK, &done.map_err(ended)??)
}

/// `GET /v1/dead-letters/policies`.
async fn policies(
    State(server): State<Arc<Server>>,
    Query(query): Query<PoliciesQuery>,
    caller: Caller,
) -> Result<Response, Problem> {
    let limit = page_length(query.limit)?;
    json(StatusCode::OK, &letters(&server, &caller)?.policies(query.cursor.as_deref(), limit).await?)
}

/// `GET /v1/dead-letters/policies/{topic}`.
async fn policy_of(
    State(server): State<Arc<Server>>,
    Path(topic): Path<String>,
    caller: Caller,
) -> Result<Response, Problem> {
    json(StatusCode::OK, &letters(&server, &caller)?.policy(&topic).await?)
}

/// `PUT /v1/dead-letters/policies/{topic}`.
async fn put_policy(
    State(server): State<Arc<Server>>,
    Path(topic): Path<String>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let letters = letters(&server, &caller)?;
    let (policy, reason) = read::<PolicyBody>(&server, request).await?.read()?;
    json(StatusCode::OK, &letters.put_policy(topic.into(), policy, reason).await?)
}

/// `DELETE /v1/dead-letters/policies/{topic}`.
async fn delete_policy(
    State(server): State<Arc<Server>>,
    Path(topic): Path<String>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let letters = letters(&server, &caller)?;
    let body: ActBody = read(&server, request).await?;
    json(StatusCode::OK, &letters.delete_policy(&topic, body.of_deletion()?).await?)
}

impl From<DeadLetterError> for Problem {
    fn from(error: DeadLetterError) -> Self {
        let problem = Self::new(error.code(), error.to_string());
        match error {
            DeadLetterError::Invalid(invalid) => invalid.into(),
            DeadLetterError::Store(error) => annals_core::ReadError::Store(error).into(),
            DeadLetterError::Unknown(id) => problem.fact("name", &*id),
            DeadLetterError::Terminal { id, state, act } => problem
                .fact("name", &*id)
                .fact("act", act)
                .fact("what", format!("dead letter {id:?}"))
                .fact("state", state),
            _ => problem,
        }
    }
}
