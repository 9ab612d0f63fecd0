//! The state of handlers and their failing partitions, as the API shows it.

use serde::{Deserialize, Serialize};

use super::HandlerDefinition;
use crate::{ByteString, SequenceNumber, Timestamp};

/// The state of a handler.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HandlerStatus {
    /// Its name.
    pub name: ByteString,
    /// Everything below this position of its source is handled or belongs to a failing partition.
    pub position: u64,
    /// The number of events in its source.
    pub head: u64,
    /// `head - position`.
    pub lag: u64,
    /// How old the event at `position` is; 0 when there is none.
    pub lag_seconds: u64,
    /// When the position moved last, as stored.
    pub last_progress: Option<Timestamp>,
    /// How many seconds ago that was.
    #[serde(default)]
    pub seconds_since_progress: Option<u64>,
    /// Those who pulled lately.
    pub workers: Vec<WorkerStatus>,
    /// How many partitions are failing.
    pub failing: u64,
    /// How many of them wait for an operator.
    #[serde(default)]
    pub blocked: u64,
    /// How many events are parked or skipped.
    pub parked: u64,
    /// What it is doing.
    pub state: HandlerState,
    /// What the last failure said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_reason: Option<String>,
    /// Why it is not healthy, by what is stored; absent when it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub degraded: Option<String>,
    /// The replay that is not over yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<ReplayStatus>,
    /// How many events its guard has passed as duplicates.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub duplicates: u64,
    /// Whether it has come to its `stop_at`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ended: bool,
    /// The process that hands out its events; absent when none does.
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
    /// It delivers nothing new until an operator decides: it has no partitions and its event failed for the last time, or too many
    /// partitions are failing.
    Blocked,
    /// No process hands out its events, because no worker pulls or because it has come to its `stop_at`.
    Stopped,
}

/// A replay: events at or above `from` and below `to` are delivered again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayStatus {
    /// Its id, which is in its deliveries and that of the act.
    pub id: ByteString,
    /// Where it began.
    pub from: u64,
    /// Where the handler was then.
    pub to: u64,
}

/// What a failing partition is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PartitionState {
    /// Its event is attempted again at a known time.
    Retrying,
    /// Its event waits for an operator.
    Blocked,
    /// Its event succeeded or was taken out, and it processes what came meanwhile.
    CatchingUp,
}

/// A worker that pulled lately.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerStatus {
    /// The name it gave itself; empty when it gave none.
    pub worker: String,
    /// When it pulled last.
    pub last_pull: Timestamp,
    /// How many events it has not settled.
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
    /// How often that event has failed in a row.
    pub attempts: u32,
    /// What the last failure said.
    pub reason: String,
    /// When it is attempted again; null when an operator must decide.
    pub retry_at: Option<Timestamp>,
    /// When it failed last.
    pub last_failed: Timestamp,
    /// How many positions of the source it is behind the handler.
    pub behind: u64,
    /// How old the event is that failed last.
    pub lag_seconds: u64,
    /// Since when its next event is at `position`.
    pub since: Timestamp,
}

/// A page of handlers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HandlerPage {
    /// The handlers, by name.
    pub items: Vec<HandlerStatus>,
    /// Where the next page begins; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<ByteString>,
}

/// A page of failing partitions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionPage {
    /// The partitions, by name.
    pub items: Vec<PartitionStatus>,
    /// Where the next page begins; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<ByteString>,
}

impl HandlerStatus {
    /// The definition as a value.
    pub fn shown(definition: &HandlerDefinition) -> serde_json::Value {
        // What was just written as JSON can be read as JSON.
        serde_json::from_str(&definition.write()).unwrap_or_default()
    }
}
