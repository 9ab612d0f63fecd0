//! Moving a whole store from one backend to another, as JSON lines, through the ports alone.
//!
//! ```text
//! {"annals_export":1,"began":"…","logs":[{"tenant","scope","store_id","incarnation","head"}, …]}
//! {"sequence_number":0,"id":"…","type":"…","data":{…},…}      every event of the first log, as `GET /v1/log` writes it
//! {"log_end":{"tenant","scope","head","events_hash"}}
//! …                                                           the other logs
//! {"export_end":{"events":17}}
//! ```
//!
//! An event whose data has BSON types that JSON lacks has `data_bson` too: the bytes, in hexadecimal.

mod read;
mod write;

use annals_core::{EventsHash, SequenceNumber, Timestamp, Uuid};
use serde::{Deserialize, Serialize};

pub use read::ExportReader;
pub use write::export;

/// The version of the export that is written, and the newest that is read.
pub const EXPORT_VERSION: u32 = 1;

/// The first line.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Header {
    annals_export: u32,
    began: Timestamp,
    logs: Vec<ExportedLog>,
}

/// A log of an export.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct ExportedLog {
    tenant: String,
    scope: String,
    store_id: Uuid,
    incarnation: u32,
    head: SequenceNumber,
}

/// A log that was exported or imported whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovedLog {
    /// Its tenant.
    pub tenant: String,
    /// Its scope.
    pub scope: String,
    /// The number of its events.
    pub head: SequenceNumber,
    /// The hash of its events.
    pub events_hash: EventsHash,
}

/// The line behind the events of a log.
#[derive(Serialize, Deserialize)]
struct LogEnd {
    log_end: MovedLog,
}

/// The last line.
#[derive(Serialize, Deserialize)]
struct ExportEnd {
    export_end: Events,
}

#[derive(Serialize, Deserialize)]
struct Events {
    events: u64,
}

/// What is kept of data that JSON changes.
#[derive(Deserialize)]
struct ExactData {
    data_bson: String,
}
