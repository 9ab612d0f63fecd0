//! Answers that are documents: relaxed Extended JSON, or BSON for whoever asks for it.

use annals_core::bson::raw::{RawDocument, RawDocumentBuf};
use annals_core::wire::records::Encoding;
use annals_core::{Code, DocumentView};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;

use crate::answer::{WRITTEN_AT_ONCE_BYTES_MAX, not_written, written};
use crate::problem::Problem;
use crate::v1::log::accepts;

/// A document as the answer to a request with these headers.
pub(crate) async fn answer(headers: &HeaderMap, document: RawDocumentBuf) -> Result<Response, Problem> {
    answer_as(headers, document, |document| serde_json::to_vec(&DocumentView(document))).await
}

/// The same where JSON says it in another way than BSON, whose answers are documents.
pub(crate) async fn answer_as(
    headers: &HeaderMap,
    document: RawDocumentBuf,
    json: fn(&RawDocument) -> serde_json::Result<Vec<u8>>,
) -> Result<Response, Problem> {
    if accepts(headers, Encoding::Bson.media_type()) {
        let mut response = written(StatusCode::OK, document.into_bytes());
        let bson = HeaderValue::from_static(Encoding::Bson.media_type());
        response.headers_mut().insert(header::CONTENT_TYPE, bson);
        return Ok(response);
    }
    let json = if document.as_bytes().len() <= WRITTEN_AT_ONCE_BYTES_MAX {
        json(&document)
    } else {
        let writing = tokio::task::spawn_blocking(move || json(&document));
        writing.await.map_err(|error| Problem::new(Code::Internal, format!("writing the answer failed: {error}")))?
    };
    Ok(written(StatusCode::OK, json.map_err(not_written)?))
}
