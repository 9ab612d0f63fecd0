//! Reads that examine much and find nothing: they give way to others, and followers advance.

use std::sync::Arc;

use annals_core::{Aggregate, Data, EventLog, Follower, NewCommit, NewEvent, ReadError, Timestamp};
use tokio::runtime::Builder;

use super::*;
use crate::log::Log;
use crate::log::stats::give_way;

const EVENTS: u64 = 1_000;

fn event(tags: &[&'static str]) -> NewEvent {
    tags.iter().fold(NewEvent::new("placed", Data::empty()), |event, tag| event.tag(*tag))
}

fn both() -> Filter {
    Filter { tags: vec!["x".into(), "y".into()], ..Filter::default() }
}

/// A log of one aggregate in which every commit has both tags and no event has.
async fn spread(commits: u64) -> Arc<Log> {
    let log = Arc::new(Log::in_memory());
    for _ in 0..commits {
        let others = (1..EVENTS).map(|_| event(&["y"]));
        let events = std::iter::once(event(&["x"])).chain(others).collect();
        log.commit(NewCommit { events, ..NewCommit::new("order", "many") }).await.expect("it is committed");
    }
    log
}

/// How often another task of the same thread has a turn while this is read.
async fn turns_beside<T: Send + 'static>(
    read: impl Future<Output = Result<T, ReadError>> + Send + 'static,
) -> (usize, T) {
    let reading = tokio::spawn(read);
    // A task like the read, which waits in the same queue. The future that a runtime blocks on, and what yields as tokio does, has a turn
    // only after many of others.
    let counting = tokio::spawn(async move {
        let mut turns = 0;
        while !reading.is_finished() {
            turns += 1;
            give_way().await;
        }
        (turns, reading.await.expect("no panic").expect("it is read"))
    });
    counting.await.expect("no panic")
}

#[test]
fn a_read_that_examines_much_and_finds_nothing_gives_way_to_others() {
    /// A read in one piece leaves one turn at most.
    const TURNS: usize = 5;
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        let log = spread(400).await;
        for backwards in [false, true] {
            let (log, query) = (log.clone(), LogQuery { backwards, filter: both(), ..LogQuery::default() });
            let (turns, page) = turns_beside(async move { log.read(query).await }).await;
            assert!(page.events.is_empty() && turns > TURNS, "{turns} turns, backwards: {backwards}");
        }
        for last in [false, true] {
            let of = AggregateQuery::new(Aggregate::new("order", "many"));
            let (log, query) = (log.clone(), AggregateQuery { from_time: Some(Timestamp::LAST_WRITABLE), last, ..of });
            let (turns, found) = turns_beside(async move { log.read_aggregate(query).await }).await;
            assert!(found.commits.is_empty() && turns > TURNS, "{turns} turns, the last: {last}");
        }
    });
}

/// A follower is cancelled now and then, for example to send a comment, and then resumes at its position. What was too long for it is
/// shorter the next time, and what was short is longer.
#[test]
fn a_follower_of_few_events_advances_before_it_has_seen_the_whole_log() {
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        let log = spread(140).await;
        let mut follower = Follower::new(log.clone(), 0, both());
        tokio::select! {
            biased;
            found = follower.step() => panic!("it yields before the end of its range: {found:?}"),
            () = std::future::ready(()) => {}
        }
        assert_eq!(follower.position(), 0);
        for position in [32_768, 98_304] {
            assert_eq!(follower.step().await.expect("it is read"), []);
            assert_eq!(follower.position(), position);
        }
        log.commit(NewCommit::new("order", "other").event(event(&["x", "y"]))).await.expect("it is committed");
        let found = follower.next_page().await.expect("it is read");
        assert_eq!(found.iter().map(|event| event.sequence_number).collect::<Vec<_>>(), [140 * EVENTS]);
        assert_eq!(follower.position(), 140 * EVENTS + 1);
    });
}

/// Ranges and pages end inside commits, and where one ends the next begins.
#[test]
fn a_follower_that_reads_range_by_range_gets_each_event_once() {
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        let log = Arc::new(Log::in_memory());
        let mut wanted = Vec::new();
        for commit in 0..160 {
            // More than a page in a row, some at the ends of commits, and none for two ranges.
            let matches = |n: u64| match commit {
                3..6 => n.is_multiple_of(2),
                6..24 => n == 0 || n == EVENTS - 1,
                _ => commit == 159 && n == 1,
            };
            let tags = |n| -> &[&'static str] { if matches(n) { &["y", "x"] } else { &["y"] } };
            let events = (0..EVENTS).map(|n| event(tags(n))).collect();
            log.commit(NewCommit { events, ..NewCommit::new("order", "many") }).await.expect("it is committed");
            wanted.extend((0..EVENTS).filter(|n| matches(*n)).map(|n| commit * EVENTS + n));
        }
        let mut follower = Follower::new(log.clone(), 0, both());
        let mut found = Vec::new();
        while follower.position() < 160 * EVENTS {
            let before = follower.position();
            let events = follower.step().await.expect("it is read");
            let passed = before..follower.position();
            assert!(events.len() <= limits::PAGE_MAX && !passed.is_empty());
            assert!(events.iter().all(|event| passed.contains(&event.sequence_number)), "{passed:?}");
            found.extend(events.iter().map(|event| event.sequence_number));
        }
        assert_eq!(found, wanted);
    });
}
