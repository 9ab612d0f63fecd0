//! The state of filters, as the API shows it.

use serde::{Deserialize, Serialize};

use super::FilterDefinition;
use crate::handlers::WorkerStatus;
use crate::{ByteString, SequenceNumber, StreamPosition, Timestamp};

/// The state of a filter. It comes from what is stored, not from the task that evaluates events.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FilterStatus {
    /// The stream that it fills.
    pub stream: ByteString,
    /// The scope of that stream.
    pub scope: ByteString,
    /// The position in its source: everything below it is evaluated.
    pub position: u64,
    /// The number of events in its source.
    pub head: u64,
    /// `head - position`.
    pub lag: u64,
    /// The age of the event at `position` in seconds; 0 when there is none.
    pub lag_seconds: u64,
    /// When it moved last, to a second.
    #[serde(default)]
    pub last_progress: Option<Timestamp>,
    /// How many seconds ago that was.
    #[serde(default)]
    pub seconds_since_progress: Option<u64>,
    /// The next sequence number that it evaluates.
    pub progress: SequenceNumber,
    /// The number of entries in the stream.
    pub entries: StreamPosition,
    /// What it is doing.
    pub state: FilterState,
    /// How often the event at `position` has failed in a row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// What the last failure said; absent once an evaluation succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_reason: Option<String>,
    /// Why it is not healthy, by what is stored; absent when it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub degraded: Option<String>,
    /// When a failed event is attempted again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
    /// The clients that pulled lately from this process.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<WorkerStatus>,
    /// The process that evaluates its events; absent when none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The definition, as it was put.
    pub definition: serde_json::Value,
}

/// What a filter is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FilterState {
    /// It evaluates events.
    Running,
    /// Its next event failed and is attempted again.
    Failing,
    /// Its next event failed, and is not attempted again until the definition is put again.
    Blocked,
    /// No process evaluates its events.
    Stopped,
}

/// A page of filters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FilterPage {
    /// The filters, by key.
    pub items: Vec<FilterStatus>,
    /// Where the next page begins; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<ByteString>,
}

impl FilterStatus {
    /// The definition as a value.
    pub fn shown(definition: &FilterDefinition) -> serde_json::Value {
        // What was just written as JSON can be read as JSON.
        serde_json::from_str(&definition.write()).unwrap_or_default()
    }
}
