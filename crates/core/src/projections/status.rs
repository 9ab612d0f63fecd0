//! The state of projections, as the API shows it.

use serde::{Deserialize, Serialize};

use crate::{ByteString, Timestamp};

/// The state of a projection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProjectionStatus {
    /// Its name.
    pub name: ByteString,
    /// What the live build is doing.
    pub state: ProjectionState,
    /// The number of the live build. The first is 1; each changed definition and each rebuild starts another one.
    pub build: u64,
    /// Every event below this sequence number is folded into the live records.
    pub position: u64,
    /// The number of events in the log.
    pub head: u64,
    /// `head - position`.
    pub lag: u64,
    /// The age of the event at `position`, in seconds; 0 if there is none.
    pub lag_seconds: u64,
    /// When the position last moved, as stored.
    pub last_progress: Option<Timestamp>,
    /// How many seconds ago that was.
    #[serde(default)]
    pub seconds_since_progress: Option<u64>,
    /// Why it is blocked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_reason: Option<String>,
    /// Why it is degraded, according to the stored state; absent if it is healthy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub degraded: Option<String>,
    /// The process that writes the live records; absent if none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The collection of the live records, which can be read as records.
    pub collection: String,
    /// The build that replaces the live records once it has caught up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub building: Option<BuildStatus>,
    /// The definition of the live records, as it was submitted.
    pub definition: serde_json::Value,
}

/// What a projection is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProjectionState {
    /// It folds events.
    Running,
    /// An operator paused it.
    Paused,
    /// It stopped before an event that does not fit, which the reason names. A changed definition or a resumption attempts the event
    /// again.
    Blocked,
    /// No process folds its events.
    Stopped,
}

/// A build beside the live records.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BuildStatus {
    /// Its number.
    pub build: u64,
    /// What it is doing.
    pub state: ProjectionState,
    /// Every event below this sequence number is folded.
    pub position: u64,
    /// `head - position`.
    pub lag: u64,
    /// The share of the log that is folded, from 0 to 1.
    pub progress: f64,
    /// When the build was started.
    pub since: Timestamp,
    /// Why the build was started: an operator's reason, or that the definition changed.
    pub reason: String,
    /// Why it is blocked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_reason: Option<String>,
    /// Its definition.
    pub definition: serde_json::Value,
}

/// A page of projections.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProjectionPage {
    /// The projections, by name.
    pub items: Vec<ProjectionStatus>,
    /// The cursor of the next page; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<ByteString>,
}
