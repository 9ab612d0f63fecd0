//! `/v1/snapshots`: the state of an aggregate at a version, saved and loaded by whoever makes it.

use std::sync::Arc;

use annals_core::bson::raw::RawDocumentBuf;
use annals_core::wire::records::{self as records, Encoding};
use annals_core::wire::{read_snapshot, write_saved, write_snapshot};
use annals_core::{Aggregate, Code, Invalid, Snapshots, Version};
use axum::extract::{Path, RawQuery, Request, State};
use axum::http::HeaderMap;
use axum::response::Response;

use super::wait::Wait;
use crate::asked::{self, Asked};
use crate::documents::answer;
use crate::problem::Problem;
use crate::query::Query;
use crate::router::Server;
use crate::source::tenant;

/// `PUT /v1/snapshots/{aggregate}`: makes ready what the aggregates of this name need, and indexes beside that.
pub(crate) async fn declare(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let reading = name.clone();
    let read = read(&server, request, move |bytes, encoding| records::read_collection(&reading, bytes, encoding));
    let Asked { port: snapshots, headers, read: declared, held: _held } = read.await?;
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
    let Asked { port: snapshots, headers, read: snapshot, held: _held } = read.await?;
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

async fn read<T: Send + 'static>(
    server: &Server,
    request: Request,
    read: impl FnOnce(&[u8], Encoding) -> Result<T, Invalid> + Send + 'static,
) -> Result<Asked<dyn Snapshots, T>, Problem> {
    let port = |headers: &HeaderMap| snapshots(server, headers);
    asked::read(server, request, port, server.options.body_bytes_max, read).await
}

/// The snapshots of the tenant that is named.
fn snapshots(server: &Server, headers: &HeaderMap) -> Result<Arc<dyn Snapshots>, Problem> {
    Ok(server.store.snapshots(tenant(headers)?)?)
}
