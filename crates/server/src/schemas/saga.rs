//! Sagas.

use std::collections::BTreeMap;

use utoipa::ToSchema;

/// The definition of sagas.
#[derive(ToSchema)]
pub(crate) struct SagaDefinition {
    /// `{"on": [TYPE, …], "condition"?, "from"?: "beginning" | "latest"}`: the events that start a saga.
    start: serde_json::Value,
    /// What the events of a saga have in common: a path such as `$data.order_id`, or an object of them by type. The aggregate's id when
    /// absent.
    correlate: Option<serde_json::Value>,
    /// The initial context of a saga; the data of its first event when absent.
    context: Option<serde_json::Value>,
    /// Event types that cancel a saga.
    cancel_on: Option<Vec<String>>,
    /// The longest duration of a saga, in milliseconds.
    limit_ms: Option<u64>,
    /// The steps, each an object of `name`, `require`, `publish`, `await`, `delay_ms`, `limit_ms`, `on_limit`, `retry` and `compensation`.
    steps: Vec<serde_json::Value>,
    /// The version of the definition, incremented by its author; the next version when absent.
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
    /// The number of its sagas that have not ended.
    active: u64,
    /// The number of its sagas with a compensation that needs an operator.
    parked: u64,
    owner: Option<String>,
    /// The newest definition as it was put.
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
    /// The reason why it failed.
    cause: Option<String>,
    /// The time since which a compensation needs an operator.
    parked: Option<String>,
    /// The end of its next time limit or pause.
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

/// The number of sagas.
#[derive(ToSchema)]
pub(crate) struct SagaStatistics {
    total: u64,
    by_state: BTreeMap<String, u64>,
    /// The number of sagas with a compensation that needs an operator.
    parked: u64,
    /// The average duration of completed sagas.
    average_duration_seconds: Option<f64>,
}
