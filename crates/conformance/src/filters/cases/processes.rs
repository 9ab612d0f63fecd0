//! Several processes on one store.

use std::time::Duration;

use annals_core::Clock;
use annals_core::filters::FilterDefinition;

use crate::Subject;
use crate::filters::words::Filtered;
use crate::handlers::opened::Opened;

fn placed() -> FilterDefinition {
    FilterDefinition::new("orders").types(["placed"])
}

/// The other process takes over once the lease has ended.
pub async fn one_process_at_a_time_evaluates_and_another_takes_over_when_it_dies(subject: &dyn Subject) {
    let one = Filtered::of(subject).await;
    one.define(placed()).await;
    one.it.commit("placed", &["a"]).await;
    one.holds("orders", 1, &[(0, None)]).await;
    let other = Filtered::on(Opened::on(subject.open().await, one.it.clock.clone()));
    other.it.host.start_defined();
    let owner = other.status("orders").await.owner;
    assert_eq!(owner, one.status("orders").await.owner, "the first one evaluates");
    // It dies: nothing is renewed and nothing is released.
    let Filtered { it: Opened { host, store, .. }, .. } = one;
    std::mem::forget(host);
    store.close().await;
    other.it.commit("placed", &["b"]).await;
    other.holds("orders", 2, &[(0, None), (1, None)]).await;
    assert_ne!(other.status("orders").await.owner, owner, "the other one has taken over");
}

/// The time that the store takes comes in addition.
pub async fn a_filter_of_a_process_that_dies_is_taken_over_in_five_seconds(subject: &dyn Subject) {
    let one = Filtered::of(subject).await;
    one.define(placed()).await;
    one.it.commit("placed", &["a"]).await;
    one.holds("orders", 1, &[(0, None)]).await;
    let other = Filtered::on(Opened::on(subject.open().await, one.it.clock.clone()));
    other.it.host.start_defined();
    assert_eq!(other.status("orders").await.owner, one.status("orders").await.owner, "the first one evaluates");
    // It dies: nothing is renewed and nothing is released.
    let Filtered { it: Opened { host, store, .. }, .. } = one;
    std::mem::forget(host);
    store.close().await;
    other.it.commit("placed", &["b"]).await;
    let died = other.it.clock.now();
    let taken = async {
        while other.streams.stream("orders").await.expect("reads").progress < 2 {
            crate::between_looks().await;
        }
    };
    tokio::select! {
        () = taken => {}
        never = other.it.let_time_pass_by_writes() => match never {},
    }
    let passed = other.it.clock.now().since(died);
    assert!(passed < Duration::from_secs(6), "it took {passed:?}");
    other.holds("orders", 2, &[(0, None), (1, None)]).await;
}

/// The process that defined it has ended.
pub async fn a_filter_that_another_process_defines_is_run(subject: &dyn Subject) {
    let one = Filtered::of(subject).await;
    one.it.host.start_defined();
    let other = Filtered::on(Opened::on(subject.open().await, one.it.clock.clone()));
    other.define(placed()).await;
    other.it.host.drain().await;
    one.it.commit("placed", &["a"]).await;
    one.holds("orders", 1, &[(0, None)]).await;
}
