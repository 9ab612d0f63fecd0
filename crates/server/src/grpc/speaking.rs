//! What makes a request a call: HTTP/2, its content type and its deadline. Refusals of whatever is behind it become statuses.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use annals_core::Code;
use annals_system::sleep;
use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::FutureExt;
use hyper::body::Frame;
use tokio::time::Sleep;

use super::status::{late, translated, without_message};
use crate::media;
use crate::problem::Problem;

/// The content types of calls. Messages are always in the binary format of Protocol Buffers.
pub(super) const MEDIA_TYPES: [&str; 2] = ["application/grpc", "application/grpc+proto"];

const TIMEOUT: &str = "grpc-timeout";

/// Returns whether a request is a call.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).map(media::named);
    kind.is_some_and(|kind| MEDIA_TYPES.iter().any(|known| kind.eq_ignore_ascii_case(known)))
}

/// Admits calls only, and ends a method that `reads` at the caller's deadline. A write always gets its outcome.
pub(crate) async fn speaking(State(reads): State<bool>, request: Request, next: Next) -> Response {
    if request.version() != Version::HTTP_2 || !is_grpc(request.headers()) {
        let message = "this is a method of gRPC; call it over HTTP/2 with the content type application/grpc";
        return Problem::new(Code::UnsupportedMediaType, message).into_response();
    }
    let time = match timeout(request.headers()) {
        Ok(time) => time.filter(|_| reads),
        Err(problem) => return translated(problem.into_response()).await,
    };
    let Some(time) = time else { return translated(next.run(request).await).await };
    let mut passed = Box::pin(sleep(time));
    let response = tokio::select! {
        response = next.run(request) => response,
        () = passed.as_mut() => return without_message(late()),
    };
    let response = translated(response).await;
    // What is written already is not cut off.
    if response.body().size_hint().exact().is_some() {
        return response;
    }
    response.map(|body| Body::new(Bounded { body, passed, over: false }))
}

/// Returns how long the caller waits.
fn timeout(headers: &HeaderMap) -> Result<Option<Duration>, Problem> {
    let Some(value) = headers.get(TIMEOUT) else { return Ok(None) };
    match value.to_str().ok().and_then(time) {
        Some(time) => Ok(Some(time)),
        None => Err(Problem::query(TIMEOUT, format!("{value:?} is not a time such as 500m"))),
    }
}

/// Parses at most eight digits and a unit.
fn time(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let plain = (1..=8).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_digit());
    let number: u64 = number.parse().ok().filter(|_| plain)?;
    match unit {
        "H" => Some(Duration::from_secs(number * 3_600)),
        "M" => Some(Duration::from_secs(number * 60)),
        "S" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_millis(number)),
        "u" => Some(Duration::from_micros(number)),
        "n" => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

/// The body of a response that ends at the caller's deadline.
struct Bounded {
    body: Body,
    passed: Pin<Box<Sleep>>,
    over: bool,
}

impl HttpBody for Bounded {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        if this.over {
            return Poll::Ready(None);
        }
        if this.passed.poll_unpin(cx).is_ready() {
            this.over = true;
            this.body = Body::empty();
            return Poll::Ready(Some(Ok(Frame::trailers(late()))));
        }
        Pin::new(&mut this.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.over || self.body.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_digits_and_a_unit() {
        for (text, expected) in [
            ("0n", Some(Duration::ZERO)),
            ("500m", Some(Duration::from_millis(500))),
            ("7S", Some(Duration::from_secs(7))),
            ("2M", Some(Duration::from_secs(120))),
            ("99999999H", Some(Duration::from_secs(359_999_996_400))),
            ("10u", Some(Duration::from_micros(10))),
        ] {
            assert_eq!(time(text), expected, "{text}");
        }
        for text in ["", "S", "1", "1s", "-1S", "+1S", "100000000S", "1ž", "1.5S"] {
            assert_eq!(time(text), None, "{text}");
        }
    }

    #[test]
    fn a_call_has_the_content_type_of_grpc() {
        for (kind, is_call) in [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("application/grpc+json", false),
            ("application/grpc-web", false),
            ("application/json", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, kind.parse().expect("a header value"));
            assert_eq!(is_grpc(&headers), is_call, "{kind}");
        }
        assert!(!is_grpc(&HeaderMap::new()));
    }
}
