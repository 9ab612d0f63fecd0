//! `GET /v1/backup` and `POST /v1/backup`: backups of the whole store while it is in use.

use std::io;
use std::sync::Arc;

use annals_core::{Backup, Code, ReadError, Store, StoreError};
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use utoipa::IntoParams;

use crate::body;
use crate::options::Stop;
use crate::payload::{Document, Payload};
use crate::problem::Problem;
use crate::query::{Query, Switch};
use crate::route::{Feature, Permission, get, post};
use crate::state::Server;

/// Returns the operations of backups.
pub(crate) fn feature() -> Feature {
    const TAR: &str = "A tar archive that ends with its manifest; without one the backup is incomplete.";
    let answer = || Payload::raw("application/x-tar", TAR);
    Feature::new(
        "Backup",
        [
            get("/v1/backup", Permission::Admin, whole)
                .described("backup", "Takes a backup of the whole store while it is in use.", answer())
                .refuses(&[Code::Overloaded])
                .audited(),
            post("/v1/backup", Permission::Admin, since)
                .described(
                    "backupSince",
                    "Takes an incremental backup of what an earlier backup does not hold.",
                    answer(),
                )
                .takes(Payload::json::<Document>()),
        ],
    )
}

/// The parameters of a whole backup.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct WholeQuery {
    /// Leaves records and streams out.
    #[param(inline)]
    without_records: Option<Switch>,
}

/// Most backups in progress at once. Each has a thread and reads the whole store.
pub(crate) const AT_ONCE: usize = 2;
/// How many pieces are read ahead of a slow client. A piece has at most about 1 MiB.
const AHEAD: usize = 4;

/// `GET /v1/backup`: everything, or everything except records and streams.
async fn whole(State(server): State<Arc<Server>>, Query(query): Query<WholeQuery>) -> Result<Response, Problem> {
    let without_records = Switch::is_on(query.without_records);
    answer(&server, |store| if without_records { store.backup_without_records() } else { store.backup(None) })
}

/// `POST /v1/backup` with the manifest of an earlier backup: leaves out what that backup contains and cannot have changed since.
async fn since(State(server): State<Arc<Server>>, request: Request) -> Result<Response, Problem> {
    let (parts, received) = request.into_parts();
    let earlier = body::read(&server, &parts, received).await?;
    answer(&server, |store| store.backup(Some(&earlier.bytes)))
}

/// Streams a backup. If it cannot be finished (the server stops, the disk fails, a log is damaged), the connection is cut. The response
/// then lacks the manifest at its end, so it cannot be mistaken for a complete backup.
fn answer(
    server: &Server,
    begin: impl FnOnce(&dyn Store) -> Result<Box<dyn Backup>, StoreError>,
) -> Result<Response, Problem> {
    let place = Arc::clone(&server.backups).try_acquire_owned();
    let place = place.map_err(|_| {
        Problem::new(Code::Overloaded, format!("{AT_ONCE} backups are already being taken; retry when one is done"))
    })?;
    let backup = begin(&*server.store).map_err(ReadError::from)?;
    let (sender, pieces) = mpsc::channel(AHEAD);
    let stop = server.options.stop.clone();
    tokio::task::spawn_blocking(move || send(backup, &sender, &stop, place));
    let stream = stream::unfold(pieces, |mut pieces| async move { Some((pieces.recv().await?, pieces)) });
    let headers = [
        (header::CONTENT_TYPE, "application/x-tar"),
        (header::CONTENT_DISPOSITION, "attachment; filename=\"annals-backup.tar\""),
    ];
    Ok((headers, Body::from_stream(stream)).into_response())
}

/// Reads on a blocking thread, as fast as the pieces are taken, until the end or until the client disconnects.
fn send(
    mut backup: Box<dyn Backup>,
    pieces: &mpsc::Sender<io::Result<Bytes>>,
    stop: &Stop,
    _place: OwnedSemaphorePermit,
) {
    loop {
        let piece = if stop.is_stopped() { Err(StoreError::Closed) } else { backup.next() };
        let sent = match piece {
            Ok(Some(piece)) => pieces.blocking_send(Ok(piece)),
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(%error, "aborted a backup");
                let _ = pieces.blocking_send(Err(io::Error::other("the backup could not be completed")));
                return;
            }
        };
        if sent.is_err() {
            return;
        }
    }
}
