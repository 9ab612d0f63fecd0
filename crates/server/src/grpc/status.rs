//! Refusals as gRPC reports them: a status, and in metadata the stable code and the problem document.

use std::fmt::Write;

use annals_core::Code;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde_json::Value;

use crate::media;
use crate::problem::Problem;

/// The content type of every response.
pub(super) const MEDIA_TYPE: HeaderValue = HeaderValue::from_static("application/grpc");

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
/// When to retry, which clients with a retry policy read.
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");
const CODE: HeaderName = HeaderName::from_static("annals-code");
const PROBLEM: HeaderName = HeaderName::from_static("annals-problem-bin");

/// A larger document is left out: clients accept 8 KiB of metadata.
const PROBLEM_BYTES_MAX: usize = 4 * 1024;
/// More than any problem document has.
const READ_BYTES_MAX: usize = 1024 * 1024;

/// The statuses of gRPC that are used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    Ok = 0,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    AlreadyExists = 6,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Aborted = 10,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    DataLoss = 15,
    Unauthenticated = 16,
}

/// The exit code of errors after which the same request can succeed.
const AGAIN: u8 = 5;

impl Status {
    /// Returns the status of an error code.
    pub fn of(code: Code) -> Self {
        match code {
            // The caller reloads what it decided on, and decides again.
            Code::VersionConflict | Code::AppendConditionFailed | Code::RecordConflict | Code::StreamMoved => {
                Self::Aborted
            }
            Code::RequestIdReused | Code::KeyTaken | Code::DuplicateKey => Self::AlreadyExists,
            Code::StoreDamaged | Code::MalformedDocument | Code::UnreadableEvent => Self::DataLoss,
            Code::UnknownRoute | Code::MethodNotAllowed | Code::UnsupportedMediaType => Self::Unimplemented,
            Code::HandlerOwnedElsewhere | Code::FilterOwnedElsewhere | Code::Overloaded => Self::Unavailable,
            _ => Self::of_http(code.status(), code.exit() == AGAIN),
        }
    }

    fn of_http(status: u16, again: bool) -> Self {
        match status {
            400 | 422 => Self::InvalidArgument,
            401 => Self::Unauthenticated,
            403 => Self::PermissionDenied,
            404 | 410 => Self::NotFound,
            408 => Self::DeadlineExceeded,
            409 => Self::FailedPrecondition,
            413 | 429 | 431 | 507 => Self::ResourceExhausted,
            501 => Self::Unimplemented,
            502..=504 if again => Self::Unavailable,
            // It needs an operator, so clients must not retry it by themselves.
            502..=504 => Self::FailedPrecondition,
            _ => Self::Internal,
        }
    }
}

/// Returns the trailers of a success.
pub(super) fn ok() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(STATUS, HeaderValue::from(Status::Ok as u16));
    headers
}

/// Returns the trailers of a call whose deadline has passed.
pub(super) fn late() -> HeaderMap {
    let mut headers = HeaderMap::new();
    put(&mut headers, Status::DeadlineExceeded, "the deadline of the call has passed");
    headers
}

/// Returns the trailers of a call that ends with a problem.
pub(crate) fn trailers(problem: &Problem) -> HeaderMap {
    let mut headers = HeaderMap::new();
    refuse(&mut headers, problem.code(), problem.to_json().as_bytes(), problem.retry_after_seconds());
    headers
}

/// Returns a response that has trailers and no message.
pub(super) fn without_message(trailers: HeaderMap) -> Response {
    let mut response = Response::new(Body::empty());
    *response.headers_mut() = trailers;
    response.headers_mut().insert(header::CONTENT_TYPE, MEDIA_TYPE);
    response
}

/// Turns a problem document into the response of a call. Any other response is returned as it is.
pub(crate) async fn translated(response: Response) -> Response {
    let headers = response.headers();
    let is_problem = headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind == media::PROBLEM);
    let Some(code) = response.extensions().get::<Code>().copied().filter(|_| is_problem) else { return response };
    let retry_after = headers.get(header::RETRY_AFTER).and_then(|wait| wait.to_str().ok()?.parse().ok());
    let json = to_bytes(response.into_body(), READ_BYTES_MAX).await.unwrap_or_default();
    let mut trailers = HeaderMap::new();
    refuse(&mut trailers, code, &json, retry_after);
    let mut response = without_message(trailers);
    response.extensions_mut().insert(code);
    response
}

/// Writes a refusal. `json` is its problem document.
fn refuse(headers: &mut HeaderMap, code: Code, json: &[u8], retry_after: Option<u64>) {
    let problem: Value = serde_json::from_slice(json).unwrap_or_default();
    put(headers, Status::of(code), problem["detail"].as_str().unwrap_or_else(|| code.meaning()));
    headers.insert(CODE, HeaderValue::from_static(code.as_str()));
    if json.len() <= PROBLEM_BYTES_MAX
        && let Ok(value) = HeaderValue::from_str(&STANDARD_NO_PAD.encode(json))
    {
        headers.insert(PROBLEM, value);
    }
    if code.exit() == AGAIN {
        headers.insert(PUSHBACK, HeaderValue::from(retry_after.unwrap_or(1).saturating_mul(1_000)));
    }
}

fn put(headers: &mut HeaderMap, status: Status, message: &str) {
    headers.insert(STATUS, HeaderValue::from(status as u16));
    if let Ok(message) = HeaderValue::from_str(&encoded(message)) {
        headers.insert(MESSAGE, message);
    }
}

/// Percent-encodes everything except printable ASCII.
fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => out.push(char::from(byte)),
            _ => {
                // Writing to a string cannot fail.
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse;

    use super::*;

    #[test]
    fn a_code_is_told_to_clients_as_what_they_should_do_about_it() {
        for (code, status) in [
            (Code::VersionConflict, Status::Aborted),
            (Code::KeyTaken, Status::AlreadyExists),
            (Code::InvalidBody, Status::InvalidArgument),
            (Code::BodyTooLarge, Status::ResourceExhausted),
            (Code::RateLimited, Status::ResourceExhausted),
            (Code::Unauthenticated, Status::Unauthenticated),
            (Code::Forbidden, Status::PermissionDenied),
            (Code::UnknownTenant, Status::NotFound),
            (Code::Closing, Status::Unavailable),
            (Code::StoreFailed, Status::FailedPrecondition),
            (Code::Internal, Status::Internal),
        ] {
            assert_eq!(Status::of(code), status, "{}", code.as_str());
        }
        let retried = Code::ALL.iter().filter(|code| Status::of(**code) == Status::Unavailable);
        retried.for_each(|code| assert_eq!(code.exit(), AGAIN, "{} is not to be retried", code.as_str()));
    }

    #[tokio::test]
    async fn a_problem_is_the_same_in_trailers_and_as_a_response() {
        let problem = Problem::new(Code::Overloaded, "100 % of the places\nare taken – retry").fact("places", 4);
        let trailers = trailers(&problem);
        assert_eq!(trailers["grpc-status"], "14");
        assert_eq!(trailers["grpc-message"], "100 %25 of the places%0Aare taken %E2%80%93 retry");
        assert_eq!(trailers["annals-code"], "overloaded");
        assert_eq!(trailers["grpc-retry-pushback-ms"], "1000");
        let json = STANDARD_NO_PAD.decode(trailers["annals-problem-bin"].as_bytes()).expect("base64");
        assert_eq!(json, problem.to_json().as_bytes());
        let response = translated(problem.into_response()).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "application/grpc");
        for (name, value) in &trailers {
            assert_eq!(response.headers().get(name), Some(value), "{name}");
        }
    }

    #[tokio::test]
    async fn what_is_no_problem_is_left_as_it_is() {
        let response = translated(([(header::CONTENT_TYPE, "text/plain")], "text").into_response()).await;
        assert_eq!(response.headers()["content-type"], "text/plain");
        assert_eq!(ok()["grpc-status"], "0");
    }
}
