//! Answers as JSON.

use annals_core::{Code, RecordedEvent};
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde::Serialize;

use crate::problem::Problem;

/// Event data up to this size is written at once; more would hold up other requests, so a thread does it.
pub(crate) const WRITTEN_AT_ONCE_BYTES_MAX: usize = 1024 * 1024;

/// A value as the body of an answer.
pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Result<Response, Problem> {
    Ok(written(status, serde_json::to_vec(value).map_err(not_written)?))
}

/// A value that holds `bytes` of event data.
pub(crate) async fn json_of_events(bytes: usize, value: impl Serialize + Send + 'static) -> Result<Response, Problem> {
    if bytes <= WRITTEN_AT_ONCE_BYTES_MAX {
        return json(StatusCode::OK, &value);
    }
    let json = tokio::task::spawn_blocking(move || serde_json::to_vec(&value)).await;
    let json = json.map_err(|error| Problem::new(Code::Internal, format!("writing the answer failed: {error}")))?;
    Ok(written(StatusCode::OK, json.map_err(not_written)?))
}

/// The bytes of event data in `events`.
pub(crate) fn data_bytes<'a>(events: impl IntoIterator<Item = &'a RecordedEvent>) -> usize {
    events.into_iter().map(|event| event.data.as_bytes().len()).sum()
}

/// JSON as an answer.
pub(crate) fn written(status: StatusCode, json: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(json));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Only data that is not what was stored cannot be written as JSON.
pub(crate) fn not_written(error: serde_json::Error) -> Problem {
    Problem::new(Code::StoreDamaged, format!("what is stored cannot be written as JSON: {error}"))
}
