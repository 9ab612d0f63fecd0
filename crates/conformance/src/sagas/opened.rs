//! A store with a host on it that runs sagas, and shorthands for the steps of the cases.

use std::sync::Arc;

use annals_core::sagas::{PutSaga, SAGAS, SagaDefinition, SagaError, SagaState, SagaStatus, Sagas, saga_id};
use annals_core::{DEFAULT_TENANT, Data, LogQuery, NewCommit, NewEvent, Reached, RecordedEvent, Store};
use annals_runtime::HostSagas;
use serde_json::{Value, json};

use crate::handlers::opened::Opened;
use crate::rival::Rival;
use crate::tap::TappedStore;
use crate::{ManualClock, Subject};

/// The name of the definition of most cases.
pub const EXECUTION: &str = "execution_saga";

/// Integr8sCode's saga of an execution, with its steps and compensations.
pub const DEFINITION: &str = r#"{
    "start": {"on": ["execution_requested"]},
    "correlate": "$data.execution_id",
    "cancel_on": ["execution_cancelled"],
    "steps": [
        {"name": "validate_execution", "require": [
            {"condition": {"field": "context.timeout_seconds", "operator": "LTE", "value": 300}, "message": "timeout exceeds 300 s"}
        ]},
        {"name": "allocate_resources",
         "publish": {"type": "allocate_resources_command", "data": {"execution_id": "$saga.execution_id"}},
         "compensation": {"name": "release_resources", "always": true,
             "retry": {"first_ms": 1000, "factor": 2, "max_ms": 60000, "jitter": 0, "attempts": 2},
             "publish": {"type": "release_resources_command", "data": {"execution_id": "$saga.execution_id"},
                         "aggregate": {"name": "pool", "id": "$context.pool"}}}},
        {"name": "create_pod",
         "publish": {"type": "create_pod_command", "data": {"saga_id": "$saga.id"},
                     "aggregate": {"name": "pod", "id": "$context.pod"}},
         "await": {"on": ["execution_completed"], "fail_on": ["execution_failed"], "set": {"exit_code": "$data.exit_code"}},
         "limit_ms": 300000,
         "compensation": {"name": "delete_pod",
             "publish": {"type": "delete_pod_command", "data": {"reason": "$saga.cause"}}}}
    ]
}"#;

/// A store, a host on it, and the sagas of the default tenant. Time stands still until a case advances it.
pub struct Running {
    pub it: Opened,
    pub sagas: Arc<HostSagas>,
}

impl Running {
    pub async fn of(subject: &dyn Subject) -> Self {
        Self::on(subject.open().await, subject.clock())
    }

    /// Opens the store with the definition of most cases.
    pub async fn executions(subject: &dyn Subject) -> Self {
        let it = Self::of(subject).await;
        it.define(EXECUTION, DEFINITION).await;
        it
    }

    /// Does the same on a store whose sagas a rival changes.
    pub async fn contested(subject: &dyn Subject) -> (Self, Arc<Rival>) {
        let rival = Rival::of(SAGAS);
        let store = Arc::new(TappedStore::new(subject.open().await).with_records(&rival));
        let it = Self::on(store, subject.clock());
        it.define(EXECUTION, DEFINITION).await;
        (it, rival)
    }

    /// Starts another host on a store, as another process would.
    pub fn on(store: Arc<dyn Store>, clock: Arc<ManualClock>) -> Self {
        let it = Opened::on(store, clock);
        it.host.start_defined();
        let sagas = it.host.sagas(DEFAULT_TENANT).expect("declared");
        Self { it, sagas }
    }

    /// Continues on the same store with a new host, as after a restart.
    pub async fn restarted(self) -> Self {
        let Opened { store, host, clock, .. } = self.it;
        host.drain().await;
        Self::on(store, clock)
    }

    pub async fn define(&self, name: &str, definition: &str) -> PutSaga {
        let definition = SagaDefinition::read(name, definition.as_bytes()).expect("a definition");
        self.sagas.define(definition).await.expect("defined")
    }

    /// Requests an execution.
    pub async fn request(&self, id: &str) {
        self.request_with(id, json!({"pod": id})).await;
    }

    pub async fn request_with(&self, id: &str, more: Value) {
        let mut data = json!({"execution_id": id, "timeout_seconds": 30, "pool": "p", "pod": "p"});
        if let (Value::Object(data), Value::Object(more)) = (&mut data, more) {
            data.extend(more);
        }
        self.commit("execution_requested", id, data).await;
    }

    /// Commits one event to `execution/ID`.
    pub async fn commit(&self, event_type: &str, id: &str, mut data: Value) {
        if let Value::Object(data) = &mut data {
            data.entry("execution_id").or_insert_with(|| id.into());
        }
        let event = NewEvent::new(event_type, Data::from_value(&data).expect("a document"));
        let commit = NewCommit::new("execution", id).event(event).wait_until(Reached::Logged);
        self.it.log.commit(commit).await.expect("committed");
    }

    /// Waits until the status of an execution's saga satisfies `wanted`.
    pub async fn until(&self, id: &str, wanted: impl Fn(&SagaStatus) -> bool) -> SagaStatus {
        self.until_of(EXECUTION, id, wanted).await
    }

    pub async fn until_of(&self, name: &str, id: &str, wanted: impl Fn(&SagaStatus) -> bool) -> SagaStatus {
        loop {
            match self.sagas.get(&saga_id(name, id)).await {
                Ok(status) if wanted(&status) => return status,
                Ok(_) | Err(SagaError::Unknown(_)) => crate::between_looks().await,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Waits until the saga awaits an event in this step, and its commands are in the log.
    pub async fn awaiting(&self, id: &str, step: &str) -> SagaStatus {
        let awaits = |status: &SagaStatus| status.steps.iter().any(|it| it.name == step && it.state == "awaiting");
        self.until(id, awaits).await
    }

    /// Waits until the saga has ended in this state, and its last event is in the log.
    pub async fn ended(&self, id: &str, state: SagaState) -> SagaStatus {
        let status = self.until(id, |status| status.state.is_over()).await;
        assert_eq!(status.state, state, "{status:?}");
        let last = match state {
            SagaState::Completed => "saga_completed",
            SagaState::Cancelled => "saga_cancelled",
            _ => "saga_failed",
        };
        self.logged(id, last).await;
        status
    }

    /// Waits until an event of a saga is in the log.
    pub async fn logged(&self, id: &str, event_type: &str) {
        while !self.published(id).await.iter().any(|name| name == event_type) {
            crate::between_looks().await;
        }
    }

    /// Returns the types of the events whose correlation is the saga's, in log order.
    pub async fn published(&self, id: &str) -> Vec<String> {
        self.events(id).await.iter().map(|event| event.event_type.to_string()).collect()
    }

    /// Returns every event of a correlation that was acknowledged before this call.
    pub async fn events(&self, id: &str) -> Vec<RecordedEvent> {
        // Its sequence number is higher than that of all of them.
        let last = NewCommit::new("reader", id).event(NewEvent::new("read", Data::empty())).wait_until(Reached::Logged);
        self.it.log.commit(last).await.expect("committed");
        let query = LogQuery { limit: 1_000, ..LogQuery::default() };
        let page = self.it.log.read(query).await.expect("read");
        let of = |event: &RecordedEvent| event.commit.correlation_id.as_deref() == Some(id);
        page.events.into_iter().filter(of).collect()
    }
}

/// The events of an execution before it ends.
pub const BEGUN: [&str; 3] = ["saga_started", "allocate_resources_command", "create_pod_command"];

/// Returns the events of an execution that fails at its last step, or is cancelled there.
pub fn undone(last: &str) -> Vec<String> {
    let compensated = [
        "saga_compensating",
        "delete_pod_command",
        "saga_compensating",
        "release_resources_command",
        "saga_compensated",
        last,
    ];
    BEGUN.iter().chain(&compensated).map(|name| (*name).to_owned()).collect()
}

/// Returns the events of an execution that completes.
pub fn completed() -> Vec<String> {
    let last = ["release_resources_command", "saga_completed"];
    BEGUN.iter().chain(&last).map(|name| (*name).to_owned()).collect()
}
