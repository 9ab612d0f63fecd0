//! What survives a restart.

use annals_core::handlers::{Act, ActEntry, End, HandlerError, Place, SettleBody, Settlement};

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

/// Both ask for it at the same time. The other one waits, and settles nothing.
pub async fn of_two_hosts_that_claim_a_handler_at_once_one_delivers(subject: &dyn Subject) {
    let one = Opened::of(subject).await;
    let two = Opened::on(subject.open_beside(&one.store).await, one.clock.clone());
    one.by_aggregate("h").await;
    one.commit("placed", &["a", "b", "c", "d"]).await;
    let (mut of_one, mut of_two) = (Vec::new(), Vec::new());
    while of_one.len() + of_two.len() < 4 {
        let (first, second) = tokio::join!(one.pull_now("h"), two.pull_now("h"));
        of_one.extend(first);
        of_two.extend(second);
        crate::between_looks().await;
    }
    assert!(of_one.is_empty() || of_two.is_empty(), "both deliver: {of_one:?} {of_two:?}");
    let (owner, other, taken) = if of_two.is_empty() { (&one, &two, of_one) } else { (&two, &one, of_two) };
    assert_eq!(positions(&taken), [0, 1, 2, 3]);
    let settlement = Settlement::done(taken[0].token.clone());
    let elsewhere = other.handlers.settle("h", SettleBody { results: vec![settlement] }).await;
    assert!(matches!(elsewhere, Err(HandlerError::OwnedElsewhere { .. })), "{elsewhere:?}");
    for delivery in &taken {
        owner.done("h", delivery).await;
    }
    assert_eq!(other.handlers.get("h").await.expect("defined").position, 4);
}

/// Returns what was recorded of restores, the newest first.
async fn clamps(it: &Opened) -> Vec<ActEntry> {
    let acts = it.handlers.acts("h", None, 100).await.expect("reads").items;
    acts.into_iter().filter(|act| act.act == "clamp").collect()
}

/// Partitions that failed at later events are forgotten, because those events never happened. Each restore is recorded once.
pub async fn a_handler_of_a_restored_store_goes_back_to_the_fork_and_says_so(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    it.by_aggregate("h").await;
    it.commit("placed", &["a", "b", "c", "d", "b", "e"]).await;
    let mut settled = 0;
    while settled < 5 {
        for delivery in it.pull("h").await {
            match delivery.position {
                1 | 3 => it.fail("h", &delivery).await,
                _ => it.done("h", &delivery).await,
            }
            settled += 1;
        }
    }
    let before = it.handlers.get("h").await.expect("defined");
    assert_eq!((before.position, before.failing), (6, 2));
    let it = it.restored_to(3).await;
    let mut delivered = Vec::new();
    while delivered.len() < 2 {
        for delivery in it.pull("h").await {
            assert_eq!((delivery.attempt, delivery.replay.is_some()), (1, false), "{delivery:?}");
            it.done("h", &delivery).await;
            delivered.push(delivery.position);
        }
    }
    delivered.sort_unstable();
    assert_eq!(delivered, [3, 5], "the events from the fork on, except for one that follows a failed event");
    let failing = it.handlers.partitions("h", None, 10).await.expect("reads").items;
    let failing: Vec<_> = failing.iter().map(|it| (&*it.partition, it.position, it.attempts)).collect();
    assert_eq!(failing, [("order/b", 1, 1)]);
    let recorded = clamps(&it).await;
    assert_eq!(recorded.len(), 1, "{recorded:?}");
    let clamp = &recorded[0];
    assert_eq!((clamp.from, clamp.to, clamp.by.as_deref()), (Some(6), Some(3), Some("annals")));
    assert!(clamp.reason.contains("restored"), "{clamp:?}");
    it.advance(1_000);
    assert_eq!(it.handle_all("h", 6).await, [1, 4]);
    let it = it.restarted().await;
    it.commit("placed", &["a"]).await;
    assert_eq!(it.handle_all("h", 7).await, [6]);
    assert_eq!(clamps(&it).await.len(), 1, "not at every start");
}

/// The events from the fork on were never handled.
pub async fn a_replay_in_a_restored_store_marks_nothing_from_the_fork_on(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    it.by_aggregate("h").await;
    it.commit("placed", &["a", "b", "c", "d"]).await;
    assert_eq!(it.handle_all("h", 4).await.len(), 4);
    let from = Place::End(End::Beginning);
    it.handlers.act("h", Act::Replay { from }, "a test".into()).await.expect("allowed");
    let it = it.restored_to(2).await;
    let mut delivered = Vec::new();
    while delivered.len() < 4 {
        for delivery in it.pull("h").await {
            it.done("h", &delivery).await;
            delivered.push((delivery.position, delivery.replay.is_some()));
        }
    }
    delivered.sort_unstable();
    assert_eq!(delivered, [(0, true), (1, true), (2, false), (3, false)]);
}
