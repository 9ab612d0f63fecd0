//! `/v1/snapshots`: the state of an aggregate at a version, which clients compute, save and load.

use std::sync::Arc;

use annals_core::bson::raw::RawDocumentBuf;
use annals_core::wire::records::{self as records, Encoding};
use annals_core::wire::{read_snapshot, write_saved, write_snapshot};
use annals_core::{Aggregate, Code, DEFAULT_SCOPE, Invalid, Version, save_snapshot};
use axum::extract::{Path, Request, State};
use axum::response::Response;
use serde::Deserialize;
use utoipa::IntoParams;

use super::wait::{Wait, WaitQuery};
use crate::accept::Accept;
use crate::asked::{self, Asked};
use crate::caller::Caller;
use crate::documents::answer;
use crate::payload::Payload;
use crate::problem::Problem;
use crate::query::{Number, Query};
use crate::route::{self, Feature, Permission};
use crate::schemas;
use crate::state::Server;

/// Returns the operations on snapshots.
pub(crate) fn feature() -> Feature {
    const ONE: &str = "/v1/snapshots/{aggregate}/{id}";
    Feature::new(
        "Snapshots",
        [
            route::put("/v1/snapshots/{aggregate}", Permission::Writer, declare)
                .described(
                    "declareSnapshots",
                    "Prepares the snapshots of the aggregates of one name, with further indexes.",
                    Payload::document::<schemas::Collection>(),
                )
                .takes(Payload::asked::<schemas::Declaration>())
                .refuses(&[Code::IndexConflict]),
            route::get(ONE, Permission::Reader, load)
                .described(
                    "loadSnapshot",
                    "Returns the snapshot of an aggregate, immediately or once there is a newer one.",
                    Payload::document::<schemas::Snapshot>(),
                )
                .refuses(&[Code::UnknownSnapshot]),
            route::put(ONE, Permission::Writer, save)
                .described(
                    "saveSnapshot",
                    "Saves the snapshot of an aggregate, unless there is a newer one.",
                    Payload::document::<schemas::Saved>(),
                )
                .takes(Payload::asked::<schemas::NewSnapshot>())
                .refuses(&[Code::SnapshotAhead]),
            route::delete(ONE, Permission::Writer, delete).described(
                "deleteSnapshot",
                "Deletes the snapshot of an aggregate.",
                Payload::document::<schemas::Deleted>(),
            ),
        ],
    )
}

/// The parameters of a deletion.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct DeleteQuery {
    /// Deletes a snapshot of this version only.
    #[param(inline)]
    version: Option<Number>,
}

/// `PUT /v1/snapshots/{aggregate}`: prepares what the aggregates of this name need, and further indexes.
async fn declare(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    caller: Caller,
    accept: Accept,
    request: Request,
) -> Result<Response, Problem> {
    let snapshots = server.store.snapshots(&caller.tenant)?;
    let reading = name.clone();
    let read = read(&server, request, move |bytes, encoding| records::read_collection(&reading, bytes, encoding));
    let Asked { read: declared, held: _held } = read.await?;
    snapshots.declare(&name, declared.indexes.clone()).await?;
    answer(accept, records::collection(&declared)?).await
}

/// `PUT /v1/snapshots/{aggregate}/{id}`. Snapshots share the places of commits in flight.
async fn save(
    State(server): State<Arc<Server>>,
    Path((name, id)): Path<(String, String)>,
    caller: Caller,
    accept: Accept,
    request: Request,
) -> Result<Response, Problem> {
    let snapshots = server.store.snapshots(&caller.tenant)?;
    let log = server.store.log(&caller.tenant, DEFAULT_SCOPE)?;
    let aggregate = Aggregate::new(name, id);
    let read = read(&server, request, move |bytes, encoding| read_snapshot(&aggregate, bytes, encoding));
    let Asked { read: snapshot, held: _held } = read.await?;
    let _place = server.place("nothing was saved; retry in a moment")?;
    answer(accept, write_saved(save_snapshot(&*log, &*snapshots, &snapshot).await?)).await
}

/// `GET /v1/snapshots/{aggregate}/{id}`.
async fn load(
    State(server): State<Arc<Server>>,
    Path((name, id)): Path<(String, String)>,
    Query(query): Query<WaitQuery>,
    caller: Caller,
    accept: Accept,
) -> Result<Response, Problem> {
    let (aggregate, snapshots) = (Aggregate::new(name, id), server.store.snapshots(&caller.tenant)?);
    if let Some(wait) = Wait::of(query.past, query.timeout_ms)? {
        wait.until(&server, snapshots.until(&aggregate, wait.past.saturating_add(1))).await?;
    }
    match snapshots.load(&aggregate).await? {
        Some(snapshot) => answer(accept, write_snapshot(&snapshot)).await,
        None => Err(Problem::new(Code::UnknownSnapshot, format!("{aggregate} has no snapshot"))),
    }
}

/// `DELETE /v1/snapshots/{aggregate}/{id}`.
async fn delete(
    State(server): State<Arc<Server>>,
    Path((name, id)): Path<(String, String)>,
    Query(query): Query<DeleteQuery>,
    caller: Caller,
    accept: Accept,
) -> Result<Response, Problem> {
    let version: Option<Version> = query.version.map(|version| version.0);
    let deleted = server.store.snapshots(&caller.tenant)?.delete(&Aggregate::new(name, id), version).await?;
    let mut shown = RawDocumentBuf::new();
    shown.append(annals_core::bson::raw::cstr!("deleted"), deleted);
    answer(accept, shown).await
}

async fn read<T: Send + 'static>(
    server: &Server,
    request: Request,
    read: impl FnOnce(&[u8], Encoding) -> Result<T, Invalid> + Send + 'static,
) -> Result<Asked<T>, Problem> {
    asked::read(server, request, server.options.body_bytes_max, read).await
}
