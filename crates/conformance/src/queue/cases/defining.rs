//! Definitions of queues.

use annals_core::handlers::Reason;
use annals_core::queue::{NewItem, QueueDefinition, QueuePriority, TakeBody};
use annals_core::{Code, DEFAULT_TENANT};

use super::super::Holding;
use super::super::opened::{Opened, q};
use crate::{OTHER_TENANT, Subject, WithOther};

pub async fn queues_are_listed_with_what_they_hold(subject: &dyn Subject, holding: &dyn Holding) {
    let it = Opened::of(subject, holding).await;
    assert_eq!(it.queues.list(None, 10).await.expect("listed").items, []);
    it.define(q()).await;
    for name in ["c", "a", "b"] {
        it.define(QueueDefinition::new(name).capped(3)).await;
    }
    it.add("1", QueuePriority::High, "u").await;
    it.add("2", QueuePriority::High, "v").await;
    it.add("3", QueuePriority::Low, "v").await;
    it.clock.advance_millis(2_500);
    it.taken(1).await;
    let first = it.queues.list(None, 3).await.expect("listed");
    assert_eq!(first.items.iter().map(|it| &*it.definition.name).collect::<Vec<_>>(), ["a", "b", "c"]);
    let rest = it.queues.list(first.cursor.as_deref(), 3).await.expect("listed");
    assert_eq!((rest.items.len(), rest.cursor), (1, None));
    let status = &rest.items[0];
    assert_eq!(status.definition, q());
    assert_eq!(status.counts.pending.highest_first(), [0, 1, 0, 1, 0]);
    assert_eq!((status.counts.active, status.counts.users, status.oldest_seconds), (1, 2, 2));
    let all = it.host.queue_status().await.expect("read");
    assert_eq!(all.iter().filter(|it| *it.tenant == *DEFAULT_TENANT).count(), 4);
    assert!(all.iter().any(|it| it.queue == *status));
}

pub async fn what_is_unknown_or_invalid_is_refused_by_name(subject: &dyn Subject, holding: &dyn Holding) {
    let it = Opened::of(subject, holding).await;
    let code = |error: annals_core::queue::QueueError| error.code();
    assert_eq!(it.queues.get("q").await.map_err(code), Err(Code::UnknownQueue));
    assert_eq!(it.queues.enqueue("q", NewItem::new("1")).await.map_err(code), Err(Code::UnknownQueue));
    for definition in [
        q().capped(0),
        q().capped(100_000),
        QueueDefinition { lease_ms: 0, ..q() },
        QueueDefinition { pending_max: 0, ..q() },
    ] {
        assert_eq!(it.queues.put(definition).await.map_err(code), Err(Code::InvalidQueue));
    }
    assert_eq!(it.queues.put(QueueDefinition::new("a/b")).await.map_err(code), Err(Code::InvalidName));
    it.define(q()).await;
    assert_eq!(it.queues.item("q", "1").await.map_err(code), Err(Code::UnknownItem));
    assert_eq!(it.queues.enqueue("q", NewItem::new("")).await.map_err(code), Err(Code::InvalidId));
    assert_eq!(it.queues.enqueue("q", NewItem::new("1").user("\n")).await.map_err(code), Err(Code::InvalidId));
    assert_eq!(it.queues.take("q", TakeBody::up_to(0)).await.map_err(code), Err(Code::InvalidBody));
    let forever = TakeBody { lease_ms: Some(u64::MAX), ..TakeBody::default() };
    assert_eq!(it.queues.take("q", forever).await.map_err(code), Err(Code::InvalidBody));
    let nobody = annals_core::queue::ItemsBody::default();
    assert_eq!(it.queues.done("q", nobody).await.map_err(code), Err(Code::InvalidBody));
}

/// Another process caches a definition for at most a second, by either clock.
pub async fn a_clock_that_is_set_back_keeps_no_old_definition(subject: &dyn Subject, holding: &dyn Holding) {
    let one = Opened::of(subject, holding).await;
    one.define(q().capped(1)).await;
    one.add_all(&["a", "b"]).await;
    let two = one.beside(subject, holding).await;
    assert_eq!(two.taken(10).await, ["a"]);
    assert!(!one.queues.put(q().capped(2)).await.expect("changed"), "it is not new");
    one.clock.advance_millis(-3_600_000);
    assert_eq!(two.taken(10).await, ["b"]);
}

pub async fn a_deleted_queue_forgets_its_items(subject: &dyn Subject, holding: &dyn Holding) {
    let it = Opened::of(subject, holding).await;
    it.define(q()).await;
    it.add_all(&["a", "b", "c"]).await;
    it.taken(1).await;
    it.queues.delete("q", Reason::from("it is not used")).await.expect("deleted");
    assert_eq!(it.queues.get("q").await.map_err(|error| error.code()), Err(Code::UnknownQueue));
    it.define(q()).await;
    let counts = it.queues.get("q").await.expect("defined").counts;
    assert_eq!((counts.active, counts.pending.highest_first(), counts.taken_total), (0, [0; 5], 0));
    assert!(!it.add("a", QueuePriority::Normal, "").await.duplicate);
    assert_eq!(it.taken(10).await, ["a"]);
}

pub async fn tenants_have_queues_of_their_own(subject: &dyn Subject, holding: &dyn Holding) {
    let subject = &WithOther(subject);
    let it = Opened::of(subject, holding).await;
    it.define(q()).await;
    it.add_all(&["a"]).await;
    let other = it.host.queues(OTHER_TENANT).expect("declared");
    assert_eq!(other.get("q").await.map_err(|error| error.code()), Err(Code::UnknownQueue));
    assert!(other.put(q()).await.expect("defined"));
    assert_eq!(other.take("q", TakeBody::up_to(10)).await.expect("taken").items, []);
    assert!(!other.enqueue("q", NewItem::new("a")).await.expect("enqueued").duplicate);
    assert_eq!(it.host.queues("nobody").err().map(|error| error.code()), Some(Code::UnknownTenant));
}
