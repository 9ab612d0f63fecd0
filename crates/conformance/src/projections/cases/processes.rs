//! Several processes on one store.

use std::time::Duration;

use annals_core::Clock;
use annals_core::bson::doc;
use serde_json::json;

use crate::projections::opened::Projected;
use crate::{ManualClock, Subject};

const COUNTS: &str = r#"{"on": {"placed": {"increment": {"n": 1}}}}"#;

/// Lets time pass while `does` runs.
async fn as_time_passes<T>(it: &Projected, does: impl Future<Output = T>) -> T {
    tokio::select! {
        done = does => done,
        never = it.it.let_time_pass_by_writes() => match never {},
    }
}

/// The other process takes over once the lease has ended.
pub async fn one_process_at_a_time_folds_and_another_takes_over_when_it_dies(subject: &dyn Subject) {
    let one = Projected::of(subject).await;
    one.put("counts", COUNTS).await;
    one.commit("a", "placed", json!({})).await;
    let owner = one.settled("counts").await.owner.expect("owned");
    let other = Projected::on(subject.open().await, one.it.clock.clone());
    other.until("counts", |status| status.owner.as_ref() == Some(&owner)).await;
    // It dies: nothing is renewed and nothing is released.
    let crate::handlers::opened::Opened { host, store, .. } = one.it;
    std::mem::forget(host);
    store.close().await;
    other.commit("a", "placed", json!({})).await;
    as_time_passes(&other, other.settled("counts")).await;
    assert_eq!(other.record("counts", "a").await, Some(doc! { "n": 2_i64, "_id": "a" }));
    assert_ne!(other.status("counts").await.owner, Some(owner));
}

/// The time that the store takes comes in addition.
pub async fn a_projection_of_a_process_that_dies_is_taken_over_in_five_seconds(subject: &dyn Subject) {
    let one = Projected::of(subject).await;
    one.put("counts", COUNTS).await;
    one.commit("a", "placed", json!({})).await;
    let owner = one.settled("counts").await.owner.expect("owned");
    let other = Projected::on(subject.open().await, one.it.clock.clone());
    other.until("counts", |status| status.owner.as_ref() == Some(&owner)).await;
    // It dies: nothing is renewed and nothing is released.
    let crate::handlers::opened::Opened { host, store, .. } = one.it;
    std::mem::forget(host);
    store.close().await;
    other.commit("a", "placed", json!({})).await;
    let died = other.it.clock.now();
    let folded = other.until("counts", |status| status.position == 2);
    as_time_passes(&other, folded).await;
    let passed = other.it.clock.now().since(died);
    assert!(passed < Duration::from_secs(6), "it took {passed:?}");
    assert_eq!(other.record("counts", "a").await, Some(doc! { "n": 2_i64, "_id": "a" }));
}

/// It still folds what it reads.
pub async fn a_process_that_lost_its_lease_writes_no_records(subject: &dyn Subject) {
    let one = Projected::of(subject).await;
    one.put("counts", COUNTS).await;
    one.settled("counts").await;
    // Time passes only for the other process, so the lease ends there and not here.
    let ahead = std::sync::Arc::new(ManualClock::at(one.it.now_plus(60_000)));
    let other = Projected::on(subject.open().await, ahead);
    let first = one.status("counts").await.owner;
    let taken = other.until("counts", |status| status.owner.is_some() && status.owner != first);
    let taken = as_time_passes(&other, taken).await;
    for n in 1..=10_i64 {
        one.commit("a", "placed", json!({})).await;
        other.until("counts", |status| status.position == n.cast_unsigned()).await;
        assert_eq!(other.record("counts", "a").await, Some(doc! { "n": n, "_id": "a" }));
    }
    assert_eq!(other.status("counts").await.owner, taken.owner);
}

/// The process that owns the live build follows it.
pub async fn a_definition_that_another_process_changes_is_followed(subject: &dyn Subject) {
    let one = Projected::of(subject).await;
    let other = Projected::on(subject.open().await, one.it.clock.clone());
    one.put("counts", COUNTS).await;
    one.commit("a", "placed", json!({})).await;
    as_time_passes(&one, one.settled("counts")).await;
    other.put("counts", &COUNTS.replace("\"n\"", "\"m\"")).await;
    let built = one.until("counts", |status| status.build == 2 && status.building.is_none());
    as_time_passes(&one, built).await;
    assert_eq!(one.record("counts", "a").await, Some(doc! { "m": 1_i64, "_id": "a" }));
    one.commit("a", "placed", json!({})).await;
    as_time_passes(&one, one.settled("counts")).await;
    assert_eq!(other.record("counts", "a").await, Some(doc! { "m": 2_i64, "_id": "a" }));
}

/// The wait finds what the other process stored.
pub async fn a_commit_waits_for_the_projection_of_another_process(subject: &dyn Subject) {
    let one = Projected::of(subject).await;
    one.put("counts", COUNTS).await;
    one.settled("counts").await;
    let other = Projected::on(subject.open().await, one.it.clock.clone());
    let waiting = other.it.commit_until("projected:counts", "a", &["placed"]);
    let outcome = as_time_passes(&one, waiting).await;
    assert_eq!(outcome.reached().as_str(), "projected:counts");
    assert_eq!(other.record("counts", "a").await, Some(doc! { "n": 1_i64, "_id": "a" }));
}
