//! Moves a whole store from one backend to another as JSON lines, through the ports alone.
//!
//! ```text
//! {"annals_export":3,"began":"…","logs":[{"tenant","scope","store_id","incarnation","head"}, …]}
//! {"collection":{"tenant","name","indexes":[…]}}              each collection of each tenant
//! {"record":{"_id":…,…}}                                      its records, in order of id
//! {"collection_end":{"tenant","name","records","records_hash"}}
//! {"records_end":{"collections":3}}
//! {"log":{"tenant","scope","head"}}
//! {"sequence_number":0,"id":"…","type":"…","data":{…},…}      each event of the first log, as in `GET /v1/log`
//! {"log_end":{"tenant","scope","head","events_hash"}}
//! {"stream":{"name"}}                                         each stream of that log
//! {"position":0,"sequence_number":3,"partition":"p"}          its entries
//! {"stream_end":{"tenant","scope","name","entries","progress"}}
//! {"streams_end":{"streams":2}}
//! {"key":{"name","key","value_bson","ttl_at_millis"}}         prepare keys of the tenant, after its default log; without a value: released
//! {"keys_end":{"tenant","keys":1}}
//! …                                                           the other logs
//! {"export_end":{"events":17}}
//! ```
//!
//! An event whose data has BSON types that JSON lacks also has `data_bson`, the bytes in hexadecimal; a record has `record_bson`. The first
//! event of a commit has `copy` if the commit belongs to a transaction or changes prepare keys:
//! `{"transaction":{"place","count"},"release":[…], "reserve":[…]}`, whose values are also BSON documents in hexadecimal.
//!
//! Records are exported before the heads of the logs are read, and streams after their log, up to its head. Nothing in an export of a store
//! with concurrent writers therefore refers to an event that the export lacks. Records are read page by page, so those of such a store are
//! not of one instant, as they are in a backup. Revisions and change numbers belong to a store; the import assigns new ones.
//!
//! An export without records has `"without_records":true` in its first line, and neither collections nor streams.
//!
//! The keys at the end are those that were changed without a commit, in their state at the head of the log.
//!
//! Version 1 had neither records nor streams, and version 2 no keys at the end; both can be imported.

mod begun;
mod keys;
mod read;
mod records;
mod streams;
mod write;

use annals_core::{
    ByteString, CommitCopy, Data, EventsHash, KeyChanges, KeyValue, Release, Reserve, SequenceNumber, Timestamp, Uuid,
};
use serde::{Deserialize, Serialize};

pub use keys::MovedKeys;
pub use read::ExportReader;
pub use records::MovedCollection;
pub use streams::MovedStream;
pub use write::{export, export_without_records};

/// The version that exports are written in, and the newest that can be read.
pub const EXPORT_VERSION: u32 = 3;
/// The first version with records and streams.
const WITH_RECORDS: u32 = 2;
/// The first version with keys that were changed without a commit.
const WITH_KEYS: u32 = 3;

/// The first line.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Header {
    annals_export: u32,
    began: Timestamp,
    /// Whether records and streams were left out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    without_records: bool,
    logs: Vec<ExportedLog>,
}

/// A log of an export.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct ExportedLog {
    tenant: String,
    scope: String,
    store_id: Uuid,
    incarnation: u32,
    /// The number of its events when the export began. From version 2 on, the line before its events has the exact number.
    head: SequenceNumber,
}

/// The line before the events of a log.
#[derive(Serialize, Deserialize)]
struct LogLine {
    log: LogHead,
}

#[derive(Serialize, Deserialize)]
struct LogHead {
    tenant: String,
    scope: String,
    head: SequenceNumber,
}

/// The line after the records of all tenants.
#[derive(Serialize, Deserialize)]
struct RecordsEnd {
    records_end: Collections,
}

#[derive(Serialize, Deserialize)]
struct Collections {
    collections: u64,
}

/// The line after the streams of a log.
#[derive(Serialize, Deserialize)]
struct StreamsEnd {
    streams_end: StreamCount,
}

#[derive(Serialize, Deserialize)]
struct StreamCount {
    streams: u64,
}

/// The result of an export or import.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Moved {
    /// Each log.
    pub logs: Vec<MovedLog>,
    /// Each collection of records.
    pub collections: Vec<MovedCollection>,
    /// Each stream.
    pub streams: Vec<MovedStream>,
    /// Each tenant with keys that were changed without a commit.
    pub keys: Vec<MovedKeys>,
}

/// A log that was exported or imported completely.
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

/// The line after the events of a log.
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

/// The fields of a line other than the event's own.
#[derive(Default, Deserialize)]
struct Besides {
    data_bson: Option<String>,
    copy: Option<CopyLine>,
}

/// The fields that belong to a commit and not to one of its events.
#[derive(Default, Serialize, Deserialize)]
struct CopyLine {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    transaction: Option<PlaceLine>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    release: Vec<ReleaseLine>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    reserve: Vec<ReserveLine>,
}

/// A commit's place in its transaction; the transaction's id is on the event's line, or in an export of an early version is the
/// commit id of its first commit.
#[derive(Serialize, Deserialize)]
struct PlaceLine {
    place: u32,
    count: u32,
}

#[derive(Serialize, Deserialize)]
struct ReleaseLine {
    name: ByteString,
    key: ByteString,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value_bson: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct ReserveLine {
    name: ByteString,
    key: ByteString,
    value_bson: String,
    /// Milliseconds since 1970-01-01 UTC, for times that RFC 3339 cannot represent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ttl_at_millis: Option<i64>,
}

impl CopyLine {
    fn of(copy: &CommitCopy) -> Self {
        let release = copy.keys.release.iter().map(|it| ReleaseLine {
            name: it.name.clone(),
            key: it.key.clone(),
            value_bson: it.value.as_ref().map(|value| to_hex(value.data().as_bytes())),
        });
        let reserve = copy.keys.reserve.iter().map(|it| ReserveLine {
            name: it.name.clone(),
            key: it.key.clone(),
            value_bson: to_hex(it.value.data().as_bytes()),
            ttl_at_millis: it.ttl_at.map(Timestamp::as_millis),
        });
        let place = copy.commit.info.transaction.map(|it| PlaceLine { place: it.place, count: it.count });
        Self { transaction: place, release: release.collect(), reserve: reserve.collect() }
    }

    /// Returns the changes of keys; `None` if a value is not a BSON document.
    fn keys(self) -> Option<KeyChanges> {
        let value = |hex: &str| from_hex(hex).map(KeyValue::from_data);
        let mut keys = KeyChanges::default();
        for ReleaseLine { name, key, value_bson } in self.release {
            let value = match value_bson {
                Some(hex) => Some(value(&hex)?),
                None => None,
            };
            keys.release.push(Release { name, key, value });
        }
        for ReserveLine { name, key, value_bson, ttl_at_millis } in self.reserve {
            let ttl_at = ttl_at_millis.map(Timestamp::from_millis);
            keys.reserve.push(Reserve { name, key, value: value(&value_bson)?, ttl_at });
        }
        Some(keys)
    }
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<Data> {
    let digits: Option<Vec<u8>> =
        text.bytes().map(|byte| char::from(byte).to_digit(16).map(|digit| digit as u8)).collect();
    let (pairs, []) = digits.as_deref()?.as_chunks::<2>() else { return None };
    let bytes: Vec<u8> = pairs.iter().map(|[high, low]| high << 4 | low).collect();
    Data::from_stored(bytes.into()).ok()
}
