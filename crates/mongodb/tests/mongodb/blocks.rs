//! Blocks of entries: they say what the entries say, spare them to readers, and are not believed when the log says something else.

use std::ops::ControlFlow;
use std::sync::Arc;

use annals_core::{
    Data, EventLog, Filter, Follower, LogQuery, NewCommit, Reached, RecordedEvent, ScanQuery, Store, limits,
};
use annals_mongodb::Options;
use mongodb::Database;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, Document, doc};
use tokio::task::JoinSet;

use crate::server::{Databases, log_of, order, until, wow_commit};
use crate::whole::all;

/// Commits of a block.
const BLOCK: u64 = 1000;

/// So many commits of 1 to 3 events, of 25 aggregates.
async fn fill(log: &Arc<dyn EventLog>, name: &str, commits: u64) {
    const AGGREGATES: u64 = 25;
    let mut tasks = JoinSet::new();
    for aggregate in 0..AGGREGATES {
        let (log, id) = (log.clone(), format!("{name}-{aggregate}"));
        tasks.spawn(async move {
            for n in 1..=commits / AGGREGATES {
                let mut commit = order(&id, n);
                let event = commit.events[0].clone();
                commit.events.extend((0..n % 3).map(|_| event.clone()));
                log.commit(commit.wait_until(Reached::Committed)).await.expect("committed");
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.expect("it ends well");
    }
}

async fn blocks(database: &Database) -> Vec<Document> {
    all(database, "annals-blocks", doc! { "_id": 1 }).await
}

fn number(bytes: &mut impl Iterator<Item = u8>) -> Option<u64> {
    let (mut value, mut shift) = (0, 0);
    loop {
        let byte = bytes.next()?;
        value |= u64::from(byte % 128) << shift;
        shift += 7;
        if byte < 128 {
            return Some(value);
        }
    }
}

/// What a block says, read as its layout is documented: number, events, collection and id of each commit.
fn said(block: &Document) -> Vec<(i64, i64, String, String)> {
    let collections = block.get_array("colls").expect("an array");
    let mut bytes = block.get_binary_generic("commits").expect("binary").iter().copied();
    let mut next = block.get_i64("_id").expect("a number");
    let mut said = Vec::new();
    while let Some(count) = number(&mut bytes) {
        let collection = &collections[number(&mut bytes).expect("a place") as usize];
        let id = match number(&mut bytes).expect("an id") {
            0 => {
                let hex: String = bytes.by_ref().take(16).map(|byte| format!("{byte:02x}")).collect();
                let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
                parts.join("-")
            }
            more => String::from_utf8(bytes.by_ref().take(more as usize - 1).collect()).expect("a text"),
        };
        said.push((next, count as i64, collection.as_str().expect("a text").to_owned(), id));
        next += count as i64;
    }
    assert_eq!(block.get_i64("last").expect("a number"), said.last().expect("a commit").0);
    assert_eq!(block.get_i64("end").expect("a number"), next);
    said
}

/// Blocks are a chain from 0 on, and each says what the entries say.
async fn compare(database: &Database) -> usize {
    let blocks = blocks(database).await;
    let said: Vec<_> = blocks.iter().flat_map(said).collect();
    let entries = all(database, "event-log-commits", doc! { "_id": 1 }).await;
    let entry = |entry: &Document| {
        let text = |key| entry.get_str(key).expect("a text").to_owned();
        let (first, count) = (entry.get_i64("_id").expect("a number"), entry.get_i32("n").expect("a number"));
        (first, i64::from(count), text("coll"), text("commit"))
    };
    assert!(said.len() <= entries.len());
    assert_eq!(said, entries[..said.len()].iter().map(entry).collect::<Vec<_>>());
    blocks.len()
}

async fn until_blocks(database: &Database, count: usize) {
    let stored = database.collection::<Document>("annals-blocks");
    until("blocks", async || stored.count_documents(doc! {}).await.expect("counted") >= count as u64).await;
}

async fn until_logged(database: &Database, commits: u64) {
    let entries = database.collection::<Document>("event-log-commits");
    until("all is logged", async || entries.count_documents(doc! {}).await.expect("counted") == commits).await;
}

async fn scanned(log: &Arc<dyn EventLog>, query: ScanQuery) -> (u64, Vec<(u64, String)>) {
    let mut seen = Vec::new();
    let mut visit = |event: annals_core::EventRef<'_>| {
        seen.push((event.sequence_number, event.id.to_string()));
        ControlFlow::Continue(())
    };
    let end = log.scan(query, &mut visit).await.expect("scanned");
    (end, seen)
}

/// The events from a number to another, as a follower with this page size gets them.
async fn paged(log: &Arc<dyn EventLog>, from: u64, to: u64, limit: usize) -> Vec<RecordedEvent> {
    let mut events: Vec<RecordedEvent> = Vec::new();
    let mut next = from;
    while next < to {
        let page = log.read(LogQuery { from: Some(next), limit, ..LogQuery::default() }).await.expect("read");
        assert!(
            page.events.len() <= limit && page.next > next && page.next <= page.head,
            "{} {}",
            page.next,
            page.head
        );
        next = page.next;
        events.extend(page.events);
    }
    events.truncate((to - from) as usize);
    events
}

/// Small pages are read from the entries, which are the measure of everything else.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_is_the_same_read_through_blocks_and_through_entries() {
    let databases = Databases::new();
    let store = databases.store(Options::default()).await;
    let log = log_of(&store);
    let database = databases.database().await;
    let theirs = database.collection::<Document>("order_event_stream");
    // Other software's ids are no UUIDs.
    log.commit(order("a", 1)).await.expect("committed");
    theirs.insert_one(wow_commit("0Rmt0000000001", "w-1", 1, 1_700_000_000_000)).await.expect("inserted");
    fill(&log, "many", 2 * BLOCK + 200).await;
    until_blocks(&database, 2).await;
    fill(&log, "more", 100).await;
    assert_eq!(compare(&database).await, 2);
    until_logged(&database, 2 * BLOCK + 302).await;
    // What is written last may not be majority committed yet.
    let events = database.collection::<Document>("event-log").count_documents(doc! {}).await.expect("counted");
    until("the head", async || log.head().await.expect("read") == events).await;
    let head = events;
    let all = paged(&log, 0, head, 50).await;
    assert!(all.iter().enumerate().all(|(place, event)| event.sequence_number == place as u64));
    let ids: Vec<(u64, String)> = all.iter().map(|event| (event.sequence_number, event.id.to_string())).collect();
    let last = head - 1;
    for (from, limit) in [(0, 1000), (1, 1000), (0, 100), (1999, 100), (2001, 777), (head - 700, 1000), (last, 1000)] {
        assert_eq!(paged(&log, from, head, limit).await, all[from as usize..], "from {from} by {limit}");
    }
    for (from, to) in
        [(0, head), (1, head - 1), (1500, 1501), (1999, 2003), (3000, u64::MAX), (last, head), (head, head + 5)]
    {
        let (end, seen) = scanned(&log, ScanQuery { from, to, ..ScanQuery::default() }).await;
        let end_due = to.min(head).max(from.min(head));
        assert_eq!((end, &seen[..]), (end_due, &ids[from as usize..end_due as usize]), "from {from} to {to}");
    }
    let few = Filter { tags: vec!["none".into()], ..Filter::default() };
    assert_eq!(scanned(&log, ScanQuery { filter: few, ..ScanQuery::default() }).await, (head, Vec::new()));
    let mut follower = Follower::new(log.clone(), 0, Filter::default());
    let mut followed = Vec::new();
    while follower.position() < head {
        followed.extend(follower.next_page().await.expect("read"));
    }
    assert_eq!(followed, all);
    store.close().await;
}

/// That is what they are for. The entry that proves a block is the one that must be there.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_block_holds_is_read_without_its_entries() {
    let databases = Databases::new();
    let store = databases.store(Options::default()).await;
    let log = log_of(&store);
    let database = databases.database().await;
    fill(&log, "many", BLOCK + 200).await;
    until_blocks(&database, 1).await;
    until_logged(&database, BLOCK + 200).await;
    let end = blocks(&database).await[0].get_i64("end").expect("a number") as u64;
    let all = paged(&log, 0, end, 50).await;
    let stored = database.collection::<Document>("event-log-commits");
    stored.delete_many(doc! { "_id": { "$gte": 100, "$lt": end as i64 - 100 } }).await.expect("deleted");
    assert_eq!(paged(&log, 3, end - 900, 300).await, all[3..end as usize - 900]);
    let (_, seen) = scanned(&log, ScanQuery { to: end, ..ScanQuery::default() }).await;
    assert_eq!(seen.len() as u64, end);
    store.close().await;
}

/// As after a part of the database was restored: what a block says is not in the log, and what is in the log is read.
#[tokio::test(flavor = "multi_thread")]
async fn blocks_of_another_time_are_not_believed_and_are_written_again() {
    let databases = Databases::new();
    let store = databases.store(Options::default()).await;
    let log = log_of(&store);
    let database = databases.database().await;
    fill(&log, "many", 2 * BLOCK + 50).await;
    until_blocks(&database, 2).await;
    until_logged(&database, 2 * BLOCK + 50).await;
    let written = blocks(&database).await;
    let head = log.head().await.expect("read");
    let all = paged(&log, 0, head, 50).await;
    store.close().await;
    let stored = database.collection::<Document>("annals-blocks");
    // The first is one of another log, the second cannot be read, and behind them stands one of numbers that are not there.
    let other = |first: i64, end: i64, last: i64, commits: Vec<u8>| {
        let commits = Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes: commits });
        doc! { "_id": first, "end": end, "last": last, "colls": ["order_event_stream"], "commits": commits }
    };
    let foreign: Vec<u8> = (0..BLOCK).flat_map(|n| [vec![1, 0, 0], vec![n as u8; 16]].concat()).collect();
    let second = written[1].get_i64("_id").expect("a number");
    stored
        .replace_one(doc! { "_id": 0_i64 }, other(0, BLOCK as i64, BLOCK as i64 - 1, foreign.clone()))
        .await
        .expect("replaced");
    stored
        .replace_one(doc! { "_id": second }, other(second, second + 9, second + 8, vec![200]))
        .await
        .expect("replaced");
    let beyond = head as i64 + 1000;
    let last = beyond + BLOCK as i64;
    stored.insert_one(other(beyond, last, last - 1, foreign)).await.expect("inserted");
    let store = databases.store(Options::default()).await;
    let log = log_of(&store);
    assert_eq!(paged(&log, 0, head, 1000).await, all);
    let (end, seen) = scanned(&log, ScanQuery::default()).await;
    assert_eq!((end, seen.len() as u64), (head, head));
    until("they are as they were", async || blocks(&database).await == written).await;
    assert_eq!(paged(&log, 0, head, 1000).await, all);
    store.close().await;
}

/// The lease is taken from its holder again and again, so that two write blocks at once: it is one chain all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_was_there_before_gets_its_blocks_whoever_leads() {
    let databases = Databases::new();
    let store = databases.store(Options::default()).await;
    let log = log_of(&store);
    let database = databases.database().await;
    fill(&log, "many", 5 * BLOCK + 50).await;
    until_blocks(&database, 5).await;
    store.close().await;
    let written = blocks(&database).await;
    // As if they had been dropped while the last one was still to be written.
    let stored = database.collection::<Document>("annals-blocks");
    stored.delete_many(doc! { "_id": { "$lt": written[4].get_i64("_id").expect("a number") } }).await.expect("deleted");
    let stores = [databases.store(Options::default()).await, databases.store(Options::default()).await];
    let state = database.collection::<Document>("sequencer-state");
    let mut looks = 0;
    until("they are written again", async || {
        looks += 1;
        if looks % 10 == 1 {
            let now = vec![doc! { "$set": { "until": "$$NOW" } }];
            state.update_one(doc! { "_id": "lease" }, now).await.expect("updated");
        }
        blocks(&database).await == written
    })
    .await;
    for store in stores {
        store.close().await;
    }
}

/// How many commits are asked for together rests on the size of those before: then come some of a megabyte each.
#[tokio::test(flavor = "multi_thread")]
async fn commits_much_larger_than_those_before_them_are_read_in_parts() {
    const LARGE: u64 = 24;
    let databases = Databases::new();
    let store = databases.store(Options::default()).await;
    let log = log_of(&store);
    fill(&log, "small", BLOCK + 200).await;
    let text = "x".repeat(1024 * 1024);
    let large = |n: u64| -> NewCommit {
        let mut commit = order("large", n);
        commit.events[0].data = Data::from_value(&serde_json::json!({ "text": &text })).expect("an object");
        commit
    };
    for n in 1..=LARGE {
        log.commit(large(n)).await.expect("committed");
    }
    fill(&log, "behind", 50).await;
    until_logged(&databases.database().await, BLOCK + 200 + LARGE + 50).await;
    let head = log.head().await.expect("read");
    let (end, seen) = scanned(&log, ScanQuery::default()).await;
    assert_eq!((end, seen.len() as u64), (head, head));
    assert!(seen.iter().enumerate().all(|(place, (number, _))| *number == place as u64));
    let paged = paged(&log, 0, head, limits::PAGE_MAX).await;
    assert_eq!(paged.iter().map(|event| event.sequence_number).collect::<Vec<_>>(), (0..head).collect::<Vec<_>>());
    assert_eq!(paged.iter().filter(|event| event.data.as_bytes().len() > text.len()).count() as u64, LARGE);
    store.close().await;
}
