//! The state of handlers and their failing partitions, as the API returns it.

use serde::{Deserialize, Serialize};

use super::HandlerDefinition;
use crate::{ByteString, SequenceNumber, Timestamp};

/// The state of a handler.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HandlerStatus {
    /// Its name.
    pub name: ByteString,
    /// Every event of its source below this position is handled or belongs to a failing partition.
    pub position: u64,
    /// The number of events in its source.
    pub head: u64,
    /// `head - position`.
    pub lag: u64,
    /// The age of the event at `position`, in seconds; 0 if there is none.
    pub lag_seconds: u64,
    /// When the position last moved, as stored.
    pub last_progress: Option<Timestamp>,
    /// The number of seconds since then.
    #[serde(default)]
    pub seconds_since_progress: Option<u64>,
    /// The workers that pulled recently.
    pub workers: Vec<WorkerStatus>,
    /// The number of failing partitions.
    pub failing: u64,
    /// The number of failing partitions that wait for an operator.
    #[serde(default)]
    pub blocked: u64,
    /// The number of events that are parked or skipped.
    pub parked: u64,
    /// What the handler is doing.
    pub state: HandlerState,
    /// The reason of the last failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_reason: Option<String>,
    /// Why it is degraded, according to what is stored; absent if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub degraded: Option<String>,
    /// The replay that has not finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<ReplayStatus>,
    /// The number of events that its guard has passed as duplicates.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub duplicates: u64,
    /// Whether it has reached its `stop_at`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ended: bool,
    /// The process that hands out its events; absent if none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The definition, as it was put.
    pub definition: serde_json::Value,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// What a handler is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HandlerState {
    /// It hands out events.
    Running,
    /// An operator paused it.
    Paused,
    /// It delivers no new event until an operator decides. It has no partitions and its event failed for the last time, or too many
    /// partitions are failing.
    Blocked,
    /// No process hands out its events, because no worker pulls or because it has reached its `stop_at`.
    Stopped,
}

/// A replay: events at or above `from` and below `to` are redelivered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayStatus {
    /// Its id, which is the id of the act and is in its deliveries.
    pub id: ByteString,
    /// The position at which it began.
    pub from: u64,
    /// The handler's position at that time.
    pub to: u64,
}

/// What a failing partition is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PartitionState {
    /// Its event is retried at a known time.
    Retrying,
    /// Its event waits for an operator.
    Blocked,
    /// Its event succeeded or was taken out, and it processes the events that arrived in the meantime.
    CatchingUp,
}

/// A worker that pulled recently.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerStatus {
    /// The name that the worker gave itself; empty if it gave none.
    pub worker: String,
    /// When it last pulled.
    pub last_pull: Timestamp,
    /// The number of deliveries that it has not settled.
    pub in_flight: usize,
}

/// A failing partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionStatus {
    /// Its name.
    pub partition: ByteString,
    /// What it is doing.
    pub state: PartitionState,
    /// The position of its next event.
    pub position: u64,
    /// The sequence number of the event that failed.
    pub sequence_number: SequenceNumber,
    /// The number of failures of that event in a row.
    pub attempts: u32,
    /// The reason of the last failure.
    pub reason: String,
    /// When it is retried; null if an operator must decide.
    pub retry_at: Option<Timestamp>,
    /// When it last failed.
    pub last_failed: Timestamp,
    /// The number of positions in the source by which it is behind the handler.
    pub behind: u64,
    /// The age of the event that failed last, in seconds.
    pub lag_seconds: u64,
    /// When its next event became the one at `position`.
    pub since: Timestamp,
}

/// A page of handlers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HandlerPage {
    /// The handlers, by name.
    pub items: Vec<HandlerStatus>,
    /// The cursor of the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<ByteString>,
}

/// A page of failing partitions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionPage {
    /// The partitions, by name.
    pub items: Vec<PartitionStatus>,
    /// The cursor of the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<ByteString>,
}

impl HandlerStatus {
    /// Returns the definition as a JSON value.
    pub fn shown(definition: &HandlerDefinition) -> serde_json::Value {
        // JSON that was just written can be read.
        serde_json::from_str(&definition.write()).unwrap_or_default()
    }
}
