//! Definitions and their versions.

use annals_core::sagas::{PutSaga, SagaDefinition, SagaError, SagaState, Sagas};
use serde_json::json;

use crate::Subject;
use crate::sagas::opened::{DEFINITION, EXECUTION, Running};

/// Each saga keeps its own version.
pub async fn versions_live_side_by_side(subject: &dyn Subject) {
    let it = Running::executions(subject).await;
    it.request("old").await;
    it.awaiting("old", "create_pod").await;
    assert_eq!(it.define(EXECUTION, DEFINITION).await, PutSaga::Unchanged);
    let changed = DEFINITION.replace("execution_completed", "execution_done");
    assert_eq!(it.define(EXECUTION, &changed).await, PutSaga::Changed);
    let status = it.sagas.definition(EXECUTION).await.expect("defined");
    assert_eq!((status.version, &status.versions[..], status.active), (2, &[1, 2][..], 1));
    it.request("new").await;
    it.awaiting("new", "create_pod").await;
    it.commit("execution_done", "old", json!({})).await;
    it.commit("execution_completed", "new", json!({})).await;
    it.commit("execution_completed", "old", json!({})).await;
    it.commit("execution_done", "new", json!({})).await;
    let old = it.ended("old", SagaState::Completed).await;
    let new = it.ended("new", SagaState::Completed).await;
    assert_eq!((old.version, new.version), (1, 2));
    let older = SagaDefinition::read(EXECUTION, changed.replace("300000", "1").as_bytes()).expect("a definition");
    let refused = it.sagas.define(older.with_version(2)).await;
    assert!(matches!(&refused, Err(SagaError::NotAllowed { state, .. }) if state.contains("version 2")), "{refused:?}");
}

/// It is not deleted earlier.
pub async fn a_definition_is_deleted_once_its_sagas_are_over(subject: &dyn Subject) {
    let it = Running::executions(subject).await;
    it.request("x-1").await;
    it.awaiting("x-1", "create_pod").await;
    let refused = it.sagas.delete_definition(EXECUTION, "unused".into()).await;
    assert!(matches!(refused, Err(SagaError::NotAllowed { .. })), "{refused:?}");
    it.commit("execution_completed", "x-1", json!({})).await;
    it.ended("x-1", SagaState::Completed).await;
    it.sagas.delete_definition(EXECUTION, "unused".into()).await.expect("deleted");
    assert!(matches!(it.sagas.definition(EXECUTION).await, Err(SagaError::UnknownDefinition(_))));
    assert!(it.sagas.definitions(None, 10).await.expect("listed").items.is_empty());
    assert_eq!(it.define(EXECUTION, DEFINITION).await, PutSaga::Created);
    it.request("x-2").await;
    it.awaiting("x-2", "create_pod").await;
    assert_eq!(it.sagas.definitions(None, 10).await.expect("listed").items.len(), 1);
}

/// It begins at the first event, or after the last one.
pub async fn a_definition_begins_where_it_says(subject: &dyn Subject) {
    let it = Running::of(subject).await;
    it.request("before").await;
    let latest = DEFINITION.replace("[\"execution_requested\"]", "[\"execution_requested\"], \"from\": \"latest\"");
    it.define(EXECUTION, DEFINITION).await;
    it.define("latest", &latest).await;
    it.awaiting("before", "create_pod").await;
    it.request("after").await;
    it.until_of("latest", "after", |_| true).await;
    assert_eq!(it.sagas.statistics(Some("latest")).await.expect("counted").total, 1);
}
