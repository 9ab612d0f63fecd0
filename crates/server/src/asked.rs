//! Requests whose body is one document. Who may not ask is refused before the body is read.

use std::sync::Arc;

use annals_core::Invalid;
use annals_core::wire::records::Encoding;
use axum::extract::Request;
use axum::http::{HeaderMap, header};

use crate::body::{self, Taken, media_type};
use crate::problem::Problem;
use crate::query::Query;
use crate::router::Server;
use crate::v1::commits::read as parse;

/// The media types of requests.
const TAKEN: &[&str] = &[Encoding::Json.media_type(), Encoding::ExtendedJson.media_type(), Encoding::Bson.media_type()];

/// A request that was read.
pub(crate) struct Asked<P: ?Sized, T> {
    /// The port of the tenant that is named.
    pub(crate) port: Arc<P>,
    pub(crate) headers: HeaderMap,
    pub(crate) read: T,
    /// Its bytes count as held until it is answered.
    pub(crate) held: body::Held,
}

/// Reads a request of at most so many bytes, unless it is to be refused anyway: it has no parameters, and `port` finds what is asked.
pub(crate) async fn read<P: ?Sized, T: Send + 'static>(
    server: &Server,
    request: Request,
    port: impl FnOnce(&HeaderMap) -> Result<Arc<P>, Problem>,
    bytes_max: usize,
    read: impl FnOnce(&[u8], Encoding) -> Result<T, Invalid> + Send + 'static,
) -> Result<Asked<P, T>, Problem> {
    let (parts, body) = request.into_parts();
    let port = match Query::parse(parts.uri.query(), &[]).and_then(|_| port(&parts.headers)) {
        Ok(port) => port,
        Err(problem) => {
            body::discard(&server.options, body);
            return Err(problem);
        }
    };
    let named = parts.headers.get(header::CONTENT_TYPE).map(media_type);
    let encoding = named.and_then(Encoding::of).unwrap_or(Encoding::Json);
    let held = body::read_taken(server, &parts, body, Taken { media_types: TAKEN, bytes_max }).await?;
    let bytes = held.bytes.clone();
    let read = parse(held.bytes.len(), move || read(&bytes, encoding)).await??;
    Ok(Asked { port, headers: parts.headers, read, held })
}
