//! Several processes on one queue, and processes that come back.

use annals_core::queue::{ItemsBody, QueuePriority};

use super::super::Holding;
use super::super::opened::{Opened, q};
use crate::Subject;

pub async fn two_processes_share_a_queue(subject: &dyn Subject, holding: &dyn Holding) {
    let one = Opened::of(subject, holding).await;
    one.define(q().capped(3)).await;
    one.add_all(&["a", "b", "c", "d"]).await;
    let two = one.beside(subject, holding).await;
    let mut order = Vec::new();
    for at in [&one, &two, &one, &two] {
        order.extend(at.taken(1).await);
    }
    assert_eq!(order, ["a", "b", "c"], "the cap is of both");
    assert!(
        one.add("a", QueuePriority::Normal, "").await.duplicate && two.add("d", QueuePriority::Low, "").await.duplicate
    );
    let done = two.queues.done("q", ItemsBody { id: Some("a".into()), ..ItemsBody::default() }).await.expect("settled");
    assert!(done[0].changed, "the other process took it");
    assert_eq!(one.taken(10).await, ["d"]);
    assert_eq!((one.active().await, two.active().await), (3, 3));
}

pub async fn a_queue_is_as_it_was_after_a_restart(subject: &dyn Subject, holding: &dyn Holding) {
    let before = Opened::of(subject, holding).await;
    before.define(q().capped(2)).await;
    for (id, user) in [("a1", "a"), ("a2", "a"), ("b1", "b"), ("a3", "a")] {
        before.add(id, QueuePriority::Normal, user).await;
    }
    let mine = before.take(1).await;
    assert_eq!(&*mine.items[0].id, "a1");
    let counts = before.queues.get("q").await.expect("defined");
    before.store.close().await;
    let after = Opened::of(subject, holding).await;
    assert_eq!(after.queues.get("q").await.expect("defined"), counts);
    assert_eq!(after.taken(10).await, ["b1"], "user a was served last");
    after.done(&mine).await;
    assert_eq!(after.taken(10).await, ["a2"]);
}
