//! The order of items.

use std::collections::BTreeSet;
use std::time::Duration;

use annals_core::queue::{
    ItemRef, ItemsBody, ItemsQuery, Machine, NewItem, PriorityBody, QueueDefinition, QueuePriority, RenewBody, TakeBody,
};

use super::super::Holding;
use super::super::opened::{Opened, q};
use crate::Subject;

pub async fn without_fair_shares_and_ageing_priorities_are_strict_and_each_is_first_in_first_out(
    subject: &dyn Subject,
    holding: &dyn Holding,
) {
    let it = Opened::of(subject, holding).await;
    it.define(q().strict()).await;
    for (id, priority) in [
        ("background", QueuePriority::Background),
        ("normal-1", QueuePriority::Normal),
        ("low", QueuePriority::Low),
        ("critical-1", QueuePriority::Critical),
        ("normal-2", QueuePriority::Normal),
        ("high", QueuePriority::High),
        ("critical-2", QueuePriority::Critical),
    ] {
        it.add(id, priority, "a").await;
    }
    it.clock.advance_millis(24 * 60 * 60 * 1_000);
    it.add("critical-3", QueuePriority::Critical, "b").await;
    let expected = ["critical-1", "critical-2", "critical-3", "high", "normal-1", "normal-2", "low", "background"];
    assert_eq!(it.taken(100).await, expected);
}

pub async fn one_user_with_a_thousand_items_does_not_hold_up_the_others(subject: &dyn Subject, holding: &dyn Holding) {
    let it = Opened::of(subject, holding).await;
    it.define(q().capped(100)).await;
    it.add_all_of("a", &["a0", "a1"]).await;
    // The others concurrently, so that they share writes.
    let others = (2..1_000).map(|n| {
        let queues = std::sync::Arc::clone(&it.queues);
        tokio::spawn(async move { queues.enqueue("q", NewItem::new(format!("a{n}")).user("a")).await })
    });
    for enqueued in others.collect::<Vec<_>>() {
        assert!(!enqueued.await.expect("it ended").expect("enqueued").duplicate);
    }
    assert_eq!(it.taken(2).await, ["a0", "a1"]);
    for n in 0..4 {
        it.add(&format!("b{n}"), QueuePriority::Normal, "b").await;
        it.add(&format!("c{n}"), QueuePriority::Normal, "c").await;
    }
    let order = it.taken(12).await;
    for three in order.chunks(3) {
        let users: BTreeSet<_> = three.iter().map(|id| id.as_bytes()[0]).collect();
        assert_eq!(users.len(), 3, "each of three users gets one of three hand-outs: {order:?}");
    }
    let of_b: Vec<_> = order.iter().filter(|id| id.starts_with('b')).collect();
    assert_eq!(of_b, ["b0", "b1", "b2", "b3"], "a user's own items keep their order");
}

pub async fn an_item_that_has_waited_is_served_beside_higher_priorities(subject: &dyn Subject, holding: &dyn Holding) {
    let it = Opened::of(subject, holding).await;
    it.define(QueueDefinition { ageing_ms: 60_000, ..q().capped(100) }).await;
    it.add("old", QueuePriority::Background, "a").await;
    for n in 0..10 {
        it.add(&format!("c{n}"), QueuePriority::Critical, "b").await;
    }
    assert_eq!(it.taken(4).await, ["c0", "c1", "c2", "c3"]);
    it.clock.advance_millis(20_000);
    assert_eq!(it.taken(1).await, ["c4"]);
    it.clock.advance_millis(40_000);
    it.add("new", QueuePriority::Critical, "b").await;
    // The leases of 30 s have ended as well.
    assert_eq!(it.taken(4).await, ["c0", "c1", "c2", "old"], "at most three hand-outs pass it over");
}

pub async fn a_raised_priority_keeps_the_age(subject: &dyn Subject, holding: &dyn Holding) {
    for definition in [q(), q().strict()] {
        let it = Opened::of(subject, holding).await;
        it.define(definition.capped(100)).await;
        it.add("late", QueuePriority::Low, "a").await;
        it.clock.advance_millis(1_000);
        it.add("high", QueuePriority::High, "a").await;
        let body = PriorityBody { priority: QueuePriority::High, reason: Some("a customer waits".into()), by: None };
        let before = it.queues.item("q", "late").await.expect("there").enqueued_at;
        let raised = it.queues.prioritise("q", "late", body).await.expect("raised");
        assert_eq!((raised.priority, raised.enqueued_at), (QueuePriority::High, before));
        assert_eq!(it.taken(2).await, ["late", "high"]);
        it.queues.delete("q", annals_core::handlers::Reason::from("the next round")).await.expect("deleted");
        it.store.close().await;
    }
}

/// The model is the state machine of core itself: every storage of items chooses the same ones.
pub async fn random_operations_have_the_same_outcome_as_in_the_model(subject: &dyn Subject, holding: &dyn Holding) {
    let seed = fastrand::u64(..);
    let mut rng = fastrand::Rng::with_seed(seed);
    let it = Opened::of(subject, holding).await;
    let definition = QueueDefinition { ageing_ms: 5_000, pending_max_per_user: 8, ..q().capped(6) };
    it.define(definition.clone()).await;
    let mut model = Machine::default();
    let mut tokens: Vec<ItemRef> = Vec::new();
    let lease = Duration::from_secs(3);
    for step in 0..400 {
        let place = format!("step {step} of seed {seed}");
        let id = rng.u32(..40).to_string();
        let held = if tokens.is_empty() { ItemRef::current(&*id) } else { tokens[rng.usize(..tokens.len())].clone() };
        match rng.u32(..10) {
            0..=3 => {
                let priority = QueuePriority::ALL[rng.usize(..5)];
                let item = NewItem::new(&*id).priority(priority).user(["", "a", "b", "b\u{e9}"][rng.usize(..4)]);
                let expected = model.enqueue(&definition, &item, it.now());
                let actual = it.queues.enqueue("q", item).await;
                assert_eq!(actual.map_err(|e| e.to_string()), expected.map_err(|e| e.to_string()), "{place}");
            }
            4..=5 => {
                let max = rng.usize(1..4);
                let take = TakeBody { max, lease_ms: Some(3_000), worker: "w".into() };
                let taken = it.queues.take("q", take).await.expect("taken").items;
                for at in 0..max {
                    let expected = model.take_one(&definition, lease, &"w".into(), it.now());
                    let actual = taken.get(at).map(|item| (&item.id, Some(&item.token), item.attempt));
                    let expected = expected.map(|item| (&item.id, item.token.as_ref(), item.attempt));
                    assert_eq!(actual, expected, "{place}");
                }
                tokens.extend(taken.iter().map(annals_core::queue::TakenItem::reference));
            }
            6 => {
                let actual = it.queues.done("q", ItemsBody::of([held.clone()])).await.expect("settled");
                assert_eq!(actual, [model.done(&held, it.now())], "{place}");
            }
            7 => {
                let actual = it.queues.release("q", ItemsBody::of([held.clone()])).await.expect("settled");
                assert_eq!(actual, [model.release(&held, it.now())], "{place}");
                let renew = RenewBody::of([held.clone()], 3_000);
                let actual = it.queues.renew("q", renew).await.expect("settled");
                assert_eq!(actual, [model.renew(&held, lease, it.now())], "{place}");
            }
            8 => {
                let priority = QueuePriority::ALL[rng.usize(..5)];
                let body = PriorityBody { priority, reason: None, by: None };
                let actual = it.queues.prioritise("q", &id, body).await.ok();
                assert_eq!(actual, model.prioritise(&id, priority, it.now()), "{place}");
            }
            _ => {
                it.clock.advance_millis(rng.i64(0..2_500));
                model.expire(it.now());
            }
        }
        if step % 20 == 0 {
            let counts = it.queues.get("q").await.expect("defined").counts;
            assert_eq!(counts, model.counts(), "{place}");
            let query = ItemsQuery { limit: 1_000, ..ItemsQuery::default() };
            let items = it.queues.items("q", query.clone()).await.expect("listed");
            assert_eq!(Ok(items), model.page(&query), "{place}");
        }
    }
}
