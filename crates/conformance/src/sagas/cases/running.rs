//! Sagas from their first event to their end.

use annals_core::bson::Document;
use annals_core::sagas::{SAGAS, SagaState, Sagas, saga_id};
use annals_core::{DEFAULT_TENANT, RecordQuery};
use serde_json::json;

use crate::Subject;
use crate::sagas::opened::{BEGUN, EXECUTION, Running, completed, undone};

/// Each command has its correlation and its cause.
pub async fn commands_follow_the_event_that_started_the_saga_in_order(subject: &dyn Subject) {
    let it = Running::executions(subject).await;
    it.request("x-1").await;
    let status = it.awaiting("x-1", "create_pod").await;
    assert_eq!(status.completed_steps, ["validate_execution", "allocate_resources"]);
    let events = it.events("x-1").await;
    let types: Vec<_> = events.iter().map(|event| &*event.event_type).collect();
    assert_eq!(types, BEGUN);
    let id = saga_id(EXECUTION, "x-1");
    assert!(events.iter().all(|event| event.commit.causation_id.as_deref() == Some(&*id)));
    let requests: Vec<_> = events.iter().filter_map(|event| event.commit.request_id.as_deref()).collect();
    let due = ["once/saga_started", "allocate_resources/action/1/0", "create_pod/action/1/0"];
    assert_eq!(requests, due.map(|end| format!("saga/{id}/{end}")));
    assert_eq!(&*events[2].commit.aggregate.name, "pod");
}

/// This also holds if the event comes again.
pub async fn an_event_starts_one_saga_for_each_correlation(subject: &dyn Subject) {
    let it = Running::executions(subject).await;
    for id in ["a", "b", "a", "c", "b"] {
        it.request(id).await;
    }
    for id in ["a", "b", "c"] {
        it.awaiting(id, "create_pod").await;
        it.commit("execution_completed", id, json!({})).await;
    }
    for id in ["a", "b", "c"] {
        it.ended(id, SagaState::Completed).await;
        assert_eq!(it.published(id).await, completed());
    }
    it.request("a").await;
    it.commit("execution_requested", "d", json!({"execution_id": "d", "timeout_seconds": 301})).await;
    it.ended("d", SagaState::Failed).await;
    assert_eq!(it.published("a").await, completed(), "it is over");
    assert_eq!(it.sagas.statistics(None).await.expect("counted").total, 4);
}

/// A saga that succeeds also releases what it holds.
pub async fn a_completed_saga_releases_what_it_holds(subject: &dyn Subject) {
    let it = Running::executions(subject).await;
    it.request("x-1").await;
    it.awaiting("x-1", "create_pod").await;
    it.commit("execution_completed", "x-1", json!({"exit_code": 7})).await;
    let status = it.ended("x-1", SagaState::Completed).await;
    assert_eq!(it.published("x-1").await, completed());
    assert_eq!(status.completed_steps.len(), 3);
    assert_eq!((&status.context["exit_code"], status.compensated_steps.len()), (&json!(7), 1));
}

/// The six events report it.
pub async fn a_failure_compensates_in_reverse_order_and_keeps_its_cause(subject: &dyn Subject) {
    let it = Running::executions(subject).await;
    it.request("x-1").await;
    it.awaiting("x-1", "create_pod").await;
    it.commit("execution_failed", "x-1", json!({"reason": "out of memory"})).await;
    let status = it.ended("x-1", SagaState::Failed).await;
    assert_eq!(it.published("x-1").await, undone("saga_failed"));
    assert_eq!(status.cause.as_deref(), Some("execution_failed: out of memory"));
    assert_eq!(status.compensated_steps, ["delete_pod", "release_resources"]);
    let failed = it.events("x-1").await.pop().expect("the last event");
    assert_eq!(failed.data.as_raw().get_str("error").ok(), Some("execution_failed: out of memory"));
    assert_eq!(failed.data.as_raw().get_str("failed_step").ok(), Some("create_pod"));
}

/// The store refuses the command.
pub async fn a_refused_command_fails_its_step(subject: &dyn Subject) {
    let it = Running::executions(subject).await;
    it.request_with("x-1", json!({"pod": "p".repeat(300)})).await;
    let status = it.ended("x-1", SagaState::Failed).await;
    assert!(status.cause.expect("a cause").contains("create_pod_command was refused"));
    assert_eq!(status.compensated_steps, ["release_resources"]);
}

/// Nothing else changes.
pub async fn events_may_come_before_their_step_and_twice(subject: &dyn Subject) {
    const TWO: &str = r#"{"start": {"on": ["begun"]}, "steps": [
        {"name": "one", "await": {"on": ["first"]}},
        {"name": "two", "await": {"on": ["second"], "set": {"n": "$data.n"}}},
        {"name": "three", "await": {"on": ["third"]}}
    ]}"#;
    let it = Running::of(subject).await;
    it.define("order", TWO).await;
    it.commit("first", "o-1", json!({})).await;
    for (event_type, n) in [("begun", 0), ("second", 1), ("begun", 2), ("first", 3), ("first", 4), ("third", 5)] {
        it.commit(event_type, "o-1", json!({ "n": n })).await;
    }
    let status = it.until_of("order", "o-1", |status| status.state.is_over()).await;
    assert_eq!((status.state, &status.context["n"]), (SagaState::Completed, &json!(1)));
}

/// The layout is that of Integr8sCode.
pub async fn the_record_has_the_fields_and_indexes_of_its_layout(subject: &dyn Subject) {
    let it = Running::executions(subject).await;
    it.request("x-1").await;
    it.awaiting("x-1", "create_pod").await;
    let records = it.it.store.records(DEFAULT_TENANT).expect("declared");
    let page = records.find(RecordQuery::new(SAGAS)).await.expect("found");
    let saga = Document::try_from(&*page.records[0].document).expect("a document");
    for field in [
        "saga_id",
        "saga_name",
        "execution_id",
        "state",
        "current_step",
        "completed_steps",
        "compensated_steps",
        "context_data",
        "error_message",
        "created_at",
        "updated_at",
        "completed_at",
        "retry_count",
        "revision_id",
    ] {
        assert!(saga.contains_key(field), "{field} of {saga}");
    }
    assert_eq!((saga.get_str("state").ok(), saga.get_str("current_step").ok()), (Some("running"), Some("create_pod")));
    let collections = records.collections().await.expect("listed");
    let sagas = collections.into_iter().find(|collection| collection.name == SAGAS).expect("declared");
    for (index, fields) in [
        ("saga_id_1", &["saga_id"][..]),
        ("saga_name_1", &["saga_name"][..]),
        ("execution_id_1", &["execution_id"][..]),
        ("created_at_1", &["created_at"][..]),
        ("idx_saga_state", &["state"][..]),
        ("idx_saga_state_created", &["state", "created_at"][..]),
        ("idx_saga_execution_name_unique", &["execution_id", "saga_name"][..]),
    ] {
        let found = sagas.indexes.iter().find(|known| known.name() == index).expect(index);
        let paths: Vec<_> = found.fields().into_iter().map(|(path, _)| path).collect();
        assert_eq!(paths, fields, "{index}");
        assert_eq!(found.is_unique(), ["saga_id_1", "idx_saga_execution_name_unique"].contains(&index), "{index}");
    }
}

/// This holds whichever of them runs the sagas.
pub async fn two_hosts_on_one_store_send_each_command_once(subject: &dyn Subject) {
    let one = Running::executions(subject).await;
    let other = Running::on(subject.open_beside(&one.it.store).await, one.it.clock.clone());
    for id in ["a", "b", "c", "d"] {
        one.request(id).await;
        one.awaiting(id, "create_pod").await;
        other.commit("execution_completed", id, json!({})).await;
    }
    for id in ["a", "b", "c", "d"] {
        other.ended(id, SagaState::Completed).await;
        assert_eq!(other.published(id).await, completed());
    }
}
