//! Sagas.

use std::collections::BTreeMap;

use utoipa::ToSchema;

/// What sagas are defined by.
#[derive(ToSchema)]
pub(crate) struct SagaDefinition {
    /// `{"on": [TYPE, …], "condition"?, "from"?: "beginning" | "latest"}`: the events that start a saga.
    start: serde_json::Value,
    /// What the events of a saga have in common: a path such as `$data.order_id`, or an object of them by type. The aggregate's id when
    /// absent.
    correlate: Option<serde_json::Value>,
    /// The context with which a saga begins; the data of its first event when absent.
    context: Option<serde_json::Value>,
    /// Event types that cancel a saga.
    cancel_on: Option<Vec<String>>,
    /// How long a saga may take, in milliseconds.
    limit_ms: Option<u64>,
    /// The steps, each an object of `name`, `require`, `publish`, `await`, `delay_ms`, `limit_ms`, `on_limit`, `retry` and `compensation`.
    steps: Vec<serde_json::Value>,
    /// A number that its author counts up; the next one when absent.
    version: Option<u32>,
}

/// A definition and its state.
#[derive(ToSchema)]
pub(crate) struct SagaDefinitionStatus {
    name: String,
    /// The newest version.
    version: u32,
    versions: Vec<u32>,
    position: u64,
    head: u64,
    lag: u64,
    /// How many of its sagas are not over.
    active: u64,
    /// Of how many of its sagas a compensation waits for an operator.
    parked: u64,
    owner: Option<String>,
    /// The newest definition, as it was put.
    definition: serde_json::Value,
}

/// A page of definitions.
#[derive(ToSchema)]
pub(crate) struct SagaDefinitionPage {
    items: Vec<SagaDefinitionStatus>,
    cursor: Option<String>,
}

/// A saga.
#[derive(ToSchema)]
pub(crate) struct SagaStatus {
    id: String,
    name: String,
    version: u32,
    execution_id: String,
    /// `created`, `running`, `compensating`, `completed`, `failed`, `timeout` or `cancelled`.
    state: String,
    current_step: Option<String>,
    completed_steps: Vec<String>,
    compensated_steps: Vec<String>,
    steps: Vec<SagaStep>,
    context: serde_json::Value,
    /// Why it failed.
    cause: Option<String>,
    /// Since when a compensation waits for an operator.
    parked: Option<String>,
    /// When its next limit of time or pause ends.
    due: Option<String>,
    retry_count: u64,
    created_at: String,
    updated_at: String,
    completed_at: Option<String>,
}

/// An attempt of a step or compensation.
#[derive(ToSchema)]
struct SagaStep {
    name: String,
    /// `action` or `compensation`.
    kind: String,
    /// `running`, `awaiting`, `completed`, `failed`, `refused`, `timeout`, `cancelled` or `parked`.
    state: String,
    attempt: u64,
    at: String,
    ended: Option<String>,
    reason: Option<String>,
}

/// A page of sagas.
#[derive(ToSchema)]
pub(crate) struct SagaPage {
    items: Vec<SagaStatus>,
    cursor: Option<String>,
}

/// How many sagas there are.
#[derive(ToSchema)]
pub(crate) struct SagaStatistics {
    total: u64,
    by_state: BTreeMap<String, u64>,
    /// Of how many a compensation waits for an operator.
    parked: u64,
    /// How long those took on average that completed.
    average_duration_seconds: Option<f64>,
}
