//! Sagas and their definitions as the API returns them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::stored::time;
use super::{SagaRecord, SagaState};
use crate::{ByteString, Timestamp};

/// A saga.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SagaStatus {
    /// Its id.
    pub id: ByteString,
    /// The name of its definition.
    pub name: ByteString,
    /// The version of its definition.
    pub version: u32,
    /// The correlation that its events share.
    pub execution_id: String,
    /// Its state.
    pub state: SagaState,
    /// The step or compensation that is running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_step: Option<String>,
    /// The completed steps.
    pub completed_steps: Vec<String>,
    /// The completed compensations.
    pub compensated_steps: Vec<String>,
    /// The attempts of steps and compensations, newest last.
    pub steps: Vec<SagaStepStatus>,
    /// The context.
    pub context: Value,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// Since when a compensation has been parked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parked: Option<Timestamp>,
    /// When its next time limit or pause ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<Timestamp>,
    /// The number of retries of steps and compensations.
    pub retry_count: u64,
    /// When it began.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Timestamp>,
}

/// An attempt of a step or compensation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SagaStepStatus {
    /// The step or compensation.
    pub name: String,
    /// `action` or `compensation`.
    pub kind: String,
    /// `running`, `awaiting`, `completed`, `failed`, `refused`, `timeout`, `cancelled` or `parked`.
    pub state: String,
    /// The number of the attempt, from 1.
    pub attempt: u64,
    /// When it began.
    pub at: Timestamp,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A page of sagas.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SagaPage {
    /// The sagas, newest first.
    pub items: Vec<SagaStatus>,
    /// Where the next page begins; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// A query for a list of sagas.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SagaQuery {
    /// Only sagas of this definition.
    pub name: Option<String>,
    /// Only sagas in this state.
    pub state: Option<SagaState>,
    /// Only the saga of this correlation.
    pub execution_id: Option<String>,
    /// Only sagas with a parked compensation.
    pub parked: bool,
    /// The maximum number of sagas, 1 to 1,000.
    pub limit: usize,
    /// The `cursor` of the previous page.
    pub cursor: Option<String>,
}

/// The number of sagas, and the duration of those that completed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SagaStatistics {
    /// The number of sagas.
    pub total: u64,
    /// By state; states without sagas are left out.
    pub by_state: BTreeMap<String, u64>,
    /// The number of sagas with a parked compensation.
    pub parked: u64,
    /// The average duration of completed sagas, in seconds; absent if none has completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub average_duration_seconds: Option<f64>,
}

/// A definition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SagaDefinitionStatus {
    /// Its name.
    pub name: ByteString,
    /// The newest version.
    pub version: u32,
    /// All versions, ascending.
    pub versions: Vec<u32>,
    /// Every event below this sequence number has been processed.
    pub position: u64,
    /// The number of events in the log.
    pub head: u64,
    /// `head - position`.
    pub lag: u64,
    /// The number of its sagas that have not ended.
    pub active: u64,
    /// The number of its sagas with a parked compensation.
    pub parked: u64,
    /// The process that runs them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The newest definition.
    pub definition: Value,
}

/// A page of definitions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SagaDefinitionPage {
    /// The definitions, by name.
    pub items: Vec<SagaDefinitionStatus>,
    /// Where the next page begins; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<ByteString>,
}

impl SagaRecord {
    /// Returns the saga as the API shows it.
    pub fn status(&self) -> SagaStatus {
        let number = |number: i64| u64::try_from(number).unwrap_or(0);
        let step = |entry: &super::TimelineEntry| SagaStepStatus {
            name: entry.name.clone(),
            kind: entry.kind.clone(),
            state: entry.state.clone(),
            attempt: number(entry.attempt),
            at: time(entry.at),
            ended: entry.ended.map(time),
            reason: entry.reason.clone(),
        };
        SagaStatus {
            id: self.saga_id.as_str().into(),
            name: self.saga_name.as_str().into(),
            version: u32::try_from(self.annals.version).unwrap_or(1),
            execution_id: self.execution_id.clone(),
            state: self.state,
            current_step: self.current_step.clone(),
            completed_steps: self.completed_steps.clone(),
            compensated_steps: self.compensated_steps.clone(),
            steps: self.annals.timeline.iter().map(step).collect(),
            context: bson::Bson::Document(self.context_data.clone()).into_relaxed_extjson(),
            cause: self.error_message.clone(),
            parked: self.annals.parked.map(time),
            due: self.timer(),
            retry_count: number(self.retry_count),
            created_at: time(self.created_at),
            updated_at: time(self.updated_at),
            completed_at: self.completed_at.map(time),
        }
    }
}
