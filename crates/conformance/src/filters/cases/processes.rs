//! Several processes on one store.

use annals_core::filters::FilterDefinition;

use crate::Subject;
use crate::filters::words::Filtered;
use crate::handlers::opened::Opened;

fn placed() -> FilterDefinition {
    FilterDefinition::new("orders").types(["placed"])
}

/// Once its lease has ended.
pub async fn one_process_at_a_time_evaluates_and_another_takes_over_when_it_dies(subject: &dyn Subject) {
    let one = Filtered::of(subject).await;
    one.define(placed()).await;
    one.it.commit("placed", &["a"]).await;
    one.holds("orders", 1, &[(0, None)]).await;
    let other = Filtered::on(Opened::on(subject.open().await, one.it.clock.clone()));
    other.it.host.start_defined();
    let owner = other.status("orders").await.owner;
    assert_eq!(owner, one.status("orders").await.owner, "the first one evaluates");
    // It dies: nothing is renewed and nothing is given back.
    let Filtered { it: Opened { host, store, .. }, .. } = one;
    std::mem::forget(host);
    store.close().await;
    other.it.commit("placed", &["b"]).await;
    other.holds("orders", 2, &[(0, None), (1, None)]).await;
    assert_ne!(other.status("orders").await.owner, owner, "the other one has taken over");
}

/// Where the process that defined it has ended.
pub async fn a_filter_that_another_process_defines_is_run(subject: &dyn Subject) {
    let one = Filtered::of(subject).await;
    one.it.host.start_defined();
    let other = Filtered::on(Opened::on(subject.open().await, one.it.clock.clone()));
    other.define(placed()).await;
    other.it.host.drain().await;
    one.it.commit("placed", &["a"]).await;
    one.holds("orders", 1, &[(0, None)]).await;
}
