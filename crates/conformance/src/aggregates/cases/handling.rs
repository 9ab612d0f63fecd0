//! Handling a command: what is committed, what is returned, and exactly once for each request.

use std::time::Duration;

use annals_core::{CommitError, CommitOutcome, Filter, Loaded, LogQuery};
use annals_runtime::{Aggregates, HandleError, Request, Retries};

use super::Opened;
use crate::Subject;
use crate::aggregates::counter::{Counter, CounterEvent, TooMuch, add, increased};
use crate::aggregates::racing::Racing;

/// Retries as often as necessary, with short pauses.
const SOON: Retries = Retries { count: 1_000, first: Duration::from_millis(1), max: Duration::from_millis(8) };

/// The commit carries everything that the request and the type state.
pub async fn a_command_is_committed_at_the_version_it_was_decided_at_and_answered_with_what_loading_finds(
    subject: &dyn Subject,
) {
    let Opened { _store, log, counters } = Opened::of(subject).await;
    let request = Request::new("c-1").request_id("r-1").tenant_id("t").owner("eva").space("s").operator("otto");
    let handled = counters.handle(request, add(5)).await.expect("taken");
    let outcome = handled.outcome.expect("committed");
    assert_eq!((outcome.version, outcome.duplicate), (1, false));
    let counter = handled.aggregate;
    assert_eq!((counter.count, counter.version(), &*counter.info.owner_id), (5, 1, "eva"));
    assert_eq!((&*counter.info.first_operator, &*counter.info.commit_id), ("otto", &*outcome.commit_id.to_string()));
    assert_eq!(counters.load("c-1").await.expect("loads"), counter);
    let handled = counters.handle("c-1", add(2)).await.expect("taken");
    assert_eq!(counters.load("c-1").await.expect("loads"), handled.aggregate);
    assert_eq!((handled.aggregate.count, &*handled.aggregate.info.owner_id), (7, "eva"));
    let filter = Filter { tags: vec!["n:2".into()], ..Filter::default() };
    let tagged = log.read(LogQuery { filter, ..LogQuery::default() }).await.expect("reads").events;
    assert_eq!((tagged.len(), tagged[0].generation, tagged[0].ordinal), (1, 2, 0));
}

/// A command without events is not an error.
pub async fn a_command_that_is_refused_or_from_which_nothing_follows_commits_nothing(subject: &dyn Subject) {
    let opened = Opened::of(subject).await;
    let refused = opened.counters.handle("c-1", add(10_001)).await.expect_err("refused");
    assert!(matches!(&refused, HandleError::Refused(TooMuch(10_001))), "{refused}");
    assert_eq!((refused.code(), refused.to_string().as_str()), (None, "10001 is too much"));
    let handled = opened.counters.handle("c-1", add(0)).await.expect("nothing to do");
    assert_eq!((handled.outcome, handled.aggregate.version()), (None, 0));
    assert_eq!(opened.load("c-1").await.version(), 0);
}

/// After the conflict the command may be refused; the first commit stays.
pub async fn after_a_conflict_the_command_is_decided_again_from_the_new_state(subject: &dyn Subject) {
    let Opened { _store, log, .. } = Opened::of(subject).await;
    let counters = Aggregates::<Counter>::new(Racing::over(log, 3, increased("c-1", 4_000))).retries(SOON);
    let refused = counters.handle("c-1", add(3_000)).await.expect_err("refused at last");
    assert!(matches!(refused, HandleError::Refused(TooMuch(11_000))), "{refused}");
    let handled = counters.handle("c-1", add(-3_000)).await.expect("the last race is lost, the next try is first");
    assert_eq!((handled.aggregate.count, handled.aggregate.version()), (9_000, 4));
}

/// This holds whether the conflict is found when the aggregate is loaded or when it is committed to.
pub async fn a_conflict_with_the_version_that_the_caller_expects_is_not_tried_again(subject: &dyn Subject) {
    let Opened { _store, log, .. } = Opened::of(subject).await;
    let counters = Aggregates::<Counter>::new(Racing::over(log, 1, increased("c-1", 1))).retries(SOON);
    for actual in [1, 1] {
        let error = counters.handle(Request::new("c-1").expect(0), add(1)).await.expect_err("conflict");
        let HandleError::Commit(CommitError::VersionConflict { actual_version, .. }) = error else {
            panic!("{error}");
        };
        assert_eq!(actual_version, actual);
    }
    let handled = counters.handle(Request::new("c-1").expect(1), add(1)).await.expect("as expected");
    assert_eq!(handled.aggregate.version(), 2);
}

/// This also holds if the command would be refused now, would have no events, or the aggregate is deleted by now.
pub async fn a_repeated_request_is_answered_with_its_first_outcome_whatever_it_would_decide_now(subject: &dyn Subject) {
    let opened = Opened::of(subject).await;
    let counters = &opened.counters;
    let request = || Request::new("c-1").request_id("r-1");
    let first = counters.handle(request(), add(6_000)).await.expect("taken").outcome.expect("committed");
    // The same content again, other content, no events, and a command that is refused by now.
    for n in [6_000, 1, 0, 9_000] {
        let again = counters.handle(request(), add(n)).await.expect("answered");
        let outcome = again.outcome.expect("the first one's");
        assert!(outcome.duplicate, "{n}");
        assert_eq!(CommitOutcome { duplicate: false, ..outcome }, first, "{n}");
        assert_eq!(again.aggregate.count, 6_000, "{n}");
    }
    let again = counters.handle(request().expect(7), add(1)).await.expect("whatever version it expects");
    assert_eq!(again.outcome.map(|outcome| outcome.version), Some(1));
    let close = |_: &Loaded<Counter>| Ok::<_, TooMuch>([CounterEvent::Closed]);
    assert!(counters.handle("c-1", close).await.expect("closed").aggregate.info.deleted);
    let again = counters.handle(request(), add(1)).await.expect("although it is deleted");
    assert_eq!((again.outcome.map(|outcome| outcome.version), again.aggregate.version()), (Some(1), 2));
    assert_eq!(opened.load("c-1").await.version(), 2);
}

/// The history has more commits than a page.
pub async fn a_first_outcome_is_found_a_thousand_commits_back_and_so_long_a_history_is_loaded_whole(
    subject: &dyn Subject,
) {
    let Opened { _store, log, counters } = Opened::of(subject).await;
    let request = || Request::new("c-1").request_id("r-1");
    counters.handle(request(), add(1)).await.expect("taken");
    let committing: Vec<_> = (0..10)
        .map(|_| {
            let log = log.clone();
            tokio::spawn(async move {
                for _ in 0..110 {
                    log.commit(increased("c-1", 1)).await.expect("taken");
                }
            })
        })
        .collect();
    for task in committing {
        task.await.expect("all are taken");
    }
    let again = counters.handle(request(), add(9_999)).await.expect("answered");
    assert_eq!(again.outcome.map(|outcome| (outcome.version, outcome.duplicate)), Some((1, true)));
    assert_eq!((again.aggregate.count, again.aggregate.version()), (1_101, 1_101));
    let past = counters.load_at("c-1", 1_050).await.expect("loads");
    assert_eq!((past.count, past.version()), (1_050, 1_050));
}

/// Each conflict is retried, and each repeat is recognised.
pub async fn of_many_at_once_each_is_carried_out_once(subject: &dyn Subject) {
    let Opened { _store, counters, .. } = Opened::of(subject).await;
    let (tasks, each) = (8, 10);
    let running: Vec<_> = (0..tasks)
        .map(|task| {
            let counters = counters.clone().retries(SOON);
            tokio::spawn(async move {
                for n in 0..each {
                    let request = || Request::new("c-1").request_id(format!("{task}-{n}"));
                    let first = counters.handle(request(), add(1)).await.expect("taken").outcome.expect("committed");
                    let again = counters.handle(request(), add(1)).await.expect("answered").outcome.expect("the first");
                    assert_eq!((first.commit_id, first.duplicate, again.duplicate), (again.commit_id, false, true));
                }
            })
        })
        .collect();
    for task in running {
        task.await.expect("no assertion failed");
    }
    let all = counters.load("c-1").await.expect("loads");
    assert_eq!((all.count, all.version()), (tasks * each, (tasks * each) as u64));
}

/// The same request id is handled once, whichever command each caller sends with it.
pub async fn the_same_request_from_many_at_once_is_carried_out_once(subject: &dyn Subject) {
    let opened = Opened::of(subject).await;
    let ask = |n| {
        let counters = opened.counters.clone();
        async move { counters.handle(Request::new("c-1").request_id("r-1"), add(n)).await }
    };
    let (a, b, c) = tokio::join!(ask(1), ask(1), ask(2));
    let outcomes = [a, b, c].map(|handled| handled.expect("answered").outcome.expect("one commit"));
    assert!(outcomes.iter().all(|outcome| outcome.version == 1 && outcome.commit_id == outcomes[0].commit_id));
    assert_eq!(outcomes.iter().filter(|outcome| !outcome.duplicate).count(), 1);
    assert_eq!(opened.load("c-1").await.version(), 1);
}
