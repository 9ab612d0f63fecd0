//! Sagas and their definitions as the API shows them.

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
    /// What its events have in common.
    pub execution_id: String,
    /// Its state.
    pub state: SagaState,
    /// The step or compensation that is being carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_step: Option<String>,
    /// The steps that are done.
    pub completed_steps: Vec<String>,
    /// The compensations that are done.
    pub compensated_steps: Vec<String>,
    /// The attempts of steps and compensations, the newest last.
    pub steps: Vec<SagaStepStatus>,
    /// The context.
    pub context: Value,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// Since when a compensation waits for an operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parked: Option<Timestamp>,
    /// When its next limit of time or pause ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<Timestamp>,
    /// How often a step or compensation was attempted again.
    pub retry_count: u64,
    /// When it began.
    pub created_at: Timestamp,
    /// When it changed last.
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
    /// Which attempt, from 1.
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
    /// The sagas, the newest first.
    pub items: Vec<SagaStatus>,
    /// Where the next page begins; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// Which sagas are listed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SagaQuery {
    /// Those of this definition.
    pub name: Option<String>,
    /// Those in this state.
    pub state: Option<SagaState>,
    /// Those of this correlation.
    pub execution_id: Option<String>,
    /// Those of which a compensation waits for an operator.
    pub parked: bool,
    /// At most so many; 1 to 1,000.
    pub limit: usize,
    /// The `cursor` of the page before.
    pub cursor: Option<String>,
}

/// How many sagas there are, and how long those took that completed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SagaStatistics {
    /// All of them.
    pub total: u64,
    /// By state; states without a saga are left out.
    pub by_state: BTreeMap<String, u64>,
    /// Those of which a compensation waits for an operator.
    pub parked: u64,
    /// How long those took on average that completed, in seconds; absent where there is none.
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
    /// Every event below it is taken into account.
    pub position: u64,
    /// The number of events in the log.
    pub head: u64,
    /// `head - position`.
    pub lag: u64,
    /// How many of its sagas are not over.
    pub active: u64,
    /// Of how many of its sagas a compensation waits for an operator.
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
