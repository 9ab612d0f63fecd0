//! What a log holds, in numbers.

use std::collections::BTreeMap;

use bytestring::ByteString;
use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// What a log holds, in numbers.
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
    /// Segments, or what a backend has in their place.
    pub segments: u64,
    /// Bytes of the commits as they are stored.
    pub bytes: u64,
    /// The earliest time of an event; none in an empty log.
    pub oldest: Option<Timestamp>,
    /// The latest time of an event; none in an empty log.
    pub newest: Option<Timestamp>,
}
