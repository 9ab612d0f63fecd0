//! JSON responses.

use annals_core::{Code, RecordedEvent};
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde::Serialize;

use crate::problem::Problem;

/// Responses with up to this many bytes of event data are serialised on the async worker. Serialising more would delay other requests, so
/// a blocking thread does it.
pub(crate) const WRITTEN_AT_ONCE_BYTES_MAX: usize = 1024 * 1024;

/// Returns a response with a value as its JSON body.
pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Result<Response, Problem> {
    Ok(written(status, serde_json::to_vec(value).map_err(not_written)?))
}

/// Returns a response with a value that contains `bytes` of event data.
pub(crate) async fn json_of_events(bytes: usize, value: impl Serialize + Send + 'static) -> Result<Response, Problem> {
    if bytes <= WRITTEN_AT_ONCE_BYTES_MAX {
        return json(StatusCode::OK, &value);
    }
    let json = tokio::task::spawn_blocking(move || serde_json::to_vec(&value)).await;
    let json =
        json.map_err(|error| Problem::new(Code::Internal, format!("the response could not be written: {error}")))?;
    Ok(written(StatusCode::OK, json.map_err(not_written)?))
}

/// Returns the number of bytes that `events` take on a page.
pub(crate) fn data_bytes<'a>(events: impl IntoIterator<Item = &'a RecordedEvent>) -> usize {
    events.into_iter().map(RecordedEvent::page_bytes).sum()
}

/// Returns a response with this JSON.
pub(crate) fn written(status: StatusCode, json: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(json));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Returns the error of a value that cannot be serialised. This only happens if stored data was damaged.
pub(crate) fn not_written(error: serde_json::Error) -> Problem {
    Problem::new(Code::StoreDamaged, format!("the stored data cannot be written as JSON: {error}"))
}
