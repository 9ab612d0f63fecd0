//! Responses that are documents: relaxed Extended JSON, or BSON for a caller that accepts it.

use annals_core::bson::raw::{RawDocument, RawDocumentBuf};
use annals_core::{Code, DocumentView};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;

use crate::accept::Accept;
use crate::answer::{WRITTEN_AT_ONCE_BYTES_MAX, not_written, written};
use crate::media;
use crate::problem::Problem;

/// Responds with a document, in the format that the caller accepts.
pub(crate) async fn answer(accept: Accept, document: RawDocumentBuf) -> Result<Response, Problem> {
    answer_as(accept, document, |document| serde_json::to_vec(&DocumentView(document))).await
}

/// Responds with BSON, or with JSON of a different shape that `json` writes.
pub(crate) async fn answer_as(
    accept: Accept,
    document: RawDocumentBuf,
    json: fn(&RawDocument) -> serde_json::Result<Vec<u8>>,
) -> Result<Response, Problem> {
    if accept.bson {
        let mut response = written(StatusCode::OK, document.into_bytes());
        let bson = HeaderValue::from_static(media::BSON);
        response.headers_mut().insert(header::CONTENT_TYPE, bson);
        return Ok(response);
    }
    let json = if document.as_bytes().len() <= WRITTEN_AT_ONCE_BYTES_MAX {
        json(&document)
    } else {
        let writing = tokio::task::spawn_blocking(move || json(&document));
        writing
            .await
            .map_err(|error| Problem::new(Code::Internal, format!("the response could not be written: {error}")))?
    };
    Ok(written(StatusCode::OK, json.map_err(not_written)?))
}
