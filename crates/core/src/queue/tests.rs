//! Which item is next, and what each request makes of a queue.

use std::time::Duration;

use bytestring::ByteString;

use super::{ItemRef, ItemState, Ledger, Machine, NewItem, QueueDefinition, QueuePriority};
use crate::Timestamp;

const LEASE: Duration = Duration::from_secs(30);
const WORKER: ByteString = ByteString::from_static("w");

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn queue() -> QueueDefinition {
    QueueDefinition::new("q").capped(1_000)
}

fn add(machine: &mut Machine, queue: &QueueDefinition, id: &str, priority: QueuePriority, user: &str) {
    let item = NewItem::new(id).priority(priority).user(user);
    assert!(!machine.enqueue(queue, &item, at(0)).expect("taken in").duplicate, "{id}");
}

/// The ids of the next items at a time.
fn taken(machine: &mut Machine, queue: &QueueDefinition, count: usize, now: i64) -> Vec<String> {
    let mut one = || machine.take_one(queue, LEASE, &WORKER, at(now)).map(|item| item.id.to_string());
    std::iter::from_fn(&mut one).take(count).collect()
}

#[test]
fn strict_order_is_by_priority_and_then_by_age() {
    let (mut machine, queue) = (Machine::default(), queue().strict());
    for (id, priority) in [("n1", QueuePriority::Normal), ("b1", QueuePriority::Background)] {
        add(&mut machine, &queue, id, priority, "a");
    }
    for (id, priority) in [("c1", QueuePriority::Critical), ("l1", QueuePriority::Low), ("h1", QueuePriority::High)] {
        add(&mut machine, &queue, id, priority, "a");
    }
    add(&mut machine, &queue, "n2", QueuePriority::Normal, "b");
    add(&mut machine, &queue, "c2", QueuePriority::Critical, "a");
    let order = taken(&mut machine, &queue, 10, 1_000_000);
    assert_eq!(order, ["c1", "c2", "h1", "n1", "n2", "l1", "b1"]);
}

#[test]
fn users_of_one_priority_are_served_in_turn_whatever_they_enqueued() {
    let (mut machine, queue) = (Machine::default(), queue());
    for n in 0..1_000 {
        add(&mut machine, &queue, &format!("a{n}"), QueuePriority::Normal, "a");
    }
    assert_eq!(taken(&mut machine, &queue, 3, 0), ["a0", "a1", "a2"], "nobody else is there");
    for n in 0..3 {
        add(&mut machine, &queue, &format!("b{n}"), QueuePriority::Normal, "b");
        add(&mut machine, &queue, &format!("c{n}"), QueuePriority::Normal, "c");
    }
    let order = taken(&mut machine, &queue, 9, 0);
    for three in order.chunks(3) {
        let users: std::collections::BTreeSet<_> = three.iter().map(|id| id.as_bytes()[0]).collect();
        assert_eq!(users.len(), 3, "{order:?}");
    }
    assert_eq!(order.iter().filter(|id| id.starts_with('b')).collect::<Vec<_>>(), ["b0", "b1", "b2"]);
}

#[test]
fn a_stream_of_new_users_does_not_hold_up_a_user_who_was_served() {
    let (mut machine, queue) = (Machine::default(), QueueDefinition { ageing_ms: 0, ..queue() });
    add(&mut machine, &queue, "x0", QueuePriority::Normal, "x");
    add(&mut machine, &queue, "x1", QueuePriority::Normal, "x");
    let mut hand_outs = 0;
    loop {
        // Two newcomers for each hand-out.
        for n in 0..2 {
            let user = format!("u{hand_outs}-{n}");
            add(&mut machine, &queue, &user, QueuePriority::Normal, &user);
        }
        hand_outs += 1;
        if taken(&mut machine, &queue, 1, 0) == ["x1"] {
            break;
        }
        assert!(hand_outs < 100, "x1 starves");
    }
}

#[test]
fn ageing_serves_the_oldest_item_s_priority_after_three_others() {
    let (mut machine, queue) = (Machine::default(), queue());
    add(&mut machine, &queue, "b1", QueuePriority::Background, "a");
    add(&mut machine, &queue, "b2", QueuePriority::Background, "a");
    for n in 0..20 {
        add(&mut machine, &queue, &format!("c{n}"), QueuePriority::Critical, "a");
    }
    assert_eq!(taken(&mut machine, &queue, 5, 59_999), ["c0", "c1", "c2", "c3", "c4"], "nothing is old yet");
    let order = taken(&mut machine, &queue, 8, 60_000);
    assert_eq!(order, ["c5", "c6", "c7", "b1", "c8", "c9", "c10", "b2"]);
    let strict = queue.strict();
    add(&mut machine, &strict, "b3", QueuePriority::Background, "a");
    // All leases have ended by then.
    let all = taken(&mut machine, &strict, 30, 10_000_000);
    assert!(all[..20].iter().all(|id| id.starts_with('c')) && all[20..] == ["b1", "b2", "b3"], "{all:?}");
}

#[test]
fn nothing_is_handed_out_above_the_cap_and_a_lowered_cap_ends_no_lease() {
    let (mut machine, queue) = (Machine::default(), QueueDefinition::new("q").capped(2));
    for n in 0..5 {
        add(&mut machine, &queue, &n.to_string(), QueuePriority::Normal, "");
    }
    assert_eq!(taken(&mut machine, &queue, 5, 0), ["0", "1"]);
    let lowered = queue.clone().capped(1);
    assert!(machine.done(&ItemRef::current("0"), at(1)).changed);
    assert_eq!((taken(&mut machine, &lowered, 5, 1).len(), machine.counts().active), (0, 1));
    assert!(machine.done(&ItemRef::current("1"), at(1)).changed);
    assert_eq!(taken(&mut machine, &lowered, 5, 1), ["2"]);
}

#[test]
fn an_expired_item_keeps_its_age_and_its_token_until_it_is_handed_out_again() {
    let (mut machine, queue) = (Machine::default(), queue().strict());
    add(&mut machine, &queue, "one", QueuePriority::Normal, "");
    add(&mut machine, &queue, "two", QueuePriority::Normal, "");
    let token = |machine: &mut Machine, now: i64| {
        machine.take_one(&queue, LEASE, &WORKER, at(now)).map(|item| (item.id.to_string(), item.token.clone()))
    };
    let (id, first) = token(&mut machine, 0).expect("handed out");
    let mine = ItemRef { id: id.clone().into(), token: first };
    assert_eq!(machine.renew(&mine, LEASE, at(29_999)).lease_until, Some(at(59_999)));
    assert_eq!(machine.renew(&mine, LEASE, at(59_999)).error.as_deref(), Some("lease_lost"), "its slot is free");
    assert_eq!(machine.item("one").map(|item| item.state), Some(ItemState::Pending));
    let mut late = machine.clone();
    assert!(late.done(&mine, at(60_000)).changed, "nobody else has begun");
    let (again, second) = token(&mut machine, 60_000).expect("handed out again");
    assert_eq!(again, "one", "it kept its age");
    assert!(!machine.done(&mine, at(60_001)).accepted && !machine.release(&mine, at(60_001)).accepted);
    assert!(machine.done(&ItemRef { id: id.into(), token: second }, at(60_001)).changed);
    assert_eq!(machine.counts().expired_total, 1);
}

#[test]
fn what_is_not_there_is_released_and_done_without_effect() {
    let mut machine = Machine::default();
    let nobody = ItemRef::current("nobody");
    for result in [machine.done(&nobody, at(0)), machine.release(&nobody, at(0))] {
        assert!(result.accepted && !result.changed, "{result:?}");
    }
    assert!(!machine.renew(&nobody, LEASE, at(0)).accepted);
    assert_eq!(machine.counts(), Machine::default().counts());
}

#[test]
fn a_raised_item_stands_before_younger_ones_of_its_new_priority() {
    for queue in [queue(), queue().strict()] {
        let mut machine = Machine::default();
        add(&mut machine, &queue, "late", QueuePriority::Low, "a");
        add(&mut machine, &queue, "h1", QueuePriority::High, "a");
        add(&mut machine, &queue, "h2", QueuePriority::High, "a");
        machine.prioritise("late", QueuePriority::High, at(1)).expect("it is there");
        assert_eq!(taken(&mut machine, &queue, 3, 2), ["late", "h1", "h2"], "{queue:?}");
    }
}

#[test]
fn a_user_with_too_many_pending_items_is_refused_with_the_limit() {
    let queue = QueueDefinition { pending_max_per_user: 2, pending_max: 3, ..queue() };
    let mut machine = Machine::default();
    let mut enqueue = |id: &str, user: &str| {
        let refused = machine.enqueue(&queue, &NewItem::new(id).user(user), at(0)).err();
        refused.map(|error| error.to_string())
    };
    assert_eq!((enqueue("1", "a"), enqueue("2", "a"), enqueue("2", "a")), (None, None, None));
    assert!(enqueue("3", "a").is_some_and(|why| why.contains("user \"a\" has 2 pending items; at most 2")));
    assert_eq!(enqueue("3", "b"), None);
    assert!(enqueue("4", "b").is_some_and(|why| why.contains("3 items are pending; at most 3")));
}

#[test]
fn a_queue_continues_from_what_was_stored() {
    let queue = queue();
    let mut machine = Machine::default();
    for n in 0..60 {
        let priority = QueuePriority::ALL[n * 7 / 3 % 5];
        add(&mut machine, &queue, &n.to_string(), priority, ["a", "b", "c"][n * 5 / 2 % 3]);
    }
    taken(&mut machine, &queue, 7, 10);
    let stored = machine.drain_changes();
    let mut again = Machine::restore(*machine.ledger(), stored.put);
    assert_eq!(again.counts(), machine.counts());
    assert_eq!(taken(&mut again, &queue, 60, 70_000), taken(&mut machine, &queue, 60, 70_000));
    assert_ne!(*machine.ledger(), Ledger::default());
}
