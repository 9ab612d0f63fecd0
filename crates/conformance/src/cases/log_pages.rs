//! Reading the log page by page, forwards and backwards.

use std::sync::Arc;

use annals_core::{Code, EventLog, Filter, LogPage, LogQuery, NewCommit, ReadError, limits};

use crate::Subject;
use crate::sample::{commit, event, event_of_bytes, ns_of, open, order, pages, reopen, whole_log};

async fn read(log: &Arc<dyn EventLog>, query: LogQuery) -> LogPage {
    log.read(query).await.expect("the page is read")
}

fn from(number: u64) -> LogQuery {
    LogQuery { from: Some(number), ..LogQuery::default() }
}

fn back_from(number: Option<u64>, limit: usize) -> LogQuery {
    LogQuery { from: number, limit, backwards: true, ..LogQuery::default() }
}

async fn log_of_ten(log: &Arc<dyn EventLog>) {
    for n in 0..10 {
        commit(log, order(&format!("a-{}", n % 3), n)).await;
    }
}

/// A read forwards begins at 0, and one backwards at the head.
pub async fn forwards_begins_at_0_and_backwards_at_the_head(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    log_of_ten(&log).await;
    let page = read(&log, LogQuery { limit: 3, ..LogQuery::default() }).await;
    assert_eq!((ns_of(&page.events), page.next, page.head), (vec![0, 1, 2], 3, 10));
    let page = read(&log, back_from(None, 3)).await;
    assert_eq!((ns_of(&page.events), page.next, page.head), (vec![9, 8, 7], 7, 10));
}

/// `from` is the position before the event with that number: forwards begins with that event, backwards with the one before.
pub async fn from_stands_between_events(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    log_of_ten(&log).await;
    assert_eq!(ns_of(&read(&log, from(4)).await.events), [4, 5, 6, 7, 8, 9]);
    assert_eq!(ns_of(&read(&log, back_from(Some(4), 100)).await.events), [3, 2, 1, 0]);
    assert_eq!(ns_of(&read(&log, back_from(Some(1), 100)).await.events), [0]);
    let page = read(&log, back_from(Some(0), 100)).await;
    assert_eq!((page.events.len(), page.next, page.head), (0, 0, 10));
}

/// One event is read by its number.
pub async fn one_event_is_read_by_its_number(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    log_of_ten(&log).await;
    for n in 0..10 {
        let page = read(&log, LogQuery { limit: 1, ..from(n) }).await;
        assert_eq!((ns_of(&page.events), page.next), (vec![n], n + 1));
    }
}

/// Past the end, forwards finds nothing and resumes from the head; backwards begins at the head.
pub async fn past_the_end_is_the_head(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    log_of_ten(&log).await;
    for number in [10, 11, 1_000, u64::MAX] {
        let page = read(&log, from(number)).await;
        assert_eq!((page.events.len(), page.next, page.head), (0, 10, 10));
        let page = read(&log, back_from(Some(number), 2)).await;
        assert_eq!((ns_of(&page.events), page.next, page.head), (vec![9, 8], 8, 10));
    }
}

/// An empty page is the end, and only the end is an empty page, even with a filter that rarely or never matches.
pub async fn an_empty_page_is_the_end(subject: &dyn Subject) {
    let (store, log) = open(subject).await;
    for n in 0..1_500 {
        let rare = n == 700 || n == 1_400;
        let event = event(if rare { "rare" } else { "common" }, n);
        commit(&log, NewCommit::new("order", format!("a-{}", n % 10)).event(event)).await;
    }
    let (_store, log) = reopen(subject, store, log).await;
    let rare = Filter { types: vec!["rare".into()], ..Filter::default() };
    let never = Filter { types: vec!["never".into()], ..Filter::default() };
    for backwards in [false, true] {
        let (start, end) = if backwards { (None, 0) } else { (Some(0), 1_500) };
        let query = LogQuery { from: start, limit: 10, backwards, filter: rare.clone() };
        let mut expected = vec![700, 1_400];
        if backwards {
            expected.reverse();
        }
        assert_eq!(ns_of(&pages(&log, query.clone()).await), expected);
        let page = read(&log, LogQuery { filter: never.clone(), ..query }).await;
        assert_eq!((page.events.len(), page.next, page.head), (0, end, 1_500));
    }
}

/// Resuming from `next` covers every event once, with every limit, in both directions.
pub async fn pages_cover_every_event_once(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    for n in 0..50 {
        commit(&log, order("a", 2 * n).event(event("order_changed", 2 * n + 1))).await;
    }
    let all: Vec<_> = (0..100).collect();
    for limit in [1, 2, 3, 7, 99, 100, 101, 1_000] {
        assert_eq!(ns_of(&pages(&log, LogQuery { limit, ..LogQuery::default() }).await), all);
        let mut backwards = ns_of(&pages(&log, back_from(None, limit)).await);
        backwards.reverse();
        assert_eq!(backwards, all);
    }
}

/// A page has 100 events by default, and 1,000 at most; 0 and more than 1,000 are refused.
pub async fn a_limit_is_1_to_1000(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    let events = (0..1_100).map(|n| event("t", n)).collect();
    commit(&log, NewCommit { events, ..NewCommit::new("order", "a") }).await;
    assert_eq!(read(&log, LogQuery::default()).await.events.len(), 100);
    assert_eq!(read(&log, LogQuery { limit: 1_000, ..LogQuery::default() }).await.events.len(), 1_000);
    for limit in [0, 1_001, usize::MAX] {
        for backwards in [false, true] {
            match log.read(LogQuery { limit, backwards, ..LogQuery::default() }).await {
                Err(ReadError::Invalid(invalid)) => {
                    assert_eq!((invalid.code, &*invalid.path), (Code::InvalidQuery, "limit"));
                }
                other => panic!("limit {limit} must be refused, not {other:?}"),
            }
        }
    }
}

/// Events of the largest size are all read. Each page holds at least one, however much a page may hold.
pub async fn the_largest_events_are_all_read(subject: &dyn Subject) {
    let (store, log) = open(subject).await;
    for n in 0..4 {
        let big = event_of_bytes("big", limits::EVENT_BYTES_MAX);
        commit(&log, NewCommit::new("order", format!("a-{n}")).event(big)).await;
    }
    let (_store, log) = reopen(subject, store, log).await;
    let events = whole_log(&log).await;
    assert_eq!(events.len(), 4);
    assert!(events.iter().all(|event| event.data.as_bytes().len() == limits::EVENT_BYTES_MAX));
    assert_eq!(pages(&log, back_from(None, 1_000)).await.len(), 4);
    for n in 0..4 {
        let commits = crate::sample::commits_of(&log, crate::sample::order_aggregate(&format!("a-{n}"))).await;
        assert_eq!(commits[0].events[..], events[n..=n]);
    }
}

/// Pages read while commits are made are a prefix of the final log.
pub async fn pages_read_while_commits_are_made_show_a_prefix(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    let writer = tokio::spawn({
        let log = log.clone();
        async move {
            for n in 0..300 {
                commit(&log, order(&format!("a-{}", n % 5), n)).await;
            }
        }
    });
    let mut last = Vec::new();
    while last.len() < 300 {
        let now = whole_log(&log).await;
        assert_eq!(now[..last.len()], last[..]);
        last = now;
        let mut backwards = pages(&log, back_from(None, 50)).await;
        backwards.reverse();
        assert_eq!(backwards[..last.len()], last[..]);
        tokio::task::yield_now().await;
    }
    writer.await.expect("the writer ends well");
}
