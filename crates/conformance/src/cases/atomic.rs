//! The events of a commit become visible together or not at all.

use std::collections::HashMap;
use std::sync::Arc;

use annals_core::{AggregateQuery, Code, EventLog, ExpectedVersion, LogQuery, NewCommit, Uuid, limits};

use crate::Subject;
use crate::sample::{
    assert_in_order, commit, commits_of, event, log_of, ns_of, number, open, order, order_aggregate, pages, version_of,
    whole_log,
};

fn order_of_events(id: &str, count: u64) -> NewCommit {
    let events = (0..count).map(|n| event("order_changed", n)).collect();
    NewCommit { events, ..NewCommit::new("order", id) }
}

/// A commit of ten events is read back as one commit, with the same id, version and size.
pub async fn a_commit_of_ten_events_reads_back_as_one_commit(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    let outcome = commit(&log, order_of_events("a", 10)).await;
    let commits = commits_of(&log, order_aggregate("a")).await;
    assert_eq!(commits.len(), 1);
    assert_eq!(commits[0].info.commit_id, outcome.commit_id);
    assert_eq!((commits[0].info.version, outcome.version), (1, 1));
    assert_eq!(ns_of(&commits[0].events), (0..10).collect::<Vec<_>>());
    let ids: Vec<Uuid> = commits[0].events.iter().map(|event| event.id).collect();
    assert_eq!(ids, outcome.event_ids);
}

/// The events of a commit have consecutive sequence numbers, from the one that its outcome names.
pub async fn the_events_of_a_commit_stand_together(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    let mut first = 0;
    for count in [3, 1, 7] {
        let outcome = commit(&log, order_of_events("a", count)).await;
        assert_eq!(number(&outcome), first);
        assert_eq!(outcome.event_ids.len() as u64, count);
        first += count;
    }
    let events = whole_log(&log).await;
    assert_in_order(&events);
    let versions: Vec<_> = events.iter().map(|event| event.commit.version).collect();
    assert_eq!(versions, [1, 1, 1, 2, 3, 3, 3, 3, 3, 3, 3]);
}

/// While commits of many events are made, no reader of the log or of the aggregate sees a part of one.
pub async fn a_reader_never_sees_half_a_commit(subject: &dyn Subject) {
    const EVENTS: u64 = 20;
    let (_store, log) = open(subject).await;
    let writer = tokio::spawn({
        let log = log.clone();
        async move {
            for _ in 0..60 {
                commit(&log, order_of_events("a", EVENTS)).await;
            }
        }
    });
    let mut seen = 0;
    while seen < 60 * EVENTS {
        let query = LogQuery { from: Some(seen), limit: limits::PAGE_MAX, ..LogQuery::default() };
        let page = log.read(query).await.expect("the page is read");
        assert_eq!(page.head % EVENTS, 0, "the head stands between commits");
        assert_eq!(page.events.len() as u64 % EVENTS, 0, "a page that reaches the head holds whole commits");
        seen = page.next;
        let query = AggregateQuery { limit: limits::PAGE_MAX, ..AggregateQuery::new(order_aggregate("a")) };
        let commits = log.read_aggregate(query).await.expect("the aggregate is read").commits;
        assert!(commits.iter().all(|commit| commit.events.len() as u64 == EVENTS), "commits are whole");
        tokio::task::yield_now().await;
    }
    writer.await.expect("the writer ends well");
}

/// A page may end inside a commit because of its limit. The next page continues with the rest of the commit.
pub async fn a_page_that_ends_inside_a_commit_goes_on_there(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    commit(&log, order_of_events("a", 5)).await;
    commit(&log, order_of_events("b", 5)).await;
    for backwards in [false, true] {
        let events = pages(&log, LogQuery { limit: 3, backwards, ..LogQuery::default() }).await;
        let mut numbers: Vec<_> = events.iter().map(|event| event.sequence_number).collect();
        if backwards {
            numbers.reverse();
        }
        assert_eq!(numbers, (0..10).collect::<Vec<_>>());
    }
}

/// A refused commit leaves nothing behind, whatever the reason.
pub async fn a_refused_commit_leaves_nothing(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    commit(&log, order("a", 1).request_id("r-1")).await;
    let refused = [
        (order("a", 2).expect(ExpectedVersion::Empty), Code::VersionConflict),
        (order("b", 2).expect(ExpectedVersion::Exists), Code::VersionConflict),
        (order("a", 2).request_id("r-1"), Code::RequestIdReused),
        (NewCommit { tenant_id: Some("t".into()), ..order("a", 2) }, Code::AggregateOfOtherTenant),
        (NewCommit::new("order", "b"), Code::InvalidEvents),
    ];
    for (bad, code) in refused {
        assert_eq!(log.commit(bad.clone()).await.expect_err("it is refused").code(), code);
        assert_eq!(log.head().await.expect("the head is read"), 1);
        assert_eq!(version_of(&log, order_aggregate("a")).await, 1);
        assert_eq!(version_of(&log, order_aggregate("b")).await, 0);
        if let Some(request) = bad.request_id.filter(|_| bad.aggregate.id != "a") {
            assert!(!log.request_exists(&bad.aggregate, &request).await.expect("the request is looked up"));
        }
    }
    assert_eq!(ns_of(&whole_log(&log).await), [1]);
}

/// A commit has up to 10,000 events, and is then as atomic as any other.
pub async fn a_commit_holds_ten_thousand_events(subject: &dyn Subject) {
    let (store, log) = open(subject).await;
    commit(&log, order("before", 0)).await;
    let outcome = commit(&log, order_of_events("big", 10_000).request_id("big")).await;
    commit(&log, order("after", 0)).await;
    assert_eq!((number(&outcome), outcome.event_ids.len()), (1, 10_000));
    let (_store, log) = crate::sample::reopen(subject, store, log).await;
    let events = whole_log(&log).await;
    assert_eq!(events.len(), 10_002);
    assert_in_order(&events);
    assert_eq!(ns_of(&events[1..10_001]), (0..10_000).collect::<Vec<_>>());
    let commits = commits_of(&log, order_aggregate("big")).await;
    assert_eq!(commits[0].events, events[1..10_001]);
    let again = log.commit(order_of_events("big", 10_000).request_id("big")).await.expect("it is a repeat");
    assert!(again.duplicate);
    assert_eq!(again.event_ids, outcome.event_ids);
}

/// Concurrent commits are checked one by one: a refused one does not affect the others.
pub async fn one_bad_commit_never_fails_its_neighbours(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    commit(&log, order("taken", 0).request_id("r")).await;
    let mut good = Vec::new();
    let mut bad = Vec::new();
    for n in 0..40 {
        let send = |commit: NewCommit| {
            let log = log.clone();
            tokio::spawn(async move { log.commit(commit).await })
        };
        good.push(send(order(&format!("good-{n}"), n)));
        bad.push(send(match n % 4 {
            0 => order("taken", n).expect(ExpectedVersion::Empty),
            1 => order("taken", 1_000 + n).request_id("r"),
            2 => NewCommit { tenant_id: Some("t".into()), ..order("taken", n) },
            _ => NewCommit::new("order", ""),
        }));
    }
    for task in bad {
        task.await.expect("the task ends well").expect_err("a bad commit is refused");
    }
    for task in good {
        assert_eq!(task.await.expect("the task ends well").expect("a good commit is accepted").version, 1);
    }
    assert_in_order(&whole_log(&log).await);
    assert_eq!(log.head().await.expect("the head is read"), 41);
}

/// A commit whose caller went away is stored completely or not at all. A retry shows which, without adding a second.
pub async fn a_commit_whose_caller_went_away_is_whole_or_absent(subject: &dyn Subject) {
    let (store, _log) = open(subject).await;
    let log = log_of(&store, annals_core::DEFAULT_TENANT);
    for n in 0..30 {
        let id = format!("a-{n}");
        let task = tokio::spawn({
            let (log, commit) = (log.clone(), order_of_events(&id, 5).request_id("r"));
            async move { log.commit(commit).await.map(|outcome| outcome.commit_id) }
        });
        for _ in 0..n % 5 {
            tokio::task::yield_now().await;
        }
        task.abort();
        let _ = task.await;
        let retried = log.commit(order_of_events(&id, 5).request_id("r")).await.expect("the retry is accepted");
        assert_eq!(retried.version, 1);
    }
    let mut sizes: HashMap<Uuid, usize> = HashMap::new();
    let events = whole_log(&log).await;
    assert_in_order(&events);
    events.iter().for_each(|event| *sizes.entry(event.commit.commit_id).or_default() += 1);
    assert_eq!(sizes.len(), 30, "each request was committed once");
    assert!(sizes.values().all(|size| *size == 5), "each commit is whole");
}

/// An aggregate that is read while it grows shows complete commits from 1 without a gap.
pub async fn an_aggregate_read_while_it_grows_shows_a_whole_prefix(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    let writer = tokio::spawn({
        let log: Arc<dyn EventLog> = log.clone();
        async move {
            for version in 0..200 {
                commit(&log, order_of_events("a", 3).expect(ExpectedVersion::Exact(version))).await;
            }
        }
    });
    let mut last = 0;
    while last < 200 {
        let query = AggregateQuery { limit: limits::PAGE_MAX, ..AggregateQuery::new(order_aggregate("a")) };
        let read = log.read_aggregate(query).await.expect("the aggregate is read");
        let versions: Vec<_> = read.commits.iter().map(|commit| commit.info.version).collect();
        assert_eq!(versions, (1..=read.version).collect::<Vec<_>>());
        assert!(read.commits.iter().all(|commit| commit.events.len() == 3));
        assert!(read.version >= last, "a later read shows no less");
        last = read.version;
        tokio::task::yield_now().await;
    }
    writer.await.expect("the writer ends well");
}
