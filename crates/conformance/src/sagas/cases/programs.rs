//! Sagas whose steps are functions in Rust.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use annals_core::bson::doc;
use annals_core::sagas::{SagaActed, SagaCommand, SagaDefinition, SagaFailure, SagaRecord, SagaState, Sagas, saga_id};
use annals_core::{DEFAULT_TENANT, TypedRecords};
use annals_runtime::{SagaCall, SagaProgram};
use serde_json::json;
use tokio::sync::Notify;

use crate::Subject;
use crate::sagas::opened::Running;

const ORDER: &str = r#"{"start": {"on": ["placed"]}, "version": 1, "steps": [
    {"name": "charge", "action": "program", "limit_ms": 60000,
     "retry": {"first_ms": 1000, "factor": 2, "max_ms": 60000, "jitter": 0, "attempts": 3},
     "compensation": {"name": "refund", "action": "program"}},
    {"name": "ship", "publish": {"type": "ship", "data": {"charge": "$context.charge"}},
     "await": {"on": ["shipped"], "fail_on": ["lost"]}}
]}"#;

fn definition() -> SagaDefinition {
    SagaDefinition::read_any("order", ORDER.as_bytes()).expect("a definition")
}

/// A payment service that counts its calls.
#[derive(Default)]
struct Payments {
    charges: AtomicU32,
    refunds: AtomicU32,
    failures: u32,
}

fn program(payments: &Arc<Payments>) -> SagaProgram {
    let (charging, refunding) = (Arc::clone(payments), Arc::clone(payments));
    SagaProgram::new(definition())
        .function("charge", move |call: SagaCall| {
            let payments = Arc::clone(&charging);
            async move {
                payments.charges.fetch_add(1, Ordering::Relaxed);
                if call.attempt <= payments.failures {
                    return Err("the service is down".into());
                }
                let command = SagaCommand::new("charged", doc! { "key": &call.key }).to("payment", &*call.execution_id);
                Ok(SagaActed { commands: vec![command], set: doc! { "charge": &call.key } })
            }
        })
        .function("refund", move |call| {
            let payments = Arc::clone(&refunding);
            async move {
                payments.refunds.fetch_add(1, Ordering::Relaxed);
                let cause = call.cause.ok_or("there is no cause")?;
                Ok(SagaActed::command(SagaCommand::new("refunded", doc! { "cause": cause })))
            }
        })
}

/// This also holds after a failure, which is attempted again.
pub async fn functions_are_called_and_their_commands_committed_once(subject: &dyn Subject) {
    let it = Running::of(subject).await;
    let payments = Arc::new(Payments { failures: 1, ..Payments::default() });
    it.sagas.register(program(&payments)).await.expect("registered");
    it.commit("placed", "o-1", json!({})).await;
    it.until_of("order", "o-1", |status| status.steps.iter().any(|step| step.state == "failed")).await;
    it.it.advance(1_000);
    let charged = it.until_of("order", "o-1", |status| status.completed_steps.len() == 1).await;
    assert!(charged.context["charge"].as_str().is_some_and(|key| key.ends_with("/charge/action")));
    it.commit("lost", "o-1", json!({"reason": "at sea"})).await;
    it.until_of("order", "o-1", |status| status.state == SagaState::Failed).await;
    it.logged("o-1", "saga_failed").await;
    let due = ["saga_started", "charged", "ship", "saga_compensating", "refunded", "saga_compensated", "saga_failed"];
    assert_eq!(it.published("o-1").await, due);
    assert_eq!((payments.charges.load(Ordering::Relaxed), payments.refunds.load(Ordering::Relaxed)), (2, 1));
}

/// The function ends first, so that its outcome is known.
pub async fn a_cancel_while_a_function_runs_compensates_what_it_did(subject: &dyn Subject) {
    let it = Running::of(subject).await;
    let (calls, gate) = (Arc::new(AtomicU32::new(0)), Arc::new(Notify::new()));
    let (counted, opened) = (Arc::clone(&calls), Arc::clone(&gate));
    let program = SagaProgram::new(definition())
        .function("charge", move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            let opened = Arc::clone(&opened);
            async move {
                opened.notified().await;
                Ok(SagaActed::command(SagaCommand::new("charged", doc! {})))
            }
        })
        .function("refund", |_| async { Ok(SagaActed::command(SagaCommand::new("refunded", doc! {}))) });
    it.sagas.register(program).await.expect("registered");
    it.commit("placed", "o-1", json!({})).await;
    while calls.load(Ordering::Relaxed) == 0 {
        crate::between_looks().await;
    }
    let id = saga_id("order", "o-1");
    let stored = TypedRecords::<SagaRecord>::declared(it.it.store.records(DEFAULT_TENANT).expect("declared"));
    let opening = async {
        while stored.get(id.as_str()).await.expect("read").is_none_or(|saga| saga.value.annals.asked.is_none()) {
            crate::between_looks().await;
        }
        gate.notify_one();
    };
    let (cancelled, ()) = tokio::join!(it.sagas.cancel(&id, "a user asked".into()), opening);
    cancelled.expect("cancelled");
    let status = it.until_of("order", "o-1", |status| status.state.is_over()).await;
    it.logged("o-1", "saga_cancelled").await;
    let due = ["saga_started", "charged", "saga_compensating", "refunded", "saga_compensated", "saga_cancelled"];
    assert_eq!(it.published("o-1").await, due);
    assert_eq!((status.state, status.cause.as_deref()), (SagaState::Cancelled, Some("a user asked")));
    assert_eq!(status.completed_steps, ["charge"]);
    assert_eq!(status.compensated_steps, ["refund"]);
    assert_eq!(calls.load(Ordering::Relaxed), 1);
}

/// The failure has the message of the panic.
pub async fn a_function_that_panics_fails_its_step(subject: &dyn Subject) {
    let it = Running::of(subject).await;
    let json = ORDER.replace("\"attempts\": 3", "\"attempts\": 1");
    let definition = SagaDefinition::read_any("order", json.as_bytes()).expect("a definition");
    let program = SagaProgram::new(definition)
        .function("charge", |call| async move { panic!("no {}", call.step) })
        .function("refund", |_| async { Ok(SagaActed::default()) });
    it.sagas.register(program).await.expect("registered");
    it.commit("placed", "o-1", json!({})).await;
    let status = it.until_of("order", "o-1", |status| status.state == SagaState::Failed).await;
    assert!(status.cause.is_some_and(|cause| cause.contains("no charge")));
}

/// What it may have done is compensated.
pub async fn a_function_past_its_limit_is_given_up(subject: &dyn Subject) {
    let it = Running::of(subject).await;
    let program = SagaProgram::new(definition())
        .function("charge", |_| std::future::pending())
        .function("refund", |_| async { Ok(SagaActed::default()) });
    it.sagas.register(program).await.expect("registered");
    it.commit("placed", "o-1", json!({})).await;
    it.until_of("order", "o-1", |status| status.current_step.as_deref() == Some("charge")).await;
    it.logged("o-1", "saga_started").await;
    it.it.advance(60_000);
    let status = it.until_of("order", "o-1", |status| status.state == SagaState::Timeout).await;
    assert_eq!(status.compensated_steps, ["refund"]);
}

/// Nothing is defined.
pub async fn a_missing_function_is_refused(subject: &dyn Subject) {
    let it = Running::of(subject).await;
    let failing = |_| async { Err(SagaFailure::from("no")) };
    let refused = it.sagas.register(SagaProgram::new(definition()).function("charge", failing)).await;
    assert!(refused.is_err_and(|error| error.to_string().contains("refund")));
    assert!(it.sagas.definition("order").await.is_err());
}
