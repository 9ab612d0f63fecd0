//! The saga of an execution: it validates the request, waits for a slot, allocates resources, requests a pod and awaits its result.
//!
//! ```text
//!  validate_execution ── in the queue ──▶ allocate_resources ──▶ create_pod ──▶ await_result ── completed, failed, timeout ──▶ done
//!         │ refused                          release_resources ◀── delete_pod ◀──────┘ 300 s, cancel
//!         └─▶ failed, nothing to undo
//! ```
//!
//! The steps are functions, and [`Orchestra`] holds their dependencies. Only the context is stored with the saga.

use std::sync::Arc;

use annals::bson::{Document, doc};
use annals::queue::{ItemRef, ItemsBody, NewItem, QueueError, Queues};
use annals::runtime::{Effects, HandleFailure, Handler, SagaCall, SagaProgram};
use annals::sagas::{SagaActed, SagaCommand, SagaDefinition, SagaFailure, SagaState, Sagas};
use annals::{Clock, Condition, EventLog, Expected, Invalid, NewEvent, RecordError, RecordedEvent, Records};
use async_trait::async_trait;
use serde::Deserialize;
use tokio::sync::Notify;

use crate::events::{self, AGGREGATE, CANCELLED, ErrorType, TERMINAL, TIMEOUT};
use crate::execution::Execution;
use crate::records::{ACTIVE, AllocationRecord, RELEASED, date, is_there, typed};
use crate::step::step;
use crate::submission::check;
use crate::verdict;

/// The name of the definition.
pub const SAGA: &str = "execution_saga";
/// The work queue in which executions wait for a slot.
pub const QUEUE: &str = "executions";
/// Most executions of a language that hold resources at once.
const ALLOCATIONS_MAX: usize = 100;

const DEFINITION: &str = r#"{
    "start": {"on": ["execution_requested"]},
    "context": {"execution_id": "$aggregate.id"},
    "cancel_on": ["execution_cancelled"],
    "steps": [
        {"name": "validate_execution", "action": "program",
         "retry": {"first_ms": 200, "factor": 2, "max_ms": 5000, "jitter": 0.1},
         "await": {"on": ["allocate_resources_command"]}},
        {"name": "allocate_resources", "action": "program",
         "retry": {"first_ms": 200, "factor": 2, "max_ms": 5000, "jitter": 0.1},
         "compensation": {"name": "release_resources", "action": "program", "always": true,
                          "retry": {"first_ms": 200, "factor": 2, "max_ms": 30000, "jitter": 0.1, "attempts": 20}}},
        {"name": "create_pod", "action": "program",
         "retry": {"first_ms": 200, "factor": 2, "max_ms": 5000, "jitter": 0.1, "attempts": 10},
         "compensation": {"name": "delete_pod", "action": "program"}},
        {"name": "await_result",
         "await": {"on": ["execution_completed", "execution_failed", "execution_timeout"]},
         "limit_ms": 300000}
    ]
}"#;

/// Returns the definition of the saga.
///
/// # Errors
/// `invalid_saga`, which a test rules out.
pub fn saga_definition() -> Result<SagaDefinition, Invalid> {
    SagaDefinition::read_any(SAGA, DEFINITION.as_bytes())
}

/// The dependencies of the saga's steps.
pub(crate) struct Orchestra {
    pub(crate) log: Arc<dyn EventLog>,
    pub(crate) records: Arc<dyn Records>,
    pub(crate) queues: Arc<dyn Queues>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Wakes the scheduler.
    pub(crate) wake: Arc<Notify>,
}

type Acted = Result<SagaActed, SagaFailure>;

/// Returns the definition with its functions.
pub(crate) fn program(orchestra: &Arc<Orchestra>) -> Result<SagaProgram, Invalid> {
    macro_rules! functions {
        ($program:expr; $($name:ident)+) => {
            $program$(.function(stringify!($name), {
                let orchestra = Arc::clone(orchestra);
                move |call| {
                    let orchestra = Arc::clone(&orchestra);
                    async move { orchestra.$name(call).await }
                }
            }))+
        };
    }
    let program = SagaProgram::new(saga_definition()?);
    Ok(functions!(program; validate_execution allocate_resources release_resources create_pod delete_pod))
}

fn never(reason: impl Into<String>) -> SagaFailure {
    SagaFailure { reason: reason.into(), never: true }
}

fn again(error: impl std::fmt::Display) -> SagaFailure {
    SagaFailure { reason: error.to_string(), never: false }
}

impl Orchestra {
    async fn execution(&self, id: &str) -> Result<Execution, SagaFailure> {
        let found = Execution::read(&*self.log, id).await.map_err(again)?;
        found.ok_or_else(|| never(format!("the request names no existing aggregate {AGGREGATE}/{id}")))
    }

    async fn validate_execution(&self, call: SagaCall) -> Acted {
        let execution = self.execution(&call.execution_id).await?;
        if execution.status().is_over() {
            return Err(never(format!("the execution is already {}", execution.status().name())));
        }
        let requested = execution.requested().map_err(never)?;
        check(&requested).map_err(|(_, reason)| never(reason))?;
        let item = NewItem::new(call.execution_id.clone())
            .priority(requested.priority())
            .user(execution.user())
            .payload(serde_json::json!({ "saga_id": &*call.saga_id }));
        let enqueued = match self.queues.enqueue(QUEUE, item).await {
            Ok(enqueued) => enqueued,
            Err(error @ QueueError::Full { .. }) => {
                return Err(self.refused(&execution, ErrorType::ResourceLimit, error.to_string()).await?);
            }
            Err(error) => return Err(again(error)),
        };
        // The event below wakes the scheduler.
        let position = enqueued.position.map(|position| position.cast_signed());
        let data = doc! { "execution_id": &*call.execution_id, "position_in_queue": position };
        let set = doc! {
            "language": requested.language, "language_version": requested.language_version,
            "timeout_seconds": requested.timeout_seconds.cast_signed(), "user_id": execution.user(),
        };
        Ok(SagaActed { commands: vec![command(events::QUEUED, data, &call)], set })
    }

    /// Ends an execution that cannot be run, and returns the failure of its step.
    async fn refused(
        &self,
        execution: &Execution,
        error: ErrorType,
        reason: String,
    ) -> Result<SagaFailure, SagaFailure> {
        let request = execution.request();
        let event = verdict::not_run(&request.commit.aggregate.id, error, reason.clone()).map_err(never)?;
        step(&*self.log, request, &[event], "terminal", &TERMINAL).await.map_err(again)?;
        Ok(never(reason))
    }

    async fn allocate_resources(&self, call: SagaCall) -> Acted {
        let execution = self.execution(&call.execution_id).await?;
        let requested = execution.requested().map_err(never)?;
        let allocations = typed::<AllocationRecord>(&self.records);
        let active = Condition::and([Condition::eq("language", &*requested.language), Condition::eq("status", ACTIVE)]);
        let query = annals::TypedRecords::<AllocationRecord>::query().matching(active).limit(ALLOCATIONS_MAX);
        let (held, _) = allocations.find(query).await.map_err(again)?;
        let has_one = held.iter().any(|it| *it.value.execution_id == *call.execution_id);
        if held.len() >= ALLOCATIONS_MAX && !has_one {
            let reason =
                format!("{ALLOCATIONS_MAX} executions in {} hold resources; submit it again later", requested.language);
            let failure = self.refused(&execution, ErrorType::ResourceLimit, reason).await?;
            self.free_slot(&call.execution_id).await;
            return Err(failure);
        }
        let allocation = AllocationRecord {
            id: call.execution_id.to_string(),
            allocation_id: call.saga_id.to_string(),
            execution_id: call.execution_id.to_string(),
            language: requested.language,
            cpu_request: requested.cpu_request,
            memory_request: requested.memory_request,
            cpu_limit: requested.cpu_limit,
            memory_limit: requested.memory_limit,
            status: ACTIVE.to_owned(),
            allocated_at: date(self.clock.now()),
            released_at: None,
        };
        match allocations.insert(&allocation).await {
            // An earlier attempt of this step created it.
            Err(error) if is_there(&error) => {}
            inserted => drop(inserted.map_err(again)?),
        }
        let set = doc! { "allocation_id": &*call.saga_id, "resources_allocated": true };
        Ok(SagaActed { commands: Vec::new(), set })
    }

    async fn release_resources(&self, call: SagaCall) -> Acted {
        self.release(&call.execution_id).await.map_err(again)?;
        Ok(SagaActed { commands: Vec::new(), set: doc! { "resources_allocated": false } })
    }

    /// Releases the allocation and the slot of an execution, if it has them.
    async fn release(&self, execution_id: &str) -> Result<(), RecordError> {
        let allocations = typed::<AllocationRecord>(&self.records);
        if let Some(found) = allocations.get(execution_id).await?
            && found.value.status == ACTIVE
        {
            let released_at = Some(date(self.clock.now()));
            let released = AllocationRecord { status: RELEASED.to_owned(), released_at, ..found.value };
            allocations.replace_if(&released, Expected::Revision(found.revision)).await?;
        }
        self.free_slot(execution_id).await;
        Ok(())
    }

    /// Frees the slot of an execution. If the queue cannot be reached, the scheduler does it later.
    async fn free_slot(&self, execution_id: &str) {
        let current = ItemsBody::of([ItemRef::current(execution_id)]);
        let _ = self.queues.done(QUEUE, current).await;
        self.wake.notify_one();
    }

    async fn create_pod(&self, call: SagaCall) -> Acted {
        let execution = self.execution(&call.execution_id).await?;
        let mut requested = execution.requested().map_err(never)?;
        requested.priority = requested.priority().as_str().to_owned();
        let data = events::CreatePod { saga_id: call.saga_id.to_string(), requested };
        let data = annals::bson::serialize_to_document(&data).map_err(never_of)?;
        let set = doc! { "pod_creation_triggered": true };
        Ok(SagaActed { commands: vec![command(events::CREATE_POD, data, &call)], set })
    }

    async fn delete_pod(&self, call: SagaCall) -> Acted {
        let reason = call.cause.clone().unwrap_or_else(|| "the saga was undone".to_owned());
        let data = doc! { "saga_id": &*call.saga_id, "execution_id": &*call.execution_id, "reason": reason };
        Ok(SagaActed::command(command(events::DELETE_POD, data, &call)))
    }
}

fn never_of(error: impl std::fmt::Display) -> SagaFailure {
    never(error.to_string())
}

/// Returns a command that consumers get in order with the other events of the execution.
fn command(event_type: &str, data: Document, call: &SagaCall) -> SagaCommand {
    SagaCommand::new(event_type, data).to(AGGREGATE, call.execution_id.to_string())
}

/// The events that end a saga which does not complete.
pub(crate) const UNDONE: [&str; 2] = ["saga_failed", "saga_cancelled"];

/// Ends the execution of a saga that did not complete, unless it is over, and releases what it still holds. So every execution gets a
/// terminal event, even if no compensation ran. An allocation is left if the answer to its insertion was lost, and the saga was cancelled
/// before the step was retried: a step that failed is not compensated.
pub(crate) struct Closer {
    pub(crate) orchestra: Arc<Orchestra>,
    pub(crate) sagas: Arc<dyn Sagas>,
}

#[derive(Deserialize)]
struct Ended {
    saga_id: String,
    saga_name: String,
    execution_id: String,
}

#[async_trait]
impl Handler for Closer {
    async fn handle(&self, events: &[RecordedEvent], _: &mut Effects) -> Result<(), HandleFailure> {
        for event in events {
            // Sagas of other definitions have other data.
            if let Ok(ended) = event.data.decode::<Ended>()
                && ended.saga_name == SAGA
            {
                self.close(&ended).await?;
            }
        }
        Ok(())
    }
}

impl Closer {
    async fn close(&self, ended: &Ended) -> Result<(), HandleFailure> {
        let log = &*self.orchestra.log;
        if let Some(execution) = Execution::read(log, &ended.execution_id).await?
            && !execution.status().is_over()
        {
            let saga = self.sagas.get(&ended.saga_id).await.map_err(|error| HandleFailure::new(error.to_string()))?;
            let reason = saga.cause.unwrap_or_else(|| "its saga did not complete".to_owned());
            let event = ending(&execution, saga.state, reason).map_err(HandleFailure::never)?;
            step(log, execution.request(), &[event], "terminal", &TERMINAL).await?;
        }
        let released = self.orchestra.release(&ended.execution_id).await;
        released.map_err(|error| HandleFailure::new(error.to_string()))
    }
}

/// Returns the event that ends an execution whose saga ended in a state other than `completed`.
pub(crate) fn ending(execution: &Execution, state: SagaState, reason: String) -> Result<NewEvent, String> {
    let id = &*execution.request().commit.aggregate.id;
    match state {
        SagaState::Timeout => {
            let data = events::Timeout {
                execution_id: id.to_owned(),
                timeout_seconds: execution.requested().map_or(0, |it| it.timeout_seconds),
                exit_code: 1,
                resource_usage: events::ResourceUsage::default(),
                stdout: String::new(),
                stderr: reason,
            };
            events::event(TIMEOUT, &data)
        }
        SagaState::Cancelled => {
            let data = serde_json::json!({ "execution_id": id, "cancelled_by": "operator", "force_terminated": true, "reason": reason });
            events::event(CANCELLED, &data)
        }
        _ => verdict::of_system_error(id, reason),
    }
}
