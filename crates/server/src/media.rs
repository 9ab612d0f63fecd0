//! The media types of requests and responses.

use annals_core::wire::records::Encoding;
use axum::http::HeaderValue;

/// JSON.
pub(crate) const JSON: &str = Encoding::Json.media_type();
/// Relaxed or canonical Extended JSON.
pub(crate) const EXTENDED_JSON: &str = Encoding::ExtendedJson.media_type();
/// One BSON document, or several that are concatenated.
pub(crate) const BSON: &str = Encoding::Bson.media_type();
/// One JSON text per line.
pub(crate) const LINES: &str = "application/x-ndjson";
/// Comma-separated values.
pub(crate) const CSV: &str = "text/csv";
/// Server-sent events.
pub(crate) const EVENTS: &str = "text/event-stream";
/// A problem document.
pub(crate) const PROBLEM: &str = "application/problem+json";

/// Returns the media type in a header, without its parameters.
pub(crate) fn named(value: &HeaderValue) -> &str {
    value.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim()
}
