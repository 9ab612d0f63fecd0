//! The API of executions: submit, status, result, cancel, retry, list.

use std::sync::Arc;

use annals::handlers::Reason;
use annals::names::uuid_of;
use annals::queue::Queues;
use annals::server::Problem;
use annals::{Code, CommitOutcome, EventLog, Records, Uuid, limits, wire};
use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::events::{self, CANCELLED, TERMINAL};
use crate::execution::{Execution, Status};
use crate::ids::random_uuid;
use crate::listing::{ListQuery, list};
use crate::records::{ResultRecord, typed};
use crate::saga::QUEUE;
use crate::step::{Step, StepError, step};
use crate::submission::{SCRIPT_CHARS_MAX, Submission};
use crate::users::{Caller, Users};
use crate::web;

/// Largest body of `POST /executions`, in bytes: the longest script with every character escaped.
const BODY_BYTES_MAX: usize = 12 * SCRIPT_CHARS_MAX + 4096;
/// Largest body of an act, in bytes.
const ACT_BYTES_MAX: usize = 16 * 1024;
/// The header with the client's name for a request, so that the request can be repeated.
const IDEMPOTENCY_KEY: &str = "idempotency-key";
const KEY_BYTES_MAX: usize = 256;

/// The dependencies of the API.
pub(crate) struct Office {
    pub(crate) log: Arc<dyn EventLog>,
    pub(crate) records: Arc<dyn Records>,
    pub(crate) queues: Arc<dyn Queues>,
    pub(crate) users: Users,
}

/// Returns the routes of the API.
pub(crate) fn routes(office: Office) -> Router {
    let collection = get(page_or_list).post(submit).fallback(web::method_not_allowed);
    Router::new()
        .route(web::PAGE, collection)
        .route("/executions/{id}", get(one))
        .route("/executions/{id}/result", get(result))
        .route("/executions/{id}/cancel", post(cancel))
        .route("/executions/{id}/retry", post(retry))
        .with_state(Arc::new(office))
}

/// The query parameters of a list.
#[derive(Default)]
struct ListParameters {
    status: Option<String>,
    user: Option<String>,
    limit: Option<String>,
    cursor: Option<String>,
}

impl ListParameters {
    fn read(query: &str) -> Result<Self, Problem> {
        let mut read = Self::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let place = match name {
                "status" => &mut read.status,
                "user" => &mut read.user,
                "limit" => &mut read.limit,
                "cursor" => &mut read.cursor,
                _ => {
                    return Err(Problem::query(
                        name,
                        "is not a parameter; the parameters are status, user, limit and cursor",
                    ));
                }
            };
            *place = Some(decoded(value).ok_or_else(|| Problem::query(name, "is not percent-encoded UTF-8"))?);
        }
        Ok(read)
    }

    fn limit(&self) -> Result<usize, Problem> {
        let Some(limit) = &self.limit else { return Ok(limits::PAGE_DEFAULT) };
        let number = limit.parse().ok().filter(|limit| (1..=limits::PAGE_MAX).contains(limit));
        number.ok_or_else(|| {
            Problem::query("limit", format!("{limit:?} is not a number between 1 and {}", limits::PAGE_MAX))
        })
    }
}

/// Decodes a percent-encoded value of a query.
fn decoded(value: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

/// `GET /executions`: returns the page, or to programs the executions of the caller. An administrator gets those of all users.
async fn page_or_list(
    State(office): State<Arc<Office>>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !accepted.contains("application/json") {
        return Ok(web::page());
    }
    let caller = office.users.caller(&headers)?;
    let parameters = ListParameters::read(query.as_deref().unwrap_or_default())?;
    let limit = parameters.limit()?;
    let status = parameters.status.map(|name: String| {
        Status::from_name(&name)
            .ok_or_else(|| Problem::query("status", format!("{name:?} is not a status of an execution")))
    });
    let user = if caller.admin { parameters.user } else { Some(caller.user) };
    let query = ListQuery { user, status: status.transpose()?, limit, cursor: parameters.cursor };
    Ok(Json(list(&office.records, query).await?).into_response())
}

/// `POST /executions`: returns 201 with the execution's id, or 200 if this execution was submitted before.
async fn submit(State(office): State<Arc<Office>>, headers: HeaderMap, body: Body) -> Result<Response, Problem> {
    let caller = office.users.caller(&headers)?;
    web::json_only(&headers)?;
    let body = read(body, BODY_BYTES_MAX).await?;
    let mut submission: Submission = wire::parse_json(&body)?;
    let key = idempotency_key(&headers)?;
    let id = match (submission.execution_id.take(), key) {
        (Some(_), Some(_)) => {
            return Err(Problem::query(
                "Idempotency-Key",
                "cannot be combined with execution_id; send only one of them",
            ));
        }
        (Some(id), None) => id,
        (None, Some(key)) => named_id("http", &caller, &key),
        (None, None) => random_uuid(),
    };
    let outcome = submission.commit(id, &caller.user, &*office.log).await?;
    Ok(submitted(id, &outcome))
}

fn submitted(id: Uuid, outcome: &CommitOutcome) -> Response {
    let status = if outcome.duplicate { StatusCode::OK } else { StatusCode::CREATED };
    let answer = json!({
        "execution_id": id.to_string(),
        "sequence_number": outcome.first_sequence_number,
        "duplicate": outcome.duplicate,
    });
    (status, [(header::LOCATION, format!("/executions/{id}"))], Json(answer)).into_response()
}

/// Returns the id of an execution that a user named by a key. It is the same for every repetition.
fn named_id(kind: &str, caller: &Caller, key: &str) -> Uuid {
    uuid_of("execution-request", &format!("{kind}:{}:{}:{key}", caller.user.len(), caller.user))
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(value) = headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
    let key = value.to_str().ok().filter(|key| (1..=KEY_BYTES_MAX).contains(&key.len()));
    let refused =
        || Problem::query("Idempotency-Key", format!("must have 1 to {KEY_BYTES_MAX} visible ASCII characters"));
    key.map(|key| Some(key.to_owned())).ok_or_else(refused)
}

/// `GET /executions/{id}`.
async fn one(
    State(office): State<Arc<Office>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Json<Value>, Problem> {
    let caller = office.users.caller(&headers)?;
    Ok(Json(Execution::of_caller(&*office.log, &id, &caller).await?.shown()))
}

/// `GET /executions/{id}/result`: returns the result, or 409 with the state until the result is stored.
async fn result(
    State(office): State<Arc<Office>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Json<Value>, Problem> {
    let caller = office.users.caller(&headers)?;
    let execution = Execution::of_caller(&*office.log, &id, &caller).await?;
    if let Some(found) = typed::<ResultRecord>(&office.records).get(&*id).await? {
        return Ok(Json(found.value.shown()));
    }
    let status = execution.status();
    let why = match status {
        Status::Cancelled => "it was cancelled, so it has no result",
        _ if status.is_over() => "its result is being stored; retry in a moment",
        _ => "it has no result yet; retry later, or follow its stream",
    };
    Err(conflict(&id, status, why))
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ActBody {
    reason: Option<String>,
}

async fn act_body(headers: &HeaderMap, body: Body) -> Result<ActBody, Problem> {
    let body = read(body, ACT_BYTES_MAX).await?;
    if body.is_empty() {
        return Ok(ActBody::default());
    }
    web::json_only(headers)?;
    Ok(wire::parse_json(&body)?)
}

/// `POST /executions/{id}/cancel`: returns 202. The saga compensates what was done.
async fn cancel(
    State(office): State<Arc<Office>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let caller = office.users.caller(&headers)?;
    let act = act_body(&headers, body).await?;
    let execution = Execution::of_caller(&*office.log, &id, &caller).await?;
    let reason = act.reason.unwrap_or_else(|| "cancelled by its user".to_owned());
    let data = json!({
        "execution_id": id, "cancelled_by": caller.user, "force_terminated": execution.status() == Status::Running, "reason": reason,
    });
    let event = events::event(CANCELLED, &data).map_err(|message| Problem::new(Code::InvalidData, message))?;
    // If a cancellation and a completion race, exactly one of them wins.
    match step(&*office.log, execution.request(), &[event], "terminal", &TERMINAL).await {
        Ok(Step::Taken) => {}
        Ok(Step::TakenByOther) => {
            let now = Execution::of_caller(&*office.log, &id, &caller).await?.status();
            return Err(conflict(&id, now, "it has ended, so it cannot be cancelled"));
        }
        Err(StepError::Read(error)) => return Err(error.into()),
        Err(StepError::Commit(error)) => return Err(error.into()),
    }
    // A waiting execution leaves the queue here; without this, the scheduler would drop it at its turn.
    let _ = office.queues.cancel(QUEUE, &id, Reason { reason, by: Some(caller.user) }).await;
    let answer = json!({ "execution_id": id, "status": Status::Cancelled.name() });
    Ok((StatusCode::ACCEPTED, Json(answer)).into_response())
}

/// `POST /executions/{id}/retry`: returns 201 with the id of a new execution of the same program.
async fn retry(
    State(office): State<Arc<Office>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let caller = office.users.caller(&headers)?;
    let execution = Execution::of_caller(&*office.log, &id, &caller).await?;
    if !execution.status().is_over() {
        return Err(conflict(&id, execution.status(), "it has not ended; cancel it, or wait until it ends"));
    }
    let requested = execution.requested().map_err(|message| Problem::new(Code::InvalidData, message))?;
    let again = match idempotency_key(&headers)? {
        Some(key) => named_id(&format!("retry:{id}"), &caller, &key),
        None => random_uuid(),
    };
    let outcome = Submission::again(&requested)?.commit(again, execution.user(), &*office.log).await?;
    Ok(submitted(again, &outcome))
}

async fn read(body: Body, most: usize) -> Result<axum::body::Bytes, Problem> {
    axum::body::to_bytes(body, most).await.map_err(|error| {
        Problem::new(Code::BodyTooLarge, format!("the body has at most {most} bytes of JSON: {error}"))
            .advise("Send a shorter program.")
    })
}

fn conflict(id: &str, status: Status, why: &str) -> Problem {
    let message = format!("execution {id} is {}: {why}", status.name());
    Problem::new(Code::StateConflict, message).fact("state", status.name()).advise("Read its status and decide again.")
}

/// The methods of the collection.
pub(crate) const ALLOW: HeaderValue = HeaderValue::from_static("GET, HEAD, POST");
