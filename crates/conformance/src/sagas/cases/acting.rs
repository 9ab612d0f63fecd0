//! Acts of operators, and what operators see.

use annals_core::bson::{Bson, Uuid};
use annals_core::handlers::Reason;
use annals_core::sagas::{SAGAS, SagaError, SagaQuery, SagaState, Sagas, saga_id};
use annals_core::{Expected, RecordChange};
use serde_json::json;

use crate::Subject;
use crate::sagas::opened::{BEGUN, DEFINITION, EXECUTION, Running, completed, undone};

fn why() -> Reason {
    Reason { reason: "a user asked".to_owned(), by: Some("eva".to_owned()) }
}

/// A second cancellation is refused as well.
pub async fn a_cancel_compensates_and_is_refused_once_it_is_over(subject: &dyn Subject) {
    let it = Running::executions(subject).await;
    it.request("x-1").await;
    it.awaiting("x-1", "create_pod").await;
    let id = saga_id(EXECUTION, "x-1");
    let status = it.sagas.cancel(&id, why()).await.expect("cancelled");
    assert!(matches!(status.state, SagaState::Compensating | SagaState::Cancelled), "{status:?}");
    let status = it.ended("x-1", SagaState::Cancelled).await;
    assert_eq!(it.published("x-1").await, undone("saga_cancelled"));
    assert_eq!(status.cause.as_deref(), Some("a user asked"));
    let last = it.events("x-1").await.pop().expect("the last event");
    assert_eq!(last.data.as_raw().get_str("cancelled_by").ok(), Some("eva"));
    let refused = it.sagas.cancel(&id, why()).await;
    assert!(matches!(&refused, Err(SagaError::NotAllowed { state, .. }) if state.contains("cancelled")), "{refused:?}");
}

/// The compensation is the same.
pub async fn an_event_cancels(subject: &dyn Subject) {
    let it = Running::executions(subject).await;
    it.request("x-1").await;
    it.awaiting("x-1", "create_pod").await;
    it.commit("execution_cancelled", "x-1", json!({})).await;
    it.ended("x-1", SagaState::Cancelled).await;
    assert_eq!(it.published("x-1").await, undone("saga_cancelled"));
}

/// The published commands follow from the winner.
pub async fn of_a_cancel_and_a_completion_one_wins(subject: &dyn Subject) {
    let it = Running::executions(subject).await;
    for n in 0..8 {
        let name = format!("x-{n}");
        it.request(&name).await;
        it.awaiting(&name, "create_pod").await;
        let id = saga_id(EXECUTION, &name);
        let (cancelled, ()) =
            tokio::join!(it.sagas.cancel(&id, why()), it.commit("execution_completed", &name, json!({})));
        let status = it.until(&name, |status| status.state.is_over()).await;
        match status.state {
            SagaState::Cancelled => {
                cancelled.expect("it won");
                it.ended(&name, SagaState::Cancelled).await;
                assert_eq!(it.published(&name).await, undone("saga_cancelled"));
            }
            _ => {
                it.ended(&name, SagaState::Completed).await;
                assert_eq!(it.published(&name).await, completed());
            }
        }
    }
}

/// Returns a change by another writer of a saga, which also changes its revision.
fn changing(id: &str, revision: u8, field: &str, value: impl Into<Bson>) -> RecordChange {
    let fields = [("revision_id", Bson::from(Uuid::from_bytes([revision; 16]))), (field, value.into())];
    RecordChange::set_if(SAGAS, id, fields, Expected::Present)
}

/// The change comes between the reading of the saga and the write. The revision refuses the cancellation, which rereads the saga and
/// decides again.
pub async fn statement_89_a_cancel_sees_what_another_process_wrote_meanwhile(subject: &dyn Subject) {
    let (it, rival) = Running::contested(subject).await;
    for id in ["x-1", "x-2"] {
        it.request(id).await;
        it.awaiting(id, "create_pod").await;
    }
    // The other process has ended this one.
    let id = saga_id(EXECUTION, "x-2");
    rival.will(changing(&id, 1, "state", "completed"));
    let refused = it.sagas.cancel(&id, why()).await;
    assert!(rival.is_done());
    assert!(matches!(&refused, Err(SagaError::NotAllowed { state, .. }) if state.contains("completed")), "{refused:?}");
    assert_eq!(it.published("x-2").await, BEGUN);
    // This saga is still running: the cancellation is decided again from what the other process wrote.
    let id = saga_id(EXECUTION, "x-1");
    rival.will(changing(&id, 1, "context_data.noted", 7_i64));
    it.sagas.cancel(&id, why()).await.expect("cancelled");
    assert!(rival.is_done());
    let status = it.ended("x-1", SagaState::Cancelled).await;
    assert_eq!(status.context["noted"], 7, "what the other process wrote is kept");
    assert_eq!(it.published("x-1").await, undone("saga_cancelled"));
}

/// This applies when it stores an event, and when it records that a command was sent. The command is still sent once.
pub async fn statement_89_the_owner_of_a_saga_sees_what_another_process_wrote_meanwhile(subject: &dyn Subject) {
    let (it, rival) = Running::contested(subject).await;
    it.request("x-1").await;
    it.awaiting("x-1", "create_pod").await;
    let id = saga_id(EXECUTION, "x-1");
    // Before the event is stored; before it is stored again, without an actual change; and before the sent command is recorded.
    rival.will(changing(&id, 1, "context_data.first", 1_i64));
    rival.will(RecordChange::set_if(SAGAS, id.as_str(), [("saga_name", Bson::from(EXECUTION))], Expected::Present));
    rival.will(changing(&id, 2, "context_data.second", 2_i64));
    it.commit("execution_completed", "x-1", json!({"exit_code": 0})).await;
    let status = it.ended("x-1", SagaState::Completed).await;
    assert!(rival.is_done());
    let context = ["first", "second", "exit_code"].map(|field| status.context[field].as_i64());
    assert_eq!(context, [Some(1), Some(2), Some(0)]);
    assert_eq!(it.published("x-1").await, completed());
}

/// The health shows it, and a further attempt continues.
pub async fn a_parked_compensation_waits_visibly_for_an_operator(subject: &dyn Subject) {
    let it = Running::executions(subject).await;
    // The compensation commits to an aggregate whose id the store refuses.
    it.request_with("x-1", json!({"pool": "p".repeat(300)})).await;
    it.awaiting("x-1", "create_pod").await;
    it.commit("execution_failed", "x-1", json!({})).await;
    it.until("x-1", |status| status.compensated_steps.len() == 1 && status.due.is_some()).await;
    it.it.advance(1_500);
    let status = it.until("x-1", |status| status.parked.is_some()).await;
    assert_eq!((status.state, status.retry_count), (SagaState::Compensating, 1));
    assert_eq!(status.cause.as_deref(), Some("execution_failed came"));
    let listed = it.sagas.list(SagaQuery { parked: true, limit: 10, ..SagaQuery::default() }).await.expect("listed");
    assert_eq!(listed.items.len(), 1);
    assert_eq!(it.sagas.statistics(None).await.expect("counted").parked, 1);
    let health = it.it.host.health().await.expect("readable");
    let of_sagas = health.iter().find(|health| health.kind == "saga").expect("one");
    assert!(of_sagas.degraded.as_deref().is_some_and(|why| why.contains("needs an operator")), "{of_sagas:?}");
    let id = saga_id(EXECUTION, "x-1");
    let again = it.sagas.retry(&id, why()).await.expect("retried");
    assert!(again.retry_count >= 2, "{again:?}");
    it.until("x-1", |status| status.parked.is_none() && status.due.is_some()).await;
}

/// The list is read page by page.
pub async fn sagas_are_listed_filtered_and_counted(subject: &dyn Subject) {
    let it = Running::executions(subject).await;
    for n in 0..5 {
        it.request(&format!("x-{n}")).await;
        it.awaiting(&format!("x-{n}"), "create_pod").await;
        it.it.advance(1_000);
    }
    for id in ["x-0", "x-1"] {
        it.commit("execution_completed", id, json!({})).await;
        it.ended(id, SagaState::Completed).await;
    }
    let mut query = SagaQuery { limit: 2, ..SagaQuery::default() };
    let mut found = Vec::new();
    loop {
        let page = it.sagas.list(query.clone()).await.expect("listed");
        found.extend(page.items.into_iter().map(|saga| saga.execution_id));
        let Some(cursor) = page.cursor else { break };
        query.cursor = Some(cursor);
    }
    assert_eq!(found, ["x-4", "x-3", "x-2", "x-1", "x-0"]);
    let count =
        async |query: SagaQuery| it.sagas.list(SagaQuery { limit: 100, ..query }).await.expect("listed").items.len();
    assert_eq!(count(SagaQuery { state: Some(SagaState::Running), ..SagaQuery::default() }).await, 3);
    assert_eq!(count(SagaQuery { execution_id: Some("x-1".to_owned()), ..SagaQuery::default() }).await, 1);
    assert_eq!(count(SagaQuery { name: Some("other".to_owned()), ..SagaQuery::default() }).await, 0);
    let statistics = it.sagas.statistics(Some(EXECUTION)).await.expect("counted");
    assert_eq!((statistics.total, statistics.by_state["running"], statistics.by_state["completed"]), (5, 3, 2));
    assert_eq!(statistics.average_duration_seconds, Some(4.5));
}

/// This holds for sagas and definitions.
pub async fn what_is_unknown_is_refused_by_name(subject: &dyn Subject) {
    let it = Running::of(subject).await;
    assert_eq!(it.sagas.get("x").await, Err(SagaError::Unknown("x".into())));
    assert_eq!(it.sagas.definition("x").await, Err(SagaError::UnknownDefinition("x".into())));
    it.define(EXECUTION, DEFINITION).await;
    assert_eq!(it.sagas.cancel("x", why()).await, Err(SagaError::Unknown("x".into())));
    assert_eq!(it.sagas.delete_definition("x", why()).await, Err(SagaError::UnknownDefinition("x".into())));
    assert!(it.sagas.list(SagaQuery { limit: 10, ..SagaQuery::default() }).await.expect("listed").items.is_empty());
}
