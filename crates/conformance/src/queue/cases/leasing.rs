//! Leases of active items.

use annals_core::queue::{ItemRef, ItemState, ItemsBody, RenewBody, Taken};

use super::super::Holding;
use super::super::opened::{Opened, q};
use crate::Subject;

pub async fn a_lease_that_ends_while_its_owner_works_frees_the_slot_and_the_owner_is_told(
    subject: &dyn Subject,
    holding: &dyn Holding,
) {
    let it = Opened::of(subject, holding).await;
    it.define(q().capped(1)).await;
    it.add_all(&["a", "b"]).await;
    let mine = it.take(1).await.items.remove(0).reference();
    it.clock.advance_millis(30_000);
    let theirs = it.take(1).await.items.remove(0);
    assert_eq!((&*theirs.id, theirs.attempt), ("a", 2), "it kept its age");
    let renewed = it.queues.renew("q", RenewBody::of([mine.clone()], 30_000)).await.expect("answered");
    assert_eq!(renewed[0].error.as_deref(), Some("lease_lost"));
    for answer in [
        it.queues.done("q", ItemsBody::of([mine.clone()])).await.expect("answered"),
        it.queues.release("q", ItemsBody::of([mine])).await.expect("answered"),
    ] {
        assert_eq!((answer[0].accepted, answer[0].error.as_deref()), (false, Some("lease_lost")));
    }
    assert_eq!(it.active().await, 1, "the other worker still has it");
    assert!(it.queues.done("q", ItemsBody::of([theirs.reference()])).await.expect("answered")[0].changed);
    let counts = it.queues.get("q").await.expect("defined").counts;
    assert_eq!((counts.expired_total, counts.done_total, counts.taken_total), (1, 1, 2));
}

pub async fn a_renewed_lease_does_not_end(subject: &dyn Subject, holding: &dyn Holding) {
    let it = Opened::of(subject, holding).await;
    it.define(q().capped(1)).await;
    it.add_all(&["a", "b"]).await;
    let mine = it.take(1).await.items.remove(0).reference();
    for _ in 0..3 {
        it.clock.advance_millis(29_000);
        let renewed = it.queues.renew("q", RenewBody::of([mine.clone()], 30_000)).await.expect("answered");
        assert_eq!(renewed[0].lease_until, Some(it.now().plus(std::time::Duration::from_secs(30))));
        assert_eq!(it.taken(1).await.len(), 0);
    }
    it.clock.advance_millis(30_000);
    let renewed = it.queues.renew("q", RenewBody::of([mine], 30_000)).await.expect("answered");
    assert!(!renewed[0].accepted, "a lease that has ended is not renewed");
    assert_eq!(it.taken(1).await, ["a"]);
}

pub async fn a_late_worker_is_done_unless_somebody_else_has_begun(subject: &dyn Subject, holding: &dyn Holding) {
    let it = Opened::of(subject, holding).await;
    it.define(q()).await;
    it.add_all(&["a"]).await;
    let mine = it.take(1).await.items.remove(0).reference();
    it.clock.advance_millis(60_000);
    assert_eq!(it.queues.item("q", "a").await.expect("there").state, ItemState::Pending);
    let release = it.queues.release("q", ItemsBody::of([mine.clone()])).await.expect("answered");
    assert!(release[0].accepted && !release[0].changed, "it is back already");
    let done = it.queues.done("q", ItemsBody::of([mine])).await.expect("answered");
    assert!(done[0].accepted && done[0].changed, "{done:?}");
    assert_eq!(it.taken(1).await.len(), 0, "it is not done twice");
}

pub async fn what_is_unknown_is_released_and_done_without_effect(subject: &dyn Subject, holding: &dyn Holding) {
    let it = Opened::of(subject, holding).await;
    it.define(q()).await;
    it.add_all(&["a"]).await;
    let before = it.queues.get("q").await.expect("defined");
    let nobody = || ItemsBody { id: Some("nobody".into()), ..ItemsBody::default() };
    for results in [it.queues.done("q", nobody()).await, it.queues.release("q", nobody()).await] {
        let results = results.expect("answered");
        assert!(results[0].accepted && !results[0].changed, "{results:?}");
    }
    // A pending item is in no slot.
    let pending = it.queues.done("q", ItemsBody::of([ItemRef::current("a")])).await.expect("answered");
    assert!(pending[0].accepted && !pending[0].changed, "{pending:?}");
    assert_eq!(it.queues.get("q").await.expect("defined"), before);
}

pub async fn a_released_item_comes_back_with_its_age(subject: &dyn Subject, holding: &dyn Holding) {
    let it = Opened::of(subject, holding).await;
    it.define(q()).await;
    it.add_all(&["a", "b"]).await;
    let mine = it.take(1).await.items.remove(0);
    let released = it.queues.release("q", ItemsBody::of([mine.reference()])).await.expect("answered");
    assert!(released[0].changed);
    let again = it.take(2).await.items;
    assert_eq!(again.iter().map(|item| (&*item.id, item.attempt)).collect::<Vec<_>>(), [("a", 2), ("b", 1)]);
    assert_ne!(again[0].token, mine.token);
    assert_eq!(again[0].enqueued_at, mine.enqueued_at);
}

/// The clock is set back and ahead. An item goes to another worker only after its lease has ended, and the first worker learns of it.
pub async fn a_clock_that_jumps_gives_no_item_to_two_workers_and_loses_none(
    subject: &dyn Subject,
    holding: &dyn Holding,
) {
    const HOUR: i64 = 3_600_000;
    let it = Opened::of(subject, holding).await;
    it.define(q().capped(2)).await;
    it.add_all(&["a", "b", "c"]).await;
    let first = it.take(2).await;
    let [a, b] = [&first.items[0], &first.items[1]];
    assert_eq!((&*a.id, &*b.id), ("a", "b"));
    // Back: no lease ends, and a renewed lease ends by the clock as it is now.
    it.clock.advance_millis(-HOUR);
    assert_eq!(it.taken(10).await.len(), 0, "both have their owners");
    let renewed = it.queues.renew("q", RenewBody::of([a.reference()], 30_000)).await.expect("answered");
    assert_eq!(renewed[0].lease_until, Some(it.now().plus(std::time::Duration::from_secs(30))));
    it.clock.advance_millis(30_000);
    let second = it.take(10).await;
    let of = |taken: &Taken| taken.items.iter().map(|item| (item.id.to_string(), item.attempt)).collect::<Vec<_>>();
    assert_eq!(of(&second), [("a".to_owned(), 2)], "b has its owner");
    lost(&it, a.reference()).await;
    // Ahead: every lease ends, once.
    it.clock.advance_millis(2 * HOUR);
    let third = it.take(10).await;
    assert_eq!(of(&third), [("a".to_owned(), 3), ("b".to_owned(), 2)]);
    for item in [a, b, &second.items[0]] {
        lost(&it, item.reference()).await;
    }
    // And back to where it was.
    it.clock.advance_millis(-HOUR - 30_000);
    assert_eq!(it.taken(10).await.len(), 0, "both have their owners");
    it.done(&third).await;
    let last = it.take(10).await;
    assert_eq!(of(&last), [("c".to_owned(), 1)]);
    it.done(&last).await;
    let counts = it.queues.get("q").await.expect("defined").counts;
    assert_eq!((counts.active, counts.pending.normal), (0, 0));
    assert_eq!((counts.enqueued_total, counts.done_total, counts.lost_total), (3, 3, 0));
    assert_eq!((counts.taken_total, counts.expired_total), (6, 3));
}

/// Asserts that the worker of this hand-out can no longer renew or settle the item.
async fn lost(it: &Opened, hand_out: ItemRef) {
    let renewed = it.queues.renew("q", RenewBody::of([hand_out.clone()], 30_000)).await.expect("answered");
    let done = it.queues.done("q", ItemsBody::of([hand_out])).await.expect("answered");
    for result in [&renewed[0], &done[0]] {
        assert_eq!((result.accepted, result.error.as_deref()), (false, Some("lease_lost")), "{result:?}");
    }
}
