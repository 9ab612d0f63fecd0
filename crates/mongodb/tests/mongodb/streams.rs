//! The suite of the port of streams, and two processes that append.

use std::sync::Arc;

use annals_core::{
    DEFAULT_SCOPE, DEFAULT_TENANT, Included, Partitions, Store, StreamEntry, StreamError, StreamFollower, StreamQuery,
    Streams, Verdicts, limits,
};
use annals_mongodb::{MongoStore, Options};

use crate::conformance::Mongo;
use crate::server::{Databases, log_of, order};

mod replica_set {
    use super::*;
    annals_conformance::streams!(Mongo::new());
}

/// The streams of the tenant `default`.
pub fn streams_of(store: &MongoStore) -> Arc<dyn Streams> {
    store.streams(DEFAULT_TENANT, DEFAULT_SCOPE).expect("the tenant is declared")
}

/// Commits so many events.
pub async fn write(store: &MongoStore, events: u64) {
    let log = log_of(store);
    let first = log.head().await.expect("the head is read");
    let mut all = order("a", first);
    all.events.extend((first + 1..first + events).flat_map(|n| order("a", n).events));
    log.commit(all).await.expect("committed");
}

/// All entries of a stream, whose positions must have no hole.
pub async fn whole(streams: &Arc<dyn Streams>, stream: &str) -> Vec<StreamEntry> {
    let mut query = StreamQuery { limit: limits::PAGE_MAX, ..StreamQuery::new(stream.to_owned()) };
    let mut all = Vec::new();
    loop {
        let page = streams.read(query.clone()).await.expect("a page");
        if page.entries.is_empty() {
            assert!(all.iter().zip(0..).all(|(entry, position): (&StreamEntry, u64)| entry.position == position));
            return all;
        }
        all.extend(page.entries);
        query.from = page.next;
    }
}

/// Two processes run the same filter: each verdict is stored once, and both find that it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_with_one_filter_append_each_event_once() {
    let databases = Databases::new();
    let (first, second) = tokio::join!(databases.store(Options::default()), databases.store(Options::default()));
    write(&first, 200).await;
    let filter = |store: &MongoStore| {
        let streams = streams_of(store);
        tokio::spawn(async move {
            let mut appended = 0;
            for from in (0..200).step_by(5) {
                let run = (from..from + 5).fold(Verdicts::new("s", from..from + 5), |run, n| {
                    if n % 2 == 0 { run.include(Included::of(n, "even")) } else { run }
                });
                let outcome = streams.append(run).await.expect("stored, or stored before");
                appended += u32::from(!outcome.duplicate);
            }
            appended
        })
    };
    let (a, b) = tokio::join!(filter(&first), filter(&second));
    assert_eq!(a.expect("it ends well") + b.expect("it ends well"), 40, "each run is new once");
    let numbers: Vec<_> = whole(&streams_of(&first), "s").await.iter().map(|entry| entry.sequence_number).collect();
    assert_eq!(numbers, (0..200).step_by(2).collect::<Vec<_>>());
    tokio::join!(first.close(), second.close());
}

/// Two processes run different filters on one stream: one of both is told so, and nothing is mixed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_with_different_filters_do_not_mix() {
    let databases = Databases::new();
    let (first, second) = tokio::join!(databases.store(Options::default()), databases.store(Options::default()));
    write(&first, 300).await;
    let filter = |store: &MongoStore, rest: u64| {
        let streams = streams_of(store);
        tokio::spawn(async move {
            let mut stored = Vec::new();
            for from in (0..300).step_by(3) {
                let run = Verdicts::new("s", from..from + 3).include(Included::new(from + rest));
                match streams.append(run).await {
                    Ok(outcome) => {
                        assert!(!outcome.duplicate);
                        stored.push(from + rest);
                    }
                    Err(StreamError::VerdictsDiffer { .. } | StreamError::Moved { .. }) => {}
                    Err(other) => panic!("{other}"),
                }
            }
            stored
        })
    };
    let (a, b) = tokio::join!(filter(&first, 1), filter(&second, 2));
    let mut told = [a.expect("it ends well"), b.expect("it ends well")].concat();
    told.sort_unstable();
    let numbers: Vec<_> = whole(&streams_of(&first), "s").await.iter().map(|entry| entry.sequence_number).collect();
    assert_eq!(numbers, told);
    tokio::join!(first.close(), second.close());
}

/// Whoever waits in one process is woken by an append of another.
#[tokio::test]
async fn a_follower_sees_what_another_process_appends() {
    let databases = Databases::new();
    let (first, second) = tokio::join!(databases.store(Options::default()), databases.store(Options::default()));
    write(&first, 10).await;
    let mut follower = StreamFollower::new(streams_of(&second), "s", 0, Partitions::All);
    let appending = async {
        let streams = streams_of(&first);
        for n in 0..10 {
            streams.append(Verdicts::new("s", n..n + 1).include(Included::new(n))).await.expect("appended");
        }
    };
    let following = async {
        let mut numbers = Vec::new();
        while numbers.len() < 10 {
            let page = follower.next_page().await.expect("a page");
            numbers.extend(page.iter().map(|event| event.event.sequence_number));
        }
        numbers
    };
    let (numbers, ()) = tokio::join!(following, appending);
    assert_eq!(numbers, (0..10).collect::<Vec<_>>());
    tokio::join!(first.close(), second.close());
}
