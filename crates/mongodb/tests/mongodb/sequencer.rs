//! The sequencer: whatever gets into the collections appears in the log once, in order; one leads among many.

use std::sync::Arc;

use annals_core::{Aggregate, AggregateQuery, EventLog, LogQuery, RecordedEvent, Store, limits};
use annals_mongodb::Options;
use mongodb::bson::{Document, doc};

use crate::server::{Databases, log_of, order, until, wow_commit};

async fn whole(log: &Arc<dyn EventLog>) -> Vec<RecordedEvent> {
    log.read(LogQuery { limit: limits::PAGE_MAX, ..LogQuery::default() }).await.expect("read").events
}

async fn until_head(log: &Arc<dyn EventLog>, head: u64) {
    until("the head", async || log.head().await.is_ok_and(|now| now >= head)).await;
}

fn assert_numbers(events: &[RecordedEvent]) {
    let numbers: Vec<_> = events.iter().map(|event| event.sequence_number).collect();
    assert_eq!(numbers, (0..events.len() as u64).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_commit_of_other_software_appears_in_the_log() {
    let databases = Databases::new();
    let store = databases.store(Options::default()).await;
    let log = log_of(&store);
    log.commit(order("a", 1)).await.expect("committed");
    let commits = databases.database().await.collection::<Document>("order_event_stream");
    commits.insert_one(wow_commit("0Rmt0000000001", "a", 2, 7)).await.expect("inserted");
    assert_eq!(log.wait_past(1).await, Ok(2));
    let events = whole(&log).await;
    assert_numbers(&events);
    assert_eq!(events[1].commit.request_id.as_deref(), Some("r-0Rmt0000000001"));
    store.close().await;
}

#[tokio::test]
async fn a_gap_is_held_visibly_holds_back_its_own_aggregate_only_and_is_taken_when_it_closes() {
    let databases = Databases::new();
    let store = databases.store(Options::default()).await;
    let log = log_of(&store);
    log.commit(order("a", 1)).await.expect("committed");
    let database = databases.database().await;
    let commits = database.collection::<Document>("order_event_stream");
    let held = database.collection::<Document>("sequencer-held");
    commits.insert_one(wow_commit("late-3", "b", 3, 7)).await.expect("inserted");
    commits.insert_one(wow_commit("late-2", "b", 2, 7)).await.expect("inserted");
    until("two that are held", async || held.count_documents(doc! {}).await.is_ok_and(|count| count == 2)).await;
    let shown = held.find_one(doc! { "_id.commit": "late-3" }).await.expect("found").expect("held");
    assert!(shown.get_str("reason").expect("text").starts_with("gap"), "{shown}");
    log.commit(order("a", 2)).await.expect("others go on");
    assert_eq!(log.head().await, Ok(2));
    commits.insert_one(wow_commit("first", "b", 1, 7)).await.expect("inserted");
    until_head(&log, 5).await;
    let events = whole(&log).await;
    assert_numbers(&events);
    let of_b = events.iter().filter(|event| &*event.commit.aggregate.id == "b").map(|event| event.commit.version);
    assert_eq!(of_b.collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(held.count_documents(doc! {}).await.expect("counted"), 0);
    store.close().await;
}

#[tokio::test]
async fn a_malformed_commit_is_held_with_what_is_wrong() {
    let databases = Databases::new();
    let store = databases.store(Options::default()).await;
    let log = log_of(&store);
    log.commit(order("a", 1)).await.expect("committed");
    let database = databases.database().await;
    let mut broken = wow_commit("broken", "b", 1, 7);
    broken.remove("body");
    database.collection::<Document>("order_event_stream").insert_one(broken).await.expect("inserted");
    let held = database.collection::<Document>("sequencer-held");
    until("one that is held", async || held.count_documents(doc! {}).await.is_ok_and(|count| count == 1)).await;
    let shown = held.find_one(doc! {}).await.expect("found").expect("held");
    assert!(shown.get_str("reason").expect("text").contains("body"), "{shown}");
    log.commit(order("a", 2)).await.expect("others go on");
    store.close().await;
}

/// What was inserted while nobody sequenced is found, from the stored position and from the collections.
#[tokio::test]
async fn what_came_while_no_process_was_there_is_sequenced() {
    let databases = Databases::new();
    let database = databases.database().await;
    let commits = database.collection::<Document>("order_event_stream");
    // Before there was a store: in an order that only the running maximum of times respects.
    for (id, aggregate, version, time) in
        [("x2", "x", 2, 5), ("y1", "y", 1, 20), ("x1", "x", 1, 30), ("z1", "z", 1, 10)]
    {
        commits.insert_one(wow_commit(id, aggregate, version, time)).await.expect("inserted");
    }
    let store = databases.store(Options::default()).await;
    let log = log_of(&store);
    until_head(&log, 4).await;
    let order_of = |events: &[RecordedEvent]| {
        events.iter().map(|event| format!("{}{}", event.commit.aggregate.id, event.commit.version)).collect::<Vec<_>>()
    };
    assert_eq!(order_of(&whole(&log).await), ["z1", "y1", "x1", "x2"]);
    store.close().await;
    // While it was closed.
    commits.insert_one(wow_commit("y2", "y", 2, 1)).await.expect("inserted");
    let store = databases.store(Options::default()).await;
    until_head(&log_of(&store), 5).await;
    store.close().await;
    // The position is of another oplog, as after it was overwritten.
    commits.insert_one(wow_commit("z2", "z", 2, 1)).await.expect("inserted");
    let state = database.collection::<Document>("sequencer-state");
    let forged = doc! { "$set": { "token": { "_data": "826000000000000001" } } };
    state.update_one(doc! { "_id": "event-log" }, forged).await.expect("updated");
    let store = databases.store(Options::default()).await;
    let log = log_of(&store);
    until_head(&log, 6).await;
    log.commit(order("x", 9)).await.expect("and it goes on");
    let events = whole(&log).await;
    assert_numbers(&events);
    assert_eq!(order_of(&events), ["z1", "y1", "x1", "x2", "y2", "z2", "x3"]);
    store.close().await;
}

/// Of many processes one leads; commits of all get numbers, and when the leader goes another takes over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_leads_among_many_and_is_succeeded() {
    let databases = Databases::new();
    let first = databases.store(Options::default()).await;
    log_of(&first).commit(order("a", 0)).await.expect("committed");
    let second = databases.store(Options::default()).await;
    let third = databases.store(Options::default()).await;
    let logs = [log_of(&first), log_of(&second), log_of(&third)];
    let write = |log: Arc<dyn EventLog>, name: &'static str| {
        tokio::spawn(async move {
            for n in 0..20 {
                log.commit(order(name, n)).await.expect("committed");
            }
        })
    };
    let writers = [write(logs[1].clone(), "b"), write(logs[2].clone(), "c"), write(logs[2].clone(), "d")];
    for n in 0..5 {
        logs[0].commit(order("a", n)).await.expect("committed");
    }
    first.close().await;
    for writer in writers {
        writer.await.expect("the writer ends well");
    }
    let events = whole(&logs[1]).await;
    assert_eq!(events.len(), 66);
    assert_numbers(&events);
    let read = logs[2].read_aggregate(AggregateQuery::new(Aggregate::new("order", "b"))).await.expect("read");
    assert_eq!(read.version, 20);
    tokio::join!(second.close(), third.close());
}

/// A sequencer that was deposed, or runs beside another by mistake, writes nothing: the offset is the fence.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_that_lead_at_once_write_every_commit_once() {
    let databases = Databases::new();
    let (first, second) = (databases.store(Options::default()).await, databases.store(Options::default()).await);
    let state = databases.database().await.collection::<Document>("sequencer-state");
    let (one, two) = (log_of(&first), log_of(&second));
    for n in 0..30 {
        if n % 10 == 5 {
            // Free for the taking while its holder still leads.
            let now = vec![doc! { "$set": { "until": "$$NOW" } }];
            state.update_one(doc! { "_id": "lease" }, now).await.expect("updated");
        }
        let (a, b) = tokio::join!(one.commit(order("a", n)), two.commit(order("b", n)));
        a.expect("committed");
        b.expect("committed");
    }
    let events = whole(&one).await;
    assert_eq!(events.len(), 60);
    assert_numbers(&events);
    tokio::join!(first.close(), second.close());
}
