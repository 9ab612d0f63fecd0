//! Several processes on one store.

use annals_core::sagas::{SagaState, Sagas, saga_id};
use serde_json::json;

use crate::Subject;
use crate::sagas::opened::{EXECUTION, Running, completed};

/// Lets time pass while `does` runs.
async fn as_time_passes<T>(it: &Running, does: impl Future<Output = T>) -> T {
    tokio::select! {
        done = does => done,
        never = it.it.let_time_pass_by_writes() => match never {},
    }
}

/// The other process takes over once the lease has ended.
pub async fn another_process_takes_over_when_one_dies_and_sends_nothing_twice(subject: &dyn Subject) {
    let one = Running::executions(subject).await;
    one.request("a").await;
    one.awaiting("a", "create_pod").await;
    let other = Running::on(subject.open().await, one.it.clock.clone());
    one.request("b").await;
    // It dies: nothing is renewed and nothing is released.
    let crate::handlers::opened::Opened { host, store, .. } = one.it;
    std::mem::forget(host);
    store.close().await;
    other.commit("execution_completed", "a", json!({})).await;
    let both = async {
        other.awaiting("b", "create_pod").await;
        other.commit("execution_completed", "b", json!({})).await;
        for id in ["a", "b"] {
            other.ended(id, SagaState::Completed).await;
            assert_eq!(other.published(id).await, completed());
        }
    };
    as_time_passes(&other, both).await;
}

/// The owner follows it.
pub async fn an_act_at_another_process_reaches_the_owner(subject: &dyn Subject) {
    let one = Running::executions(subject).await;
    one.request("a").await;
    one.awaiting("a", "create_pod").await;
    let other = Running::on(subject.open().await, one.it.clock.clone());
    let id = saga_id(EXECUTION, "a");
    let cancelled = other.sagas.cancel(&id, "a test".into());
    as_time_passes(&other, cancelled).await.expect("cancelled");
    as_time_passes(&other, other.ended("a", SagaState::Cancelled)).await;
}
