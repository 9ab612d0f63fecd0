//! The definition of the saga, with functions that do what the real ones do without a store, on a clock of its own.

use annals::bson::doc;
use annals::sagas::{SagaActed, SagaCommand, SagaFailure, SagaRecord, SagaState};
use annals::testing::sagas::{SagaTest, saga};
use annals_example_execution::{AGGREGATE, CREATE_POD, DELETE_POD, QUEUED, saga_definition};
use serde_json::json;

fn of(record: &SagaRecord, event_type: &str) -> SagaCommand {
    SagaCommand::new(event_type, doc! { "execution_id": &record.execution_id })
        .to(AGGREGATE, record.execution_id.clone())
}

/// A saga whose request passes unless `refused` says why not.
fn test(refused: Option<&'static str>) -> SagaTest {
    saga(saga_definition().expect("valid"))
        .function("validate_execution", move |saga, _| match refused {
            Some(reason) => Err(SagaFailure { reason: reason.to_owned(), never: true }),
            None => Ok(SagaActed::command(of(saga, QUEUED))),
        })
        .function("allocate_resources", |_, _| {
            Ok(SagaActed { commands: Vec::new(), set: doc! { "resources_allocated": true } })
        })
        .function("release_resources", |_, _| {
            Ok(SagaActed { commands: Vec::new(), set: doc! { "resources_allocated": false } })
        })
        .function("create_pod", |saga, _| Ok(SagaActed::command(of(saga, CREATE_POD))))
        .function("delete_pod", |saga, _| Ok(SagaActed::command(of(saga, DELETE_POD))))
}

fn requested(test: SagaTest) -> SagaTest {
    test.event("execution_requested", json!({ "execution_id": "t-1" }))
}

fn scheduled(test: SagaTest) -> SagaTest {
    requested(test).published(["saga_started", "execution_queued"]).event("allocate_resources_command", json!({}))
}

#[test]
fn statement_79_a_request_is_a_running_saga_with_three_completed_steps_and_its_events_are_in_order() {
    scheduled(test(None)).published(["create_pod_command"]).state(SagaState::Running).check(|saga| {
        assert_eq!(saga.completed_steps, ["validate_execution", "allocate_resources", "create_pod"]);
        assert_eq!(saga.current_step.as_deref(), Some("await_result"));
    });
}

#[test]
fn statement_80_the_same_request_twice_is_one_saga() {
    requested(scheduled(test(None)).published(["create_pod_command"])).published([]).state(SagaState::Running);
}

#[test]
fn statement_81_a_request_that_is_refused_fails_with_nothing_to_compensate() {
    let failed = requested(test(Some("timeout_seconds is 301"))).published(["saga_started", "saga_failed"]);
    failed.state(SagaState::Failed).check(|saga| {
        assert!(saga.compensated_steps.is_empty() && saga.completed_steps.is_empty());
        assert_eq!(saga.error_message.as_deref(), Some("timeout_seconds is 301"));
    });
}

#[test]
fn statement_82_a_pod_that_cannot_be_asked_for_releases_what_was_allocated_and_keeps_the_cause() {
    let refusing = test(None).refusing(CREATE_POD, 1_000);
    scheduled(refusing).after(std::time::Duration::from_secs(120)).state(SagaState::Failed).check(|saga| {
        assert_eq!(saga.compensated_steps, ["release_resources"]);
        assert!(!saga.context_data.get_bool("resources_allocated").expect("set"));
        assert!(saga.error_message.as_ref().is_some_and(|cause| !cause.is_empty()));
    });
}

#[test]
fn statement_84_a_completed_execution_releases_its_allocation() {
    let running = scheduled(test(None)).published(["create_pod_command"]);
    running.event("execution_completed", json!({})).published(["saga_completed"]).state(SagaState::Completed).check(
        |saga| {
            assert_eq!(saga.compensated_steps, ["release_resources"]);
            assert!(!saga.context_data.get_bool("resources_allocated").expect("set"));
        },
    );
}

#[test]
fn statements_85_and_86_a_cancel_by_an_operator_or_an_event_deletes_the_pod_and_then_releases_the_resources() {
    let undone = |test: SagaTest| {
        test.state(SagaState::Cancelled).check(|saga| {
            assert_eq!(saga.compensated_steps, ["delete_pod", "release_resources"]);
        });
    };
    undone(scheduled(test(None)).cancel("no longer wanted"));
    undone(scheduled(test(None)).event("execution_cancelled", json!({})));
}

#[test]
fn statement_87_a_saga_of_301_seconds_times_out_and_is_compensated() {
    let running = scheduled(test(None)).published(["create_pod_command"]).after(std::time::Duration::from_secs(299));
    let running = running.published([]).state(SagaState::Running);
    running.after(std::time::Duration::from_secs(2)).state(SagaState::Timeout).check(|saga| {
        assert_eq!(saga.compensated_steps, ["delete_pod", "release_resources"]);
    });
}

#[test]
fn events_out_of_order_and_twice_lead_to_the_same_end() {
    // The end comes before the saga awaits it, and the slot twice.
    let early = requested(test(None)).event("execution_completed", json!({}));
    let early = early.event("allocate_resources_command", json!({})).event("allocate_resources_command", json!({}));
    early.event("execution_completed", json!({})).state(SagaState::Completed).check(|saga| {
        assert_eq!(saga.completed_steps.len(), 4);
    });
}

#[test]
fn a_cancel_after_the_end_changes_nothing() {
    let done = scheduled(test(None))
        .event("execution_completed", json!({}))
        .published(["create_pod_command", "saga_completed"]);
    done.event("execution_cancelled", json!({})).published([]).state(SagaState::Completed);
}
