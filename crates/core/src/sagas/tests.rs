//! The behaviour of sagas, tested with the test kit.

use std::time::Duration;

use serde_json::json;
use uuid::Uuid;

use super::{SagaActed, SagaCommand, SagaDefinition, SagaFailure, SagaState};
use crate::Code;
use crate::testing::sagas::{SagaTest, saga};

/// Integr8sCode's execution saga.
const EXECUTION: &str = r#"{
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
             "publish": {"type": "release_resources_command", "data": {"execution_id": "$saga.execution_id"}}}},
        {"name": "create_pod",
         "publish": {"type": "create_pod_command", "data": {"saga_id": "$saga.id", "script": "$context.script"}},
         "await": {"on": ["execution_completed"], "fail_on": ["execution_failed"], "set": {"exit_code": "$data.exit_code"}},
         "limit_ms": 300000,
         "compensation": {"name": "delete_pod",
             "publish": {"type": "delete_pod_command", "data": {"reason": "$saga.cause"}}}}
    ]
}"#;

fn definition(json: &str) -> SagaDefinition {
    SagaDefinition::read("execution_saga", json.as_bytes()).expect("a definition")
}

fn requested(timeout: u64) -> serde_json::Value {
    json!({"execution_id": "x-1", "script": "print(1)", "timeout_seconds": timeout})
}

fn started() -> SagaTest {
    saga(definition(EXECUTION)).event("execution_requested", requested(30)).published([
        "saga_started",
        "allocate_resources_command",
        "create_pod_command",
    ])
}

const UNDONE: [&str; 6] = [
    "saga_compensating",
    "delete_pod_command",
    "saga_compensating",
    "release_resources_command",
    "saga_compensated",
    "saga_failed",
];

#[test]
fn a_saga_that_succeeds_releases_what_it_holds() {
    started()
        .check(|saga| assert_eq!(saga.completed_steps, ["validate_execution", "allocate_resources"]))
        .state(SagaState::Running)
        .event("execution_completed", json!({"execution_id": "x-1", "exit_code": 0}))
        .published(["release_resources_command", "saga_completed"])
        .state(SagaState::Completed)
        .check(|saga| {
            assert_eq!(saga.context_data.get_i64("exit_code").ok(), Some(0));
            assert_eq!((saga.compensated_steps.len(), saga.current_step.as_deref()), (1, None));
            assert!(saga.completed_at.is_some() && saga.error_message.is_none());
        });
}

#[test]
fn what_is_required_fails_the_saga_with_nothing_to_compensate() {
    saga(definition(EXECUTION))
        .event("execution_requested", requested(301))
        .published(["saga_started", "saga_failed"])
        .state(SagaState::Failed)
        .check(|saga| assert_eq!(saga.error_message.as_deref(), Some("timeout exceeds 300 s")));
}

#[test]
fn a_failure_is_compensated_in_reverse_order_and_its_cause_is_kept() {
    started()
        .event("execution_failed", json!({"execution_id": "x-1", "reason": "out of memory"}))
        .published(UNDONE)
        .state(SagaState::Failed)
        .check(|saga| {
            assert_eq!(saga.error_message.as_deref(), Some("execution_failed: out of memory"));
            assert_eq!(saga.compensated_steps, ["delete_pod", "release_resources"]);
        });
}

#[test]
fn a_refused_command_fails_its_step_which_is_not_undone_itself() {
    saga(definition(EXECUTION))
        .refusing("create_pod_command", 1)
        .event("execution_requested", requested(30))
        .published([
            "saga_started",
            "allocate_resources_command",
            "saga_compensating",
            "release_resources_command",
            "saga_compensated",
            "saga_failed",
        ])
        .check(|saga| assert!(saga.error_message.as_deref().is_some_and(|cause| cause.contains("create_pod_command"))));
}

#[test]
fn a_step_past_its_limit_times_out_after_301_seconds_and_not_before() {
    let at_limit = started().after(Duration::from_millis(299_999)).published([]).state(SagaState::Running);
    at_limit.after(Duration::from_secs(2)).published(UNDONE).state(SagaState::Timeout).check(|saga| {
        assert!(saga.error_message.as_deref().is_some_and(|cause| cause.contains("300000 ms")));
    });
}

/// Three steps that await events, of which the second may be skipped, in at most one hour in total.
const ERRAND: &str = r#"{"start": {"on": ["begun"]}, "limit_ms": 3600000, "steps": [
    {"name": "first", "publish": {"type": "ask_first"}, "await": {"on": ["first_done"]},
     "compensation": {"name": "undo_first", "publish": {"type": "undo_first"}}},
    {"name": "second", "publish": {"type": "ask_second"}, "await": {"on": ["second_done"], "set": {"n": "$data.n"}},
     "limit_ms": 60000, "on_limit": "continue",
     "compensation": {"name": "undo_second", "publish": {"type": "undo_second"}}},
    {"name": "third", "publish": {"type": "ask_third"}, "await": {"on": ["third_done"]}}
]}"#;

#[test]
fn the_limit_of_a_saga_is_that_of_all_its_steps_together_and_what_was_done_is_undone() {
    saga(definition(ERRAND))
        .event("begun", json!({}))
        .published(["saga_started", "ask_first"])
        .after(Duration::from_millis(3_599_998))
        .event("first_done", json!({}))
        .published(["ask_second"])
        .after(Duration::from_millis(1))
        .published([])
        .state(SagaState::Running)
        // The limit of the second step would expire a minute later.
        .after(Duration::from_millis(1))
        .published([
            "saga_compensating",
            "undo_second",
            "saga_compensating",
            "undo_first",
            "saga_compensated",
            "saga_failed",
        ])
        .state(SagaState::Timeout)
        .check(|saga| {
            assert_eq!(saga.error_message.as_deref(), Some("the saga took longer than 3600000 ms"));
            assert_eq!(saga.completed_steps, ["first"]);
        })
        .event("second_done", json!({"n": 1}))
        .published([]);
}

#[test]
fn the_limit_of_a_saga_is_gone_once_it_is_over() {
    saga(definition(ERRAND))
        .event("begun", json!({}))
        .event("first_done", json!({}))
        .event("second_done", json!({"n": 1}))
        .event("third_done", json!({}))
        .published(["saga_started", "ask_first", "ask_second", "ask_third", "saga_completed"])
        .check(|saga| assert_eq!(saga.timer(), None))
        .after(Duration::from_secs(3_601))
        .published([])
        .state(SagaState::Completed);
}

#[test]
fn a_step_that_may_be_passed_over_is_done_at_its_limit_and_the_next_one_begins() {
    saga(definition(ERRAND))
        .event("begun", json!({}))
        .event("first_done", json!({}))
        .published(["saga_started", "ask_first", "ask_second"])
        .after(Duration::from_millis(59_999))
        .published([])
        .check(|saga| assert_eq!(saga.current_step.as_deref(), Some("second")))
        .after(Duration::from_millis(1))
        .published(["ask_third"])
        .state(SagaState::Running)
        .check(|saga| {
            assert_eq!(saga.completed_steps, ["first", "second"]);
            assert_eq!((saga.current_step.as_deref(), saga.error_message.as_deref()), (Some("third"), None));
        })
        // The awaited event arrives too late, and the limit is not that of the next step.
        .event("second_done", json!({"n": 1}))
        .after(Duration::from_secs(600))
        .published([])
        .check(|saga| assert!(saga.context_data.get("n").is_none(), "{:?}", saga.context_data))
        .event("third_done", json!({}))
        .published(["saga_completed"])
        .state(SagaState::Completed);
}

#[test]
fn a_step_that_was_passed_over_is_undone_with_the_others() {
    saga(definition(ERRAND))
        .event("begun", json!({}))
        .event("first_done", json!({}))
        .after(Duration::from_secs(60))
        .published(["saga_started", "ask_first", "ask_second", "ask_third"])
        .cancel("a user asked")
        .published([
            "saga_compensating",
            "undo_second",
            "saga_compensating",
            "undo_first",
            "saga_compensated",
            "saga_cancelled",
        ])
        .state(SagaState::Cancelled);
}

#[test]
fn a_cancel_compensates_the_step_that_is_under_way() {
    let cancelled = [&UNDONE[..5], &["saga_cancelled"]].concat();
    started()
        .cancel("a user asked")
        .published(cancelled.clone())
        .state(SagaState::Cancelled)
        .check(|saga| assert_eq!(saga.error_message.as_deref(), Some("a user asked")))
        .event("execution_completed", json!({"execution_id": "x-1"}))
        .published([]);
    started()
        .event("execution_cancelled", json!({"execution_id": "x-1"}))
        .published(cancelled)
        .state(SagaState::Cancelled);
}

#[test]
fn of_a_cancel_and_a_completion_the_first_wins() {
    started()
        .event("execution_completed", json!({"execution_id": "x-1"}))
        .published(["release_resources_command", "saga_completed"])
        .cancel("too late")
        .published([])
        .state(SagaState::Completed);
}

#[test]
fn duplicates_change_nothing_and_an_event_may_come_before_its_step() {
    let two = r#"{"start": {"on": ["begun"]}, "steps": [
        {"name": "one", "await": {"on": ["first"]}},
        {"name": "two", "await": {"on": ["second"], "set": {"n": "$data.n"}}}
    ]}"#;
    let id = Uuid::from_u128(77);
    saga(definition(two))
        .event("begun", json!({}))
        .event("begun", json!({}))
        .event_of(id, "second", json!({"n": 1}))
        .event_of(id, "second", json!({"n": 2}))
        .event("unknown", json!({}))
        .published(["saga_started"])
        .state(SagaState::Running)
        .event("first", json!({}))
        .published(["saga_completed"])
        .check(|saga| assert_eq!(saga.context_data.get_i64("n").ok(), Some(1)));
}

#[test]
fn of_events_that_come_early_each_step_that_awaits_their_type_gets_one() {
    let two = r#"{"start": {"on": ["begun"]}, "steps": [
        {"name": "one", "await": {"on": ["first"]}},
        {"name": "two", "await": {"on": ["second", "third"], "set": {"two": "$data.n"}}},
        {"name": "three", "await": {"on": ["second"], "set": {"three": "$data.n"}}},
        {"name": "four", "await": {"on": ["fourth"]}}
    ]}"#;
    let mut it = saga(definition(two)).event("begun", json!({}));
    for n in 0..150 {
        it = it.event("second", json!({ "n": n }));
    }
    it.check(|saga| assert_eq!(saga.annals.arrived.len(), 2, "no step could take a third one"))
        .event("fourth", json!({}))
        .event("first", json!({}))
        .published(["saga_started", "saga_completed"])
        .check(|saga| {
            let taken = ["two", "three"].map(|name| saga.context_data.get_i64(name).ok());
            assert_eq!(taken, [Some(0), Some(1)]);
        });
}

#[test]
fn more_early_events_than_a_saga_keeps_fail_it_with_the_reason() {
    let types: Vec<_> = (0..101).map(|n| format!("type_{n}")).collect();
    let json = json!({ "start": { "on": ["begun"] }, "steps": [
        {
            "name": "one", "publish": { "type": "do_one" }, "await": { "on": ["first"] },
            "compensation": { "name": "undo_one", "publish": { "type": "undo_one" } },
        },
        { "name": "two", "await": { "on": types } },
    ]});
    let mut it = saga(definition(&json.to_string())).event("begun", json!({}));
    for event_type in &types[..100] {
        it = it.event(event_type, json!({}));
    }
    it.published(["saga_started", "do_one"])
        .state(SagaState::Running)
        .event(&types[100], json!({}))
        .published(["saga_compensating", "undo_one", "saga_compensated", "saga_failed"])
        .state(SagaState::Failed)
        .check(|saga| {
            let reason = saga.error_message.as_deref().unwrap_or_default();
            assert!(reason.starts_with("type_100 came when 100 events were already kept"), "{reason}");
        });
}

#[test]
fn thirty_days_of_timers_fire_once_each_in_order() {
    let steps: Vec<_> = (0..30).map(|n| json!({"name": format!("day-{n}"), "delay_ms": 86_400_000_u64})).collect();
    let json = json!({"start": {"on": ["begun"]}, "steps": steps}).to_string();
    saga(definition(&json))
        .event("begun", json!({}))
        .after(Duration::from_secs(29 * 86_400))
        .check(|saga| assert_eq!(saga.completed_steps.len(), 29))
        .published(["saga_started"])
        .after(Duration::from_secs(86_400))
        .published(["saga_completed"])
        .check(|saga| assert_eq!(saga.annals.took_ms, Some(30 * 86_400_000)));
}

#[test]
fn a_failing_compensation_is_retried_then_parked_until_an_operator_retries_it() {
    let json = EXECUTION.replace(
        "\"always\": true,",
        "\"always\": true, \"retry\": {\"first_ms\": 1000, \"factor\": 2, \"max_ms\": 60000, \"jitter\": 0, \"attempts\": 3},",
    );
    let parked = saga(definition(&json))
        .refusing("release_resources_command", 3)
        .event("execution_requested", requested(30))
        .event("execution_failed", json!({"execution_id": "x-1"}))
        .after(Duration::from_secs(100))
        .state(SagaState::Compensating)
        .check(|saga| {
            assert!(saga.annals.parked.is_some() && saga.due().is_none(), "{:?}", saga.annals);
            assert_eq!((saga.retry_count, saga.compensated_steps.len()), (2, 1));
            assert_eq!(saga.error_message.as_deref(), Some("execution_failed came"), "the first cause is kept");
        });
    parked.retry("it is up again").state(SagaState::Failed).check(|saga| {
        assert_eq!(saga.compensated_steps, ["delete_pod", "release_resources"]);
        assert!(saga.annals.parked.is_none());
    });
}

#[test]
fn functions_of_a_program_are_attempted_again_by_policy() {
    let json = r#"{"start": {"on": ["begun"]}, "steps": [
        {"name": "charge", "action": "program", "retry": {"first_ms": 1000, "factor": 2, "max_ms": 60000, "jitter": 0, "attempts": 3},
         "compensation": {"name": "refund", "action": "program"}},
        {"name": "ship", "action": "program"}
    ]}"#;
    let definition = SagaDefinition::read_any("order", json.as_bytes()).expect("a definition");
    let charge = |_: &_, work: &super::SagaWork| match work.attempt {
        1 | 2 => Err("down".into()),
        _ => Ok(SagaActed::command(SagaCommand::new("charged", bson::doc! { "n": work.attempt }))),
    };
    saga(definition)
        .function("charge", charge)
        .function("ship", |_, _| Err(SagaFailure { reason: "no stock".to_owned(), never: true }))
        .function("refund", |saga, _| {
            assert_eq!(saga.error_message.as_deref(), Some("no stock"));
            Ok(SagaActed::command(SagaCommand::new("refunded", bson::doc! {}).to("payment", "p-1")))
        })
        .event("begun", json!({}))
        .published(["saga_started"])
        .after(Duration::from_secs(3))
        .published(["charged", "saga_compensating", "refunded", "saga_compensated", "saga_failed"])
        .state(SagaState::Failed);
}

#[test]
fn request_ids_follow_from_saga_step_and_attempt() {
    started().check(|saga| assert_eq!(saga.saga_id, super::saga_id("execution_saga", "x-1")));
    let mut machine = started();
    machine = machine.refusing("delete_pod_command", 1);
    machine = machine.cancel("stop").after(Duration::from_secs(5));
    let timeline = |saga: &super::SagaRecord| {
        let undone = saga.annals.timeline.iter().filter(|entry| entry.name == "delete_pod");
        undone.map(|entry| (entry.attempt, entry.state.clone())).collect::<Vec<_>>()
    };
    machine.check(|saga| {
        assert_eq!(timeline(saga), [(1, "failed".to_owned()), (2, "completed".to_owned())]);
    });
}

#[test]
fn an_event_without_a_correlation_fails_visibly() {
    saga(definition(EXECUTION))
        .event("execution_requested", json!({"script": "x"}))
        .published(["saga_started", "saga_failed"])
        .check(|saga| assert!(saga.error_message.as_deref().is_some_and(|why| why.contains("$data.execution_id"))));
}

#[test]
fn a_definition_is_refused_with_the_offending_line() {
    let of = |json: &str| {
        let refused = SagaDefinition::read("s", json.as_bytes()).expect_err(json);
        (refused.code, refused.path, refused.message)
    };
    let (code, path, message) = of(
        "{\"start\": {\"on\": [\"a\"]},\n\"steps\": [\n{\"name\": \"x\",\n \"publish\": {\"type\": \"t\", \"data\": {\n\"n\": \"$contxt.n\"}}}]}",
    );
    assert_eq!((code, &*path), (Code::InvalidSaga, "steps[0].publish.data.n"));
    assert!(message.contains("(line 5)") && message.contains("$contxt.n"), "{message}");
    for (json, path) in [
        (r#"{"start": {"on": []}, "steps": [{"name": "x"}]}"#, "start.on"),
        (r#"{"start": {"on": ["a"]}, "steps": []}"#, "steps"),
        (r#"{"start": {"on": ["a"]}, "steps": [{"name": "x"}, {"name": "x"}]}"#, "steps[1].name"),
        (r#"{"start": {"on": ["a"]}, "steps": [{"name": "x", "action": "program"}]}"#, "steps[0].action"),
        (r#"{"start": {"on": ["a"]}, "steps": [{"name": "x", "await": {"on": []}}]}"#, "steps[0].await.on"),
        (r#"{"start": {"on": ["a"]}, "steps": [{"name": "x", "compensation": {}}]}"#, "steps[0].compensation"),
        (r#"{"start": {"on": ["a"]}, "steps": [{"name": "x", "limit_ms": 0}]}"#, "steps[0].limit_ms"),
        (r#"{"start": {"on": ["a"]}, "steps": [{"name": "x", "delay_ms": 1, "limit_ms": 1}]}"#, "steps[0].delay_ms"),
        (r#"{"start": {"on": ["a"]}, "correlate": "$saga.id", "steps": [{"name": "x"}]}"#, "correlate"),
        (r#"{"start": {"on": ["a"]}, "version": 0, "steps": [{"name": "x"}]}"#, "version"),
        (r#"{"start": {"on": ["a"]}, "steps": [{"name": "x", "retry": {"max_ms": 0}}]}"#, "steps[0].retry.max_ms"),
    ] {
        let (code, found, message) = of(json);
        assert_eq!((code, &*found), (Code::InvalidSaga, path), "{message}");
        assert!(message.contains("(line 1)"), "{message}");
    }
}

#[test]
fn a_definition_is_read_as_it_is_written() {
    let read = definition(EXECUTION);
    let again = definition(&read.write());
    assert_eq!(read, again);
    assert!(!read.differs(&again.clone().with_version(3)) && read.program_step().is_none());
    let types = ["execution_cancelled", "execution_completed", "execution_failed", "execution_requested"];
    assert_eq!(read.event_types(), types);
}
