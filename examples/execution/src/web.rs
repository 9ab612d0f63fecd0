//! The page of the demo, and the API and console of the store beside the routes of the service.

use annals::Code;
use annals::server::{Problem, this_machine_only};
use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderMap, Method, header};
use axum::response::{Html, IntoResponse, Response};

use crate::api::ALLOW;
use crate::ids::random_uuid;
use crate::process::is_root;

/// The path of the page, and the path to which it sends programs.
pub(crate) const PAGE: &str = "/executions";

/// Returns the routes of the service and those of `api`. All of them refuse requests from pages of other sites.
pub(crate) fn router(routes: Router, api: Router) -> Router {
    this_machine_only(routes.merge(api))
}

pub(crate) fn page() -> Response {
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
            "Root started the demo, so programs run with root privileges, because this is not a sandbox. Run it as an ordinary user.",
        )
    } else {
        (
            "ordinary",
            "Programs run on this machine with the privileges of the user who started the demo. This is not a sandbox.",
        )
    };
    let page = include_str!("page.html").replace("{{nonce}}", &nonce);
    (headers, Html(page.replace("{{user}}", user).replace("{{rights}}", rights))).into_response()
}

/// Requires JSON. A page of another site cannot send this type without a preflight request, which this service never allows.
pub(crate) fn json_only(headers: &HeaderMap) -> Result<(), Problem> {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = value.split(';').next().unwrap_or_default().trim();
    if media_type.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let message = format!("content type {value:?} is not supported; send application/json");
    Err(Problem::new(Code::UnsupportedMediaType, message))
}

pub(crate) async fn method_not_allowed(method: Method, request: Request) -> Response {
    let message = format!("{} does not support {method}; use GET, HEAD or POST", request.uri().path());
    let mut response = Problem::new(Code::MethodNotAllowed, message).into_response();
    response.headers_mut().insert(header::ALLOW, ALLOW);
    response
}
