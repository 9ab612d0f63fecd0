//! Statistics of a log.

use std::collections::BTreeMap;

use bytestring::ByteString;
use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// Statistics of a log.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LogStats {
    /// Events: the head of the log.
    pub events: u64,
    /// Commits.
    pub commits: u64,
    /// Distinct aggregates.
    pub aggregates: u64,
    /// Distinct aggregates of each name.
    pub aggregates_by_name: BTreeMap<ByteString, u64>,
    /// Events of each type.
    pub events_by_type: BTreeMap<ByteString, u64>,
    /// Segments, or the backend's equivalent.
    pub segments: u64,
    /// Stored size of the commits in bytes.
    pub bytes: u64,
    /// The earliest time of an event; `None` in an empty log.
    pub oldest: Option<Timestamp>,
    /// The latest time of an event; `None` in an empty log.
    pub newest: Option<Timestamp>,
}
