//! The page, the address it submits programs to, and the API and the console of the store beside them.

use std::sync::Arc;

use annals::server::{Problem, this_machine_only};
use annals::{Code, EventLog, wire};
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};

use crate::ids::random_uuid;
use crate::language::Interpreters;
use crate::process::is_root;
use crate::submission::Submission;

/// Largest body of `POST /executions`: the longest script, every byte of it escaped.
const BODY_BYTES_MAX: usize = 6 * crate::submission::SCRIPT_BYTES_MAX + 4096;

/// Where the page is, and where it sends programs.
pub(crate) const PAGE: &str = "/executions";

/// What the handlers share.
pub(crate) struct Office {
    pub(crate) log: Arc<dyn EventLog>,
    pub(crate) interpreters: Interpreters,
}

/// The routes of the demo beside those of `api`. What comes from the page of another site is refused at all of them.
pub(crate) fn router(office: Office, api: Router) -> Router {
    let routes =
        Router::new().route(PAGE, get(page).post(submit).fallback(method_not_allowed)).with_state(Arc::new(office));
    this_machine_only(routes.merge(api))
}

async fn page() -> Response {
    let nonce = random_uuid().simple().to_string();
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let headers = [
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
        (header::REFERRER_POLICY, "no-referrer".to_owned()),
        (header::CACHE_CONTROL, "no-store".to_owned()),
    ];
    let (user, rights) = if is_root() {
        (
            "root",
            "Root started the demo, so programs run with root’s rights: this is no sandbox. Run it as an ordinary user.",
        )
    } else {
        (
            "ordinary",
            "Programs run on this machine with the rights of the user who started the demo: this is no sandbox.",
        )
    };
    let page = include_str!("page.html").replace("{{nonce}}", &nonce);
    (headers, Html(page.replace("{{user}}", user).replace("{{rights}}", rights))).into_response()
}

/// `POST /executions`: 201 with the execution's id, 200 when this execution was submitted before.
async fn submit(State(office): State<Arc<Office>>, headers: HeaderMap, body: Body) -> Result<Response, Problem> {
    json_only(&headers)?;
    let body = axum::body::to_bytes(body, BODY_BYTES_MAX).await.map_err(|error| {
        Problem::new(
            Code::BodyTooLarge,
            format!("a program to run has at most {BODY_BYTES_MAX} bytes of JSON: {error}"),
        )
        .advise("Send a shorter program.")
    })?;
    let submission: Submission = wire::parse_json(&body)?;
    let id = submission.execution_id.unwrap_or_else(random_uuid);
    let outcome = submission.commit(id, &office.interpreters, &*office.log).await?;
    let status = if outcome.duplicate { StatusCode::OK } else { StatusCode::CREATED };
    let answer = serde_json::json!({
        "execution_id": id.to_string(),
        "sequence_number": outcome.first_sequence_number,
        "duplicate": outcome.duplicate,
    });
    Ok((status, [(header::LOCATION, format!("/v1/aggregates/execution/{id}/commits"))], Json(answer)).into_response())
}

/// A page of another site cannot send this type without asking first, and nobody here says yes.
fn json_only(headers: &HeaderMap) -> Result<(), Problem> {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = value.split(';').next().unwrap_or_default().trim();
    if media_type.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let message = format!("content type {value:?} is not taken; send application/json");
    Err(Problem::new(Code::UnsupportedMediaType, message))
}

async fn method_not_allowed(method: Method, request: Request) -> Response {
    const ALLOW: &str = "GET, HEAD, POST";
    let message = format!("{} does not take {method}; it takes {ALLOW}", request.uri().path());
    let mut response = Problem::new(Code::MethodNotAllowed, message).into_response();
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(ALLOW));
    response
}
