//! Time limits, delays and restarts.

use annals_core::sagas::SagaState;
use serde_json::json;

use crate::Subject;
use crate::sagas::opened::{Running, completed, undone};

/// The limit is 300 s.
pub async fn a_step_past_its_limit_is_compensated_after_301_seconds(subject: &dyn Subject) {
    let it = Running::executions(subject).await;
    it.request("x-1").await;
    it.awaiting("x-1", "create_pod").await;
    it.it.advance(299_000);
    it.request("x-2").await;
    it.awaiting("x-2", "create_pod").await;
    assert_eq!(it.awaiting("x-1", "create_pod").await.state, SagaState::Running);
    it.it.advance(2_000);
    let status = it.ended("x-1", SagaState::Timeout).await;
    assert_eq!(it.published("x-1").await, undone("saga_failed"));
    assert!(status.cause.expect("a cause").contains("300000 ms"));
    assert_eq!(it.awaiting("x-2", "create_pod").await.state, SagaState::Running);
}

const DELAYS: &str = r#"{"start": {"on": ["begun"]}, "steps": [
    {"name": "wait", "delay_ms": 86400000},
    {"name": "tell", "publish": {"type": "told", "data": {"n": 1}}},
    {"name": "wait_more", "delay_ms": 86400000},
    {"name": "tell_again", "publish": {"type": "told", "data": {"n": 2}}}
]}"#;

/// This holds however long the process was down.
pub async fn a_timer_fires_once_after_the_process_was_down(subject: &dyn Subject) {
    let it = Running::of(subject).await;
    it.define("reminder", DELAYS).await;
    for id in ["a", "b", "c"] {
        it.commit("begun", id, json!({})).await;
        it.until_of("reminder", id, |status| status.due.is_some()).await;
        it.logged(id, "saga_started").await;
    }
    let clock = it.it.clock.clone();
    let it = {
        let crate::handlers::opened::Opened { store, host, .. } = it.it;
        host.drain().await;
        drop(host);
        clock.advance_millis(40 * 86_400_000);
        Running::on(store, clock)
    };
    for id in ["a", "b", "c"] {
        it.until_of("reminder", id, |status| status.completed_steps.len() == 2 && status.due.is_some()).await;
    }
    it.it.advance(86_400_000);
    for id in ["a", "b", "c"] {
        it.until_of("reminder", id, |status| status.state == SagaState::Completed).await;
        it.logged(id, "saga_completed").await;
        assert_eq!(it.published(id).await, ["saga_started", "told", "told", "saga_completed"]);
    }
}

/// The clock jumps ahead or back.
pub async fn a_clock_that_jumps_fires_no_timer_early_or_twice(subject: &dyn Subject) {
    let it = Running::of(subject).await;
    it.define("reminder", DELAYS).await;
    it.commit("begun", "a", json!({})).await;
    let begun = it.until_of("reminder", "a", |status| status.due.is_some()).await;
    it.it.advance(-3_600_000);
    it.it.advance(86_400_000);
    it.commit("begun", "b", json!({})).await;
    it.until_of("reminder", "b", |status| status.due.is_some()).await;
    let still = it.until_of("reminder", "a", |_| true).await;
    assert_eq!((still.due, still.completed_steps.len()), (begun.due, 0), "an hour is missing");
    it.it.advance(3_600_000);
    it.until_of("reminder", "a", |status| status.completed_steps.len() == 2).await;
    it.it.advance(400 * 86_400_000);
    for id in ["a", "b"] {
        it.until_of("reminder", id, |status| status.completed_steps.len() >= 2).await;
    }
    it.it.advance(86_400_000);
    for id in ["a", "b"] {
        it.until_of("reminder", id, |status| status.state == SagaState::Completed).await;
        it.logged(id, "saga_completed").await;
        assert_eq!(it.published(id).await, ["saga_started", "told", "told", "saga_completed"]);
    }
}

/// The restart comes after each event.
pub async fn a_restart_resumes_at_the_step_that_was_under_way(subject: &dyn Subject) {
    let mut it = Running::executions(subject).await;
    for id in ["a", "b", "c"] {
        it.request(id).await;
        it = it.restarted().await;
    }
    for id in ["a", "b", "c"] {
        it.awaiting(id, "create_pod").await;
        it.commit("execution_completed", id, json!({})).await;
        it = it.restarted().await;
    }
    for id in ["a", "b", "c"] {
        it.ended(id, SagaState::Completed).await;
        assert_eq!(it.published(id).await, completed());
    }
}
