//! Measures the embedded store in this process, through its port. Event data is built beforehand; the commits around it are built inside
//! the measured time.

use std::path::Path;
use std::sync::Arc;

use annals_core::{
    ByteString, DEFAULT_SCOPE, DEFAULT_TENANT, Data, EventLog, ExpectedVersion, NewCommit, NewEvent, Store,
};
use annals_embedded::disk::RealDisk;
use annals_embedded::{EmbeddedStore, Options};

use crate::cell::{Cell, Commits, Measured, run};
use crate::workload::{Row, Writer, payloads};

const AGGREGATE_NAME: ByteString = ByteString::from_static("order");
const EVENT_TYPE: ByteString = ByteString::from_static("order_placed");

struct Library {
    log: Arc<dyn EventLog>,
    data: Arc<Vec<Data>>,
    writer: Writer,
    events: usize,
}

impl Commits for Library {
    async fn commit(&mut self) -> Result<(), String> {
        let turn = self.writer.turn();
        let data = (turn.payload..).map(|place| self.data[place % self.data.len()].clone());
        let commit = NewCommit {
            events: data.take(self.events).map(|data| NewEvent::new(EVENT_TYPE, data)).collect(),
            ..NewCommit::new(AGGREGATE_NAME, turn.aggregate_id.as_str())
                .expect(ExpectedVersion::Exact(turn.expected_version))
                .request_id(turn.request_id.as_str())
        };
        let outcome = self.log.commit(commit).await.map_err(|error| error.to_string())?;
        self.writer.committed(&turn, outcome.version, outcome.duplicate)
    }
}

/// Opens the store in `folder`.
pub fn open(folder: &Path) -> Result<EmbeddedStore, String> {
    let disk = RealDisk::new(folder.join("store"));
    EmbeddedStore::open(Arc::new(disk), Options::default()).map_err(|error| error.to_string())
}

/// Returns the store's log.
pub fn log(store: &EmbeddedStore) -> Result<Arc<dyn EventLog>, String> {
    store.log(DEFAULT_TENANT, DEFAULT_SCOPE).map_err(|error| error.to_string())
}

/// Returns event data, ready to be committed.
pub fn data() -> Result<Vec<Data>, String> {
    payloads().iter().map(|text| Data::from_json(text)).collect()
}

/// Returns the writers of a row, for any log.
pub fn writers(log: &Arc<dyn EventLog>, row: &Row) -> Result<Vec<impl Commits + use<>>, String> {
    writers_from(0, log, row)
}

fn writers_from(first: usize, log: &Arc<dyn EventLog>, row: &Row) -> Result<Vec<impl Commits + use<>>, String> {
    let data = Arc::new(data()?);
    let writer = |number: usize| Library {
        log: Arc::clone(log),
        data: Arc::clone(&data),
        writer: Writer::new(first + number, row),
        events: row.events,
    };
    Ok((0..row.writers).map(writer).collect())
}

/// Measures a new store in `folder`.
pub async fn measure(row: &Row, cell: &Cell, folder: &Path) -> Result<Measured, String> {
    measure_behind(row, cell, folder, 0).await
}

/// Measures on top of the store in `folder`, with writers from this number on, which the store has not seen.
pub async fn measure_behind(row: &Row, cell: &Cell, folder: &Path, first: usize) -> Result<Measured, String> {
    let store = open(folder)?;
    let log = log(&store)?;
    let measured = run(cell, writers_from(first, &log, row)?).await;
    store.close().await;
    measured
}
