//! What a restart keeps.

use annals_core::handlers::{HandlerError, SettleBody, Settlement};

use crate::Subject;
use crate::handlers::opened::{Opened, positions};

/// Its token is worth nothing any more.
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

/// Though the position could not move past what is before them.
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
    // A drained host serves nobody.
    it.host.drain().await;
    let closed = it.handlers.settle("h", SettleBody::default()).await;
    assert!(matches!(closed, Err(HandlerError::Store(annals_core::StoreError::Closed))), "{closed:?}");
}
