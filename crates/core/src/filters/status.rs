//! The state of filters, as the API returns it.

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
    /// The position in its source: every event below it is evaluated.
    pub position: u64,
    /// The number of events in its source.
    pub head: u64,
    /// `head - position`.
    pub lag: u64,
    /// The age of the event at `position`, in seconds; 0 if there is none.
    pub lag_seconds: u64,
    /// When it last progressed, to the second.
    #[serde(default)]
    pub last_progress: Option<Timestamp>,
    /// The number of seconds since then.
    #[serde(default)]
    pub seconds_since_progress: Option<u64>,
    /// The next sequence number that it evaluates.
    pub progress: SequenceNumber,
    /// The number of entries in the stream.
    pub entries: StreamPosition,
    /// What the filter is doing.
    pub state: FilterState,
    /// The number of failures in a row of the event at `position`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// The reason of the last failure; absent once an evaluation succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_reason: Option<String>,
    /// Why it is degraded, according to what is stored; absent if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub degraded: Option<String>,
    /// When the failed event is retried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
    /// The clients that pulled recently from this process.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<WorkerStatus>,
    /// The process that evaluates its events; absent if none does.
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
    /// Its next event failed and is retried.
    Failing,
    /// Its next event failed, and is not retried until the definition is put again.
    Blocked,
    /// No process evaluates its events.
    Stopped,
}

/// A page of filters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FilterPage {
    /// The filters, by key.
    pub items: Vec<FilterStatus>,
    /// The cursor of the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<ByteString>,
}

impl FilterStatus {
    /// Returns the definition as a JSON value.
    pub fn shown(definition: &FilterDefinition) -> serde_json::Value {
        // JSON that was just written can be read.
        serde_json::from_str(&definition.write()).unwrap_or_default()
    }
}
