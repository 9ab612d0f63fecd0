//! Reads of a log whose pieces are of different moments.

use annals_core::{Code, Filter, Follower, LogQuery, Reached, ReadError, ScanQuery, Store, StoreError};
use annals_mongodb::Options;
use mongodb::bson::{Document, doc};
use std::ops::ControlFlow;

use crate::server::{Databases, log_of, order, until};

/// For a moment a new primary may show an earlier state of a majority. It is made here by hand: the number of events is written back
/// and forth while others read.
#[tokio::test]
async fn a_head_that_goes_back_for_a_moment_sends_nobody_back() {
    let databases = Databases::new();
    let store = databases.store(Options::default()).await;
    let log = log_of(&store);
    for n in 1..=3 {
        log.commit(order("a", n)).await.expect("committed");
    }
    assert_eq!(log.head().await, Ok(3));
    let metadata = databases.database().await.collection::<Document>("event-log-metadata");
    let set = async |next: i64| {
        let filter = doc! { "_id": "event-log" };
        let before = metadata.find_one(filter.clone()).await.expect("read").expect("it is there");
        let next = match before.get("NextEventOffset") {
            Some(mongodb::bson::Bson::Decimal128(_)) => {
                mongodb::bson::Bson::Decimal128(next.to_string().parse().expect("a decimal"))
            }
            _ => mongodb::bson::Bson::Int64(next),
        };
        metadata.update_one(filter, doc! { "$set": { "NextEventOffset": next } }).await.expect("written");
    };
    let moving = async {
        for _ in 0..40 {
            set(1).await;
            set(3).await;
        }
    };
    let reading = async {
        for from in [3, 1, 3].into_iter().cycle().take(120) {
            let backwards = LogQuery { from: Some(from), limit: 10, backwards: true, ..LogQuery::default() };
            let forwards = LogQuery { backwards: false, ..backwards.clone() };
            if let Some(page) = or_later(log.read(forwards).await) {
                assert_eq!((page.next, page.head, page.events.len() as u64), (3, 3, 3 - from));
            }
            if let Some(page) = or_later(log.read(backwards).await) {
                assert_eq!((page.next, page.head, page.events.len() as u64), (0, 3, from));
            }
            let mut visited = 0;
            let mut visit = |_: annals_core::EventRef<'_>| {
                visited += 1;
                ControlFlow::Continue(())
            };
            if let Some(end) = or_later(log.scan(ScanQuery::default(), &mut visit).await) {
                assert_eq!((end, visited), (3, 3));
            }
        }
    };
    tokio::join!(moving, reading);
    until("the log is as it was", async || log.head().await == Ok(3)).await;
    store.close().await;
}

/// What was read; none where the store says that it cannot be read now.
fn or_later<T: std::fmt::Debug>(read: Result<T, ReadError>) -> Option<T> {
    match read {
        Ok(read) => Some(read),
        Err(ReadError::Store(StoreError::Unreachable(_) | StoreError::Other { code: Code::ForeignNumbers, .. })) => {
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Entries that are not shown yet, though the head counts them: made by hand, by taking an entry away and putting it back.
#[tokio::test]
async fn a_follower_never_passes_over_events_that_are_counted_and_cannot_be_seen_yet() {
    let databases = Databases::new();
    let store = databases.store(Options::default()).await;
    let log = log_of(&store);
    for n in 1..=5 {
        log.commit(order("a", n)).await.expect("committed");
    }
    let entries = databases.database().await.collection::<Document>("event-log-commits");
    for hidden in [0_i64, 2, 4] {
        let entry = entries.find_one_and_delete(doc! { "_id": hidden }).await.expect("deleted").expect("it was there");
        let mut follower = Follower::new(log.clone(), 0, Filter::default());
        let mut seen = Vec::new();
        while (seen.len() as i64) < hidden {
            let page = follower.next_page().await.expect("what is before it can be read");
            seen.extend(page.into_iter().map(|event| event.sequence_number));
        }
        let behind = follower.next_page().await;
        assert!(behind.is_err(), "{behind:?} instead of event {hidden}");
        assert_eq!(follower.position(), hidden as u64);
        entries.insert_one(entry).await.expect("put back");
        until("the rest", async || match follower.next_page().await {
            Ok(page) => {
                seen.extend(page.into_iter().map(|event| event.sequence_number));
                true
            }
            Err(_) => false,
        })
        .await;
        assert_eq!(seen, [0, 1, 2, 3, 4]);
    }
    store.close().await;
}

/// Pages are begun ahead of who goes from one to the next: several do at once, from different numbers and inside of commits, while the log
/// grows.
#[tokio::test]
async fn who_goes_from_page_to_page_gets_every_event_once_while_the_log_grows() {
    const COMMITS: u64 = 300;
    const EVENTS: u64 = 7;
    let databases = Databases::new();
    let store = databases.store(Options::default()).await;
    let log = log_of(&store);
    let commit = async |n: u64| {
        let mut commit = order(&format!("a{}", n % 10), n);
        while commit.events.len() < EVENTS as usize {
            let event = commit.events[0].clone();
            commit = commit.event(event);
        }
        log.commit(commit.wait_until(Reached::Committed)).await.expect("committed");
    };
    let some = async |from: u64| {
        for n in from..from + COMMITS {
            commit(n).await;
        }
    };
    some(0).await;
    until("the first half", async || log.head().await == Ok(COMMITS * EVENTS)).await;
    let all = 2 * COMMITS * EVENTS;
    let read = async |mut from: u64, limit: usize| {
        let mut next = from;
        while next < all {
            let query = LogQuery { from: Some(from), limit, ..LogQuery::default() };
            let page = log.read(query).await.expect("read");
            assert!(page.head >= page.next && page.next >= from, "{} {}", page.head, page.next);
            for event in &page.events {
                assert_eq!(event.sequence_number, next, "from {from}");
                assert_eq!(u64::from(event.ordinal), next % EVENTS);
                next += 1;
            }
            assert_eq!(page.next, next, "from {from}");
            if page.events.is_empty() {
                log.wait_past(next).await.expect("more comes");
            }
            from = page.next;
        }
    };
    tokio::join!(some(COMMITS), read(0, 100), read(3, 100), read(500, 250), read(0, 1000), read(1999, 128));
    // Once more where all of it is there.
    tokio::join!(read(0, 100), read(11, 100), read(0, 1000));
    assert_eq!(log.head().await, Ok(all));
    store.close().await;
}
