//! Entries of a queue.

use annals_core::handlers::{ActRecord, Reason};
use annals_core::queue::{ItemState, ItemsQuery, NewItem, QueueDefinition, QueuePriority};
use annals_core::{Code, DEFAULT_TENANT, Record, RecordQuery, RecordType};
use serde_json::json;

use super::super::Holding;
use super::super::opened::{Opened, q};
use crate::Subject;

pub async fn an_id_has_one_entry_while_it_is_pending_or_active(subject: &dyn Subject, holding: &dyn Holding) {
    let it = Opened::of(subject, holding).await;
    it.define(q()).await;
    let first = it.add("a", QueuePriority::Low, "").await;
    assert_eq!((first.duplicate, first.position), (false, Some(0)));
    assert_eq!(it.add("b", QueuePriority::Low, "").await.position, Some(1));
    assert_eq!(it.add("c", QueuePriority::High, "").await.position, Some(0), "in its own priority");
    let again = it.add("a", QueuePriority::Critical, "").await;
    assert_eq!((again.duplicate, again.state, again.position), (true, ItemState::Pending, Some(0)));
    let taken = it.take(10).await;
    let ids: Vec<&str> = taken.items.iter().map(|item| &*item.id).collect();
    assert_eq!(ids, ["c", "a", "b"], "its priority is the first one's");
    let active = it.add("a", QueuePriority::Critical, "").await;
    assert_eq!((active.duplicate, active.state, active.position), (true, ItemState::Active, None));
    assert_eq!(it.taken(10).await.len(), 0, "an active item is not handed out twice");
    it.done(&taken).await;
    assert!(!it.add("a", QueuePriority::Normal, "").await.duplicate, "what is done may come again");
}

pub async fn a_lost_payload_is_reported_and_the_next_item_is_served(subject: &dyn Subject, holding: &dyn Holding) {
    let it = Opened::of(subject, holding).await;
    it.define(q().capped(2)).await;
    it.add_all(&["a", "b", "c", "d"]).await;
    for id in ["a", "c"] {
        holding.lose_payload(&*it.store, "q", id).await;
    }
    let taken = it.take(2).await;
    let ids: Vec<&str> = taken.items.iter().map(|item| &*item.id).collect();
    assert_eq!((ids, taken.lost.iter().map(|id| &**id).collect::<Vec<_>>()), (vec!["b", "d"], vec!["a", "c"]));
    let counts = it.queues.get("q").await.expect("defined").counts;
    assert_eq!((counts.lost_total, counts.active), (2, 2));
    assert!(!it.add("a", QueuePriority::Normal, "").await.duplicate, "its id is free");
}

pub async fn a_user_with_too_many_items_is_refused_with_the_limit(subject: &dyn Subject, holding: &dyn Holding) {
    let it = Opened::of(subject, holding).await;
    it.define(QueueDefinition { pending_max_per_user: 2, pending_max: 3, ..q() }).await;
    let refused = async |id: &str, user: &str| {
        let refused = it.queues.enqueue("q", NewItem::new(id).user(user)).await.err();
        refused.map(|error| (error.code(), error.to_string()))
    };
    assert_eq!((refused("1", "a").await, refused("2", "a").await), (None, None));
    assert_eq!(refused("2", "a").await, None, "it is there already");
    let (code, why) = refused("3", "a").await.expect("refused");
    assert_eq!(code, Code::QueueFull);
    assert!(why.contains("user \"a\" has 2 pending items; at most 2 are allowed"), "{why}");
    assert_eq!(refused("3", "b").await, None);
    let (_, why) = refused("4", "b").await.expect("refused");
    assert!(why.contains("3 items are pending; at most 3 are allowed"), "{why}");
    it.taken(1).await;
    assert_eq!(refused("4", "b").await, None, "active items do not count");
}

pub async fn a_cancelled_item_frees_its_slot_and_its_id(subject: &dyn Subject, holding: &dyn Holding) {
    let it = Opened::of(subject, holding).await;
    it.define(q().capped(1)).await;
    it.add_all(&["a", "b", "c"]).await;
    let mine = it.take(1).await;
    let why = || Reason::from("nobody needs it");
    let cancelled = it.queues.cancel("q", "a", why()).await.expect("cancelled").cancelled;
    assert_eq!((cancelled.state, &*cancelled.id), (ItemState::Active, "a"));
    let cancelled = it.queues.cancel("q", "b", why()).await.expect("cancelled").cancelled;
    assert_eq!(cancelled.state, ItemState::Pending);
    assert_eq!(it.taken(1).await, ["c"]);
    let late = annals_core::queue::ItemsBody::of([mine.items[0].reference()]);
    assert!(!it.queues.done("q", late).await.expect("answered")[0].changed);
    assert!(!it.add("a", QueuePriority::Normal, "").await.duplicate);
    let unknown = it.queues.cancel("q", "b", why()).await.expect_err("it is gone");
    assert_eq!(unknown.code(), Code::UnknownItem);
    assert_eq!(it.queues.cancel("q", "a", Reason::from(" ")).await.map_err(|e| e.code()), Err(Code::InvalidBody));
}

pub async fn an_item_that_an_operator_releases_is_pending_and_the_reason_is_recorded(
    subject: &dyn Subject,
    holding: &dyn Holding,
) {
    let it = Opened::of(subject, holding).await;
    it.define(q()).await;
    it.add_all(&["a"]).await;
    assert_eq!(it.taken(1).await, ["a"]);
    let release = async |id: &str, why: &str| it.queues.release_item("q", id, Reason::from(why)).await;
    assert_eq!(release("a", " ").await.map_err(|error| error.code()), Err(Code::InvalidBody));
    assert_eq!(release("b", "mistyped").await.map_err(|error| error.code()), Err(Code::UnknownItem));
    assert!(release("a", "its worker hangs").await.expect("released").changed);
    assert!(!release("a", "again").await.expect("it is pending").changed);
    assert_eq!(it.queues.item("q", "a").await.expect("known").state, ItemState::Pending);
    let acts = it.store.records(DEFAULT_TENANT).expect("declared").find(RecordQuery::new(ActRecord::COLLECTION)).await;
    let text = |act: &Record, field: &str| act.document.get_str(field).expect("a text").to_owned();
    let acts = acts.expect("found").records;
    let acts: Vec<_> = acts.iter().map(|it| ["processor", "act", "reason"].map(|field| text(it, field))).collect();
    assert_eq!(acts, [["queue/q", "release", "its worker hangs"]]);
}

pub async fn items_are_listed_in_pages(subject: &dyn Subject, holding: &dyn Holding) {
    let it = Opened::of(subject, holding).await;
    it.define(q()).await;
    for n in 0..25 {
        it.add(&n.to_string(), QueuePriority::ALL[n % 5], if n % 2 == 0 { "a" } else { "b" }).await;
    }
    it.taken(3).await;
    let all = async |state: Option<ItemState>, user: Option<&str>| {
        let mut query = ItemsQuery { state, user: user.map(Into::into), after: None, limit: 4 };
        let mut ids = Vec::new();
        loop {
            let page = it.queues.items("q", query.clone()).await.expect("listed");
            assert!(page.items.len() <= 4);
            ids.extend(page.items.iter().map(|item| item.id.to_string()));
            query.after = page.cursor;
            if query.after.is_none() {
                return ids;
            }
        }
    };
    assert_eq!(all(None, None).await, (0..25).map(|n: u32| n.to_string()).collect::<Vec<_>>());
    assert_eq!(all(Some(ItemState::Active), None).await.len(), 3);
    assert_eq!(all(Some(ItemState::Pending), None).await.len(), 22);
    assert_eq!(all(None, Some("b")).await.len(), 12);
    let wrong = ItemsQuery { after: Some("x".into()), ..ItemsQuery::default() };
    assert_eq!(it.queues.items("q", wrong).await.map_err(|error| error.code()), Err(Code::InvalidQuery));
}

pub async fn payloads_come_back_as_they_were(subject: &dyn Subject, holding: &dyn Holding) {
    let it = Opened::of(subject, holding).await;
    it.define(q()).await;
    let payloads = [
        json!(null),
        json!({ "script": "print('é')\n\u{0}", "limits": [1, 2.5, -9_007_199_254_740_993_i64], "": {} }),
        json!("x".repeat(200_000)),
    ];
    for (n, payload) in payloads.iter().enumerate() {
        let item = NewItem::new(format!("id {n} é:\"'{{}}/")).user(format!("user {n}")).payload(payload.clone());
        it.queues.enqueue("q", item).await.expect("enqueued");
    }
    let taken = it.take(10).await.items;
    assert_eq!(taken.len(), 3);
    for (n, item) in taken.iter().enumerate() {
        assert_eq!((&item.payload, &*item.user), (&payloads[n], &*format!("user {n}")));
        assert_eq!((&*item.id, item.enqueued_at), (&*format!("id {n} é:\"'{{}}/"), it.now()));
    }
    let large = NewItem::new("large").payload(json!("x".repeat(300_000)));
    assert_eq!(it.queues.enqueue("q", large).await.map_err(|error| error.code()), Err(Code::InvalidBody));
}
