//! Requests whose body is one document.

use annals_core::Invalid;
use annals_core::wire::records::Encoding;
use axum::extract::Request;
use axum::http::header;

use crate::body::{self, Taken, parse};
use crate::media;
use crate::problem::Problem;
use crate::state::Server;

/// The media types that are accepted for documents.
pub(crate) const TAKEN: &[&str] = &[media::JSON, media::EXTENDED_JSON, media::BSON];

/// A document that was read from a request.
pub(crate) struct Asked<T> {
    pub read: T,
    /// The body, whose bytes count as held until the request is answered.
    pub held: body::Held,
}

/// Reads a document of at most `bytes_max` bytes from a request. Refuse the caller first: a body that is refused unread costs least.
pub(crate) async fn read<T: Send + 'static>(
    server: &Server,
    request: Request,
    bytes_max: usize,
    read: impl FnOnce(&[u8], Encoding) -> Result<T, Invalid> + Send + 'static,
) -> Result<Asked<T>, Problem> {
    let (parts, body) = request.into_parts();
    let named = parts.headers.get(header::CONTENT_TYPE).map(media::named);
    let encoding = named.and_then(Encoding::of).unwrap_or(Encoding::Json);
    let held = body::read_taken(server, &parts, body, Taken { media_types: TAKEN, bytes_max }).await?;
    let bytes = held.bytes.clone();
    let read = parse(held.bytes.len(), move || read(&bytes, encoding)).await??;
    Ok(Asked { read, held })
}
