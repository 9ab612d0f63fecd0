//! Statistics of a log.

use std::collections::BTreeMap;

use bytestring::ByteString;
use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// Statistics of a log.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LogStats {
    /// The number of events, which is the head of the log.
    pub events: u64,
    /// The number of commits.
    pub commits: u64,
    /// The number of distinct aggregates.
    pub aggregates: u64,
    /// The number of distinct aggregates of each name.
    pub aggregates_by_name: BTreeMap<ByteString, u64>,
    /// The number of events of each type.
    pub events_by_type: BTreeMap<ByteString, u64>,
    /// The number of segments, or the backend's equivalent.
    pub segments: u64,
    /// Stored size of the commits in bytes.
    pub bytes: u64,
    /// The earliest time of an event; `None` in an empty log.
    pub oldest: Option<Timestamp>,
    /// The latest time of an event; `None` in an empty log.
    pub newest: Option<Timestamp>,
}
