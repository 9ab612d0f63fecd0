//! What survives a restart.

use annals_core::handlers::{HandlerError, SettleBody, Settlement};

use crate::Subject;
use crate::handlers::opened::{Opened, positions};

/// Its token is no longer valid.
pub async fn what_was_in_flight_comes_again_and_what_was_settled_does_not(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    it.by_aggregate("h").await;
    it.commit("placed", &["a", "b", "c"]).await;
    let taken = it.pull_count("h", 3).await;
    let settled = taken.iter().find(|delivery| delivery.position == 0).expect("came");
    it.done("h", settled).await;
    let it = it.restarted().await;
    let stale = Settlement::done(taken.iter().find(|it| it.position == 1).expect("came").token.clone());
    let results = it.settle("h", vec![stale]).await;
    assert_eq!(results[0].error.as_deref(), Some("lease_lost"));
    assert_eq!(positions(&it.pull_count("h", 2).await), [1, 2]);
}

/// The position could not move past the events before them.
pub async fn events_settled_out_of_order_do_not_come_again(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    it.by_aggregate("h").await;
    it.commit("placed", &["a", "b", "c", "d"]).await;
    for delivery in it.pull_count("h", 4).await {
        if [1, 3].contains(&delivery.position) {
            it.done("h", &delivery).await;
        }
    }
    assert_eq!(it.handlers.get("h").await.expect("defined").position, 0);
    let it = it.restarted().await;
    assert_eq!(positions(&it.pull_count("h", 2).await), [0, 2]);
    assert!(it.pull_now("h").await.is_empty());
    // A drained host serves no requests.
    it.host.drain().await;
    let closed = it.handlers.settle("h", SettleBody::default()).await;
    assert!(matches!(closed, Err(HandlerError::Store(annals_core::StoreError::Closed))), "{closed:?}");
}

/// The second one waits, as another process would, until the first is drained.
pub async fn two_hosts_on_one_store_take_no_lease_from_each_other(subject: &dyn Subject) {
    let one = Opened::of(subject).await;
    let other = Opened::on(one.store.clone(), one.clock.clone());
    one.by_aggregate("h").await;
    one.commit("placed", &["a", "a"]).await;
    let first = one.pull("h").await;
    assert!(other.pull_now("h").await.is_empty());
    let elsewhere = other.handlers.settle("h", SettleBody { results: vec![Settlement::done("1")] }).await;
    assert!(matches!(elsewhere, Err(HandlerError::OwnedElsewhere { .. })), "{elsewhere:?}");
    one.done("h", &first[0]).await;
    assert_eq!(other.handlers.get("h").await.expect("defined").position, 1);
    one.host.drain().await;
    tokio::select! {
        second = other.pull_count("h", 1) => assert_eq!(positions(&second), [1]),
        never = other.let_time_pass("h") => match never {},
    }
}
