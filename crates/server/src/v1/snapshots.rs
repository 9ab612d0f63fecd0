//! `/v1/snapshots`: the state of an aggregate at a version, saved and loaded by whoever makes it.

use std::sync::Arc;

use annals_core::bson::raw::RawDocumentBuf;
use annals_core::wire::records::{self as records, Encoding};
use annals_core::wire::{read_snapshot, write_saved, write_snapshot};
use annals_core::{Aggregate, Code, Invalid, Snapshots, Version};
use axum::extract::{Path, RawQuery, Request, State};
use axum::http::{HeaderMap, header};
use axum::response::Response;

use super::commits::read as parse;
use super::wait::Wait;
use crate::body::{self, Taken, media_type};
use crate::documents::answer;
use crate::problem::Problem;
use crate::query::Query;
use crate::router::Server;
use crate::source::tenant;

/// The media types of requests.
const TAKEN: &[&str] = &[Encoding::Json.media_type(), Encoding::ExtendedJson.media_type(), Encoding::Bson.media_type()];

/// `PUT /v1/snapshots/{aggregate}`: makes ready what the aggregates of this name need, and indexes beside that.
pub(crate) async fn declare(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let reading = name.clone();
    let read = read(&server, request, move |bytes, encoding| records::read_collection(&reading, bytes, encoding));
    let Asked { snapshots, headers, read: declared, _held } = read.await?;
    snapshots.declare(&name, declared.indexes.clone()).await?;
    answer(&headers, records::collection(&declared)?).await
}

/// `PUT /v1/snapshots/{aggregate}/{id}`. Snapshots share the places of commits that are under way.
pub(crate) async fn save(
    State(server): State<Arc<Server>>,
    Path((name, id)): Path<(String, String)>,
    request: Request,
) -> Result<Response, Problem> {
    let aggregate = Aggregate::new(name, id);
    let read = read(&server, request, move |bytes, encoding| read_snapshot(&aggregate, bytes, encoding));
    let Asked { snapshots, headers, read: snapshot, _held } = read.await?;
    let _place = server.commits.try_acquire().map_err(|_| {
        Problem::new(Code::Overloaded, "too many commits are under way; nothing was saved, try again in a moment")
    })?;
    answer(&headers, write_saved(snapshots.save(&snapshot).await?)).await
}

/// `GET /v1/snapshots/{aggregate}/{id}`.
pub(crate) async fn load(
    State(server): State<Arc<Server>>,
    Path((name, id)): Path<(String, String)>,
    RawQuery(raw): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let query = Query::parse(raw.as_deref(), &["past", "timeout_ms"])?;
    let (aggregate, snapshots) = (Aggregate::new(name, id), snapshots(&server, &headers)?);
    if let Some(wait) = Wait::of(&query)? {
        wait.until(&server, snapshots.until(&aggregate, wait.past.saturating_add(1))).await?;
    }
    match snapshots.load(&aggregate).await? {
        Some(snapshot) => answer(&headers, write_snapshot(&snapshot)).await,
        None => Err(Problem::new(Code::UnknownSnapshot, format!("{aggregate} has no snapshot"))),
    }
}

/// `DELETE /v1/snapshots/{aggregate}/{id}`.
pub(crate) async fn delete(
    State(server): State<Arc<Server>>,
    Path((name, id)): Path<(String, String)>,
    RawQuery(raw): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let query = Query::parse(raw.as_deref(), &["version"])?;
    let version: Option<Version> = query.number("version")?;
    let deleted = snapshots(&server, &headers)?.delete(&Aggregate::new(name, id), version).await?;
    let mut shown = RawDocumentBuf::new();
    shown.append(annals_core::bson::raw::cstr!("deleted"), deleted);
    answer(&headers, shown).await
}

/// A request that was read.
struct Asked<T> {
    snapshots: Arc<dyn Snapshots>,
    headers: HeaderMap,
    read: T,
    /// Its bytes count as held until it is answered.
    _held: body::Held,
}

/// Reads a request, unless it is to be refused anyway.
async fn read<T: Send + 'static>(
    server: &Server,
    request: Request,
    read: impl FnOnce(&[u8], Encoding) -> Result<T, Invalid> + Send + 'static,
) -> Result<Asked<T>, Problem> {
    let (parts, body) = request.into_parts();
    let found = Query::parse(parts.uri.query(), &[]).and_then(|_| snapshots(server, &parts.headers));
    let snapshots = match found {
        Ok(snapshots) => snapshots,
        Err(problem) => {
            body::discard(&server.options, body);
            return Err(problem);
        }
    };
    let named = parts.headers.get(header::CONTENT_TYPE).map(media_type);
    let encoding = named.and_then(Encoding::of).unwrap_or(Encoding::Json);
    let taken = Taken { media_types: TAKEN, bytes_max: server.options.body_bytes_max };
    let held = body::read_taken(server, &parts, body, taken).await?;
    let bytes = held.bytes.clone();
    let read = parse(held.bytes.len(), move || read(&bytes, encoding)).await??;
    Ok(Asked { snapshots, headers: parts.headers, read, _held: held })
}

/// The snapshots of the tenant that is named.
fn snapshots(server: &Server, headers: &HeaderMap) -> Result<Arc<dyn Snapshots>, Problem> {
    Ok(server.store.snapshots(tenant(headers)?)?)
}
