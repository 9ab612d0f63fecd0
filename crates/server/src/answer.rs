//! JSON responses.

use annals_core::{Code, RecordedEvent};
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::problem::Problem;
use crate::reader::READER;
use crate::unread::{HeldBytes, NoRoom, no_room};

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
    json_apart(value, None).await
}

/// Returns a response as [`json_of_events`] does, to a request that changed nothing, and so can be refused if there is no room for it.
pub(crate) async fn json_of_page(bytes: usize, value: impl Serialize + Send + 'static) -> Result<Response, Problem> {
    if bytes <= WRITTEN_AT_ONCE_BYTES_MAX {
        return json(StatusCode::OK, &value);
    }
    match page(bytes) {
        Ok(held) => json_apart(value, held).await,
        Err(refused) => {
            let mut refused = refused.into_response();
            refused.extensions_mut().insert(NoRoom);
            Ok(refused)
        }
    }
}

/// Writes a large response. `held` is dropped once it is written.
async fn json_apart(value: impl Serialize + Send + 'static, held: Option<HeldBytes>) -> Result<Response, Problem> {
    let write = move || {
        let json = serde_json::to_vec(&value);
        drop(held);
        json
    };
    let json = tokio::task::spawn_blocking(write).await;
    let json =
        json.map_err(|error| Problem::new(Code::Internal, format!("the response could not be written: {error}")))?;
    Ok(written(StatusCode::OK, json.map_err(not_written)?))
}

/// Counts the data of a page, whose response is counted only once it has been written: many at once would use any amount of memory
/// until then. Without a connection, nothing is counted.
pub(crate) fn page(bytes: usize) -> Result<Option<HeldBytes>, Problem> {
    match READER.try_with(|reader| reader.hold_page(bytes)) {
        Ok(None) => Err(no_room()),
        Ok(held) => Ok(held),
        Err(_) => Ok(None),
    }
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::options::Options;
    use crate::reader::Reader;

    #[tokio::test]
    async fn a_page_for_which_there_is_no_room_is_not_even_written() {
        let (bytes, max) = (2 * WRITTEN_AT_ONCE_BYTES_MAX, 3 * WRITTEN_AT_ONCE_BYTES_MAX);
        let options = Options { answer_bytes_in_flight_max: max, ..Options::default() };
        let reader = Reader::new(&options, None);
        let answer = || READER.scope(Arc::clone(&reader), json_of_page(bytes, "a page"));
        let others = options.unread.hold(bytes);
        let refused = answer().await.expect("an answer");
        assert_eq!(refused.extensions().get::<Code>(), Some(&Code::Overloaded));
        assert!(refused.extensions().get::<NoRoom>().is_some(), "it can be built again");
        drop(others);
        assert_eq!(answer().await.expect("room").status(), StatusCode::OK);
        assert_eq!(options.unread.bytes(), 0);
    }
}
