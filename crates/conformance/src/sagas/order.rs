//! The sagas of tests that kill processes: every kind of step, and the compensation of each.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use annals_core::bson::doc;
use annals_core::sagas::{SagaActed, SagaCommand, SagaDefinition, SagaFailure};
use annals_runtime::{SagaCall, SagaProgram};

/// Three steps with compensations: one always releases what it holds, one is a function of a program, and one awaits an event.
const DEFINITION: &str = r#"{"start": {"on": ["placed"]}, "steps": [
    {"name": "reserve", "publish": {"type": "reserve", "data": {"n": "$context.n"}},
     "compensation": {"name": "release", "always": true, "publish": {"type": "release", "data": {"n": "$context.n"}}}},
    {"name": "charge", "action": "program", "compensation": {"name": "recover", "action": "program"}},
    {"name": "pay", "publish": {"type": "pay", "data": {"n": "$context.n"}},
     "await": {"on": ["paid"], "fail_on": ["declined"]},
     "compensation": {"name": "refund", "publish": {"type": "refund", "data": {"cause": "$saga.cause"}}}}
]}"#;

/// The name of the definition.
pub const ORDER: &str = "order";

/// The keys with which the functions of a program were called.
pub type Called = Arc<Mutex<BTreeSet<String>>>;

/// Returns the definition with the functions of its step and of that step's compensation. Each notes its key, and publishes one command.
///
/// # Panics
/// A function panics if another one panicked while it noted its key.
pub fn program(called: &Called) -> SagaProgram {
    let publishing = |event_type: &'static str| {
        let called = Arc::clone(called);
        move |call: SagaCall| {
            called.lock().expect("no function panics").insert(call.key.clone());
            let command = SagaCommand::new(event_type, doc! { "key": call.key });
            async move { Ok::<_, SagaFailure>(SagaActed::command(command)) }
        }
    };
    let definition = SagaDefinition::read_any(ORDER, DEFINITION.as_bytes()).expect("a definition");
    SagaProgram::new(definition).function("charge", publishing("charged")).function("recover", publishing("recovered"))
}
