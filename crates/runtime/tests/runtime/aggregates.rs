//! What loading an aggregate and handling a command promise.

use std::sync::Arc;
use std::time::Duration;

use annals_core::{
    Code, CommitError, Data, Effect, Filter, Known, Loaded, LogQuery, NewCommit, NewEvent, Tags, Timestamp,
};
use annals_runtime::{Aggregates, HandleError, LoadError, Request, Retries};
use serde_json::json;

use crate::counter::{Counter, CounterEvent, TooMuch, add, open};
use crate::racing::Racing;

fn commit(event_type: &str, data: serde_json::Value) -> NewCommit {
    NewCommit::new("counter", "c-1").event(NewEvent::new(event_type, Data::from_value(&data).expect("an object")))
}

fn increased(by: i64) -> NewCommit {
    commit("increased", json!({ "by": by }))
}

#[tokio::test]
async fn a_command_is_committed_at_the_version_it_was_decided_at_and_answered_with_what_loading_finds() {
    let (_store, log) = open();
    let counters = Aggregates::<Counter>::new(log.clone());
    let before = counters.load("c-1").await.expect("loads");
    assert_eq!(before, Loaded::new("c-1"));
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

#[tokio::test]
async fn a_command_that_is_refused_or_from_which_nothing_follows_commits_nothing() {
    let (_store, log) = open();
    let counters = Aggregates::<Counter>::new(log.clone());
    let refused = counters.handle("c-1", add(10_001)).await.expect_err("refused");
    assert!(matches!(&refused, HandleError::Refused(TooMuch(10_001))), "{refused}");
    assert_eq!((refused.code(), refused.to_string().as_str()), (None, "10001 is too much"));
    let handled = counters.handle("c-1", add(0)).await.expect("nothing to do");
    assert_eq!((handled.outcome, handled.aggregate.version()), (None, 0));
    assert_eq!(log.head().await, Ok(0));
}

#[tokio::test(start_paused = true)]
async fn after_a_conflict_the_command_is_decided_again_from_the_new_state() {
    let (_store, log) = open();
    let racing = Racing::new(log, 3, increased(4_000));
    let counters = Aggregates::<Counter>::new(racing.clone());
    let refused = counters.handle("c-1", add(3_000)).await.expect_err("refused at last");
    assert!(matches!(refused, HandleError::Refused(TooMuch(11_000))), "{refused}");
    let handled = counters.handle("c-1", add(-3_000)).await.expect("the last race is lost, the next try is first");
    assert_eq!((handled.aggregate.count, handled.aggregate.version()), (9_000, 4));
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_tried_again_three_times_later_and_later() {
    let (_store, log) = open();
    let racing = Racing::new(log.clone(), 3, increased(1));
    let handled = Aggregates::<Counter>::new(racing.clone()).handle("c-1", add(1)).await.expect("the fourth try");
    assert_eq!(handled.aggregate.count, 4);
    let pauses = racing.pauses();
    assert_eq!(pauses.len(), 3);
    for (pause, middle) in pauses.into_iter().zip([500, 1_000, 2_000]) {
        assert!((middle / 2..=middle * 3 / 2 + 1).contains(&pause), "{pause} ms around {middle}");
    }
    let racing = Racing::new(log.clone(), 4, increased(1));
    let conflict = Aggregates::<Counter>::new(racing.clone()).handle("c-1", add(1)).await.expect_err("given up");
    assert_eq!(conflict.code(), Some(Code::VersionConflict));
    assert_eq!(racing.pauses().len(), 3);
    let racing = Racing::new(log, 1, increased(1));
    let counters = Aggregates::<Counter>::new(racing.clone()).retries(Retries::NONE);
    assert_eq!(counters.handle("c-1", add(1)).await.expect_err("given up").code(), Some(Code::VersionConflict));
}

#[tokio::test]
async fn a_version_that_the_caller_expects_is_not_tried_again() {
    let (_store, log) = open();
    let counters = Aggregates::<Counter>::new(Racing::new(log, 1, increased(1)));
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

#[tokio::test]
async fn a_repeated_request_is_answered_with_its_first_outcome_whatever_it_would_decide_now() {
    let (_store, log) = open();
    let counters = Aggregates::<Counter>::new(log.clone());
    let request = || Request::new("c-1").request_id("r-1");
    let first = counters.handle(request(), add(6_000)).await.expect("taken").outcome.expect("committed");
    // The same content again, other content, nothing, and what is refused by now.
    for n in [6_000, 1, 0, 9_000] {
        let again = counters.handle(request(), add(n)).await.expect("answered");
        let outcome = again.outcome.expect("the first one's");
        assert!(outcome.duplicate, "{n}");
        assert_eq!(annals_core::CommitOutcome { duplicate: false, ..outcome }, first, "{n}");
        assert_eq!(again.aggregate.count, 6_000, "{n}");
    }
    let again = counters.handle(request().expect(7), add(1)).await.expect("whatever version it expects");
    assert_eq!(again.outcome.map(|outcome| outcome.version), Some(1));
    counters.handle("c-1", |counter: &Loaded<Counter>| counter.close()).await.expect("closed");
    let again = counters.handle(request(), add(1)).await.expect("although it is deleted");
    assert_eq!((again.outcome.map(|outcome| outcome.version), again.aggregate.version()), (Some(1), 2));
    assert_eq!(log.head().await, Ok(2));
}

#[tokio::test]
async fn a_first_outcome_is_found_a_thousand_commits_back_and_so_long_a_history_is_loaded_whole() {
    let (_store, log) = open();
    let counters = Aggregates::<Counter>::new(log.clone());
    let request = || Request::new("c-1").request_id("r-1");
    counters.handle(request(), add(1)).await.expect("taken");
    for _ in 0..1_100 {
        log.commit(increased(1)).await.expect("taken");
    }
    let again = counters.handle(request(), add(9_999)).await.expect("answered");
    assert_eq!(again.outcome.map(|outcome| (outcome.version, outcome.duplicate)), Some((1, true)));
    assert_eq!((again.aggregate.count, again.aggregate.version()), (1_101, 1_101));
    let past = counters.load_at("c-1", 1_050).await.expect("loads");
    assert_eq!((past.count, past.version()), (1_050, 1_050));
}

#[tokio::test]
async fn an_aggregate_is_loaded_as_it_was_at_a_version_and_at_a_time() {
    let (_store, log) = open();
    let counters = Aggregates::<Counter>::new(log.clone());
    // The clock went back between the third commit and the fourth.
    for (n, time) in [(1, 10), (2, 20), (4, 40), (8, 30), (16, 50)] {
        let mut commit = increased(n);
        commit.events[0].time = Some(Timestamp::from_millis(time));
        log.commit(commit).await.expect("taken");
    }
    for (version, count) in [(0, 0), (1, 1), (3, 7), (5, 31), (9, 31)] {
        let loaded = counters.load_at("c-1", version).await.expect("loads");
        assert_eq!((loaded.count, loaded.version()), (count, version.min(5)), "version {version}");
    }
    for (time, version) in [(9, 0), (10, 1), (35, 2), (40, 4), (49, 4), (50, 5), (99, 5)] {
        let loaded = counters.load_at_time("c-1", Timestamp::from_millis(time)).await.expect("loads");
        assert_eq!(loaded.version(), version, "time {time}");
    }
}

#[tokio::test]
async fn events_of_unknown_types_are_kept_and_those_that_cannot_be_read_are_named() {
    let (_store, log) = open();
    let counters = Aggregates::<Counter>::new(log.clone());
    log.commit(increased(3)).await.expect("taken");
    log.commit(commit("painted", json!({ "colour": "red" }))).await.expect("taken");
    let loaded = counters.load("c-1").await.expect("loads");
    assert_eq!((loaded.count, &*loaded.odd, loaded.version()), (3, ["painted".to_owned()].as_slice(), 2));
    let past = counters.history("c-1", 1).await.expect("reads");
    assert_eq!(past.commits[0].events, [Known::Event(CounterEvent::Added { n: 3 })]);
    let Known::Unknown(unknown) = &past.commits[1].events[0] else { panic!("{past:?}") };
    assert_eq!(unknown.data.decode::<serde_json::Value>(), Ok(json!({ "colour": "red" })));
    assert_eq!(counters.history("c-1", 3).await.expect("reads").commits, []);
    log.commit(commit("added", json!({ "n": "many" }))).await.expect("taken");
    let error = counters.load("c-1").await.expect_err("unreadable");
    assert!(
        matches!(&error, LoadError::Evolve(_)) && error.to_string().contains("version 3, event 0: added of"),
        "{error}"
    );
    assert_eq!(error.code(), Code::UnreadableEvent);
}

#[tokio::test]
async fn a_deleted_aggregate_takes_no_commands_until_it_is_recovered() {
    let (_store, log) = open();
    let counters = Aggregates::<Counter>::new(log.clone());
    let none = counters.apply("c-1", Effect::Deleted).await.expect_err("there is none");
    assert_eq!(none.code(), Some(Code::VersionConflict));
    counters.handle("c-1", add(1)).await.expect("taken");
    let deleted = counters.apply("c-1", Effect::Deleted).await.expect("deleted").aggregate;
    assert!(deleted.info.deleted);
    assert_eq!(counters.apply("c-1", Effect::Deleted).await.expect("is so").outcome, None);
    let refused = counters.handle("c-1", add(1)).await.expect_err("deleted");
    assert_eq!(refused.code(), Some(Code::AggregateDeleted));
    let refused = counters.apply("c-1", Effect::OwnerTransferred("ida".to_owned())).await.expect_err("deleted");
    assert_eq!(refused.code(), Some(Code::AggregateDeleted));
    counters.apply("c-1", Effect::Recovered).await.expect("recovered");
    let tags = Tags::from([("region".to_owned(), vec!["eu".to_owned()])]);
    counters.apply("c-1", Effect::TagsApplied(tags.clone())).await.expect("tagged");
    counters.apply("c-1", Effect::OwnerTransferred("ida".to_owned())).await.expect("transferred");
    counters.apply("c-1", Effect::SpaceTransferred("s-2".to_owned())).await.expect("transferred");
    let info = counters.handle("c-1", add(1)).await.expect("taken").aggregate.info;
    assert_eq!((info.deleted, info.version, &*info.owner_id, &*info.space_id), (false, 7, "ida", "s-2"));
    assert_eq!(info.tags, tags);
}

#[tokio::test]
async fn an_aggregate_of_another_tenant_id_is_not_seen_and_its_id_cannot_be_taken() {
    let (_store, log) = open();
    let counters = Aggregates::<Counter>::new(log.clone());
    counters.handle(Request::new("c-1").tenant_id("a"), add(9_999)).await.expect("taken");
    let other = counters.handle(Request::new("c-1").tenant_id("b"), add(9_999)).await.expect_err("taken by a");
    assert_eq!(other.code(), Some(Code::AggregateOfOtherTenant));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_at_once_each_is_carried_out_once() {
    let (_store, log) = open();
    let retries = Retries { count: 1_000, first: Duration::from_millis(1), max: Duration::from_millis(8) };
    let counters = Aggregates::<Counter>::new(log.clone()).retries(retries);
    let (tasks, each) = (8, 10);
    let running: Vec<_> = (0..tasks)
        .map(|task| {
            let counters = counters.clone();
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

#[tokio::test]
async fn the_same_request_from_many_at_once_is_carried_out_once() {
    let (_store, log) = open();
    let counters = Aggregates::<Counter>::new(Arc::clone(&log));
    let ask = |n| {
        let counters = counters.clone();
        async move { counters.handle(Request::new("c-1").request_id("r-1"), add(n)).await }
    };
    let (a, b, c) = tokio::join!(ask(1), ask(1), ask(2));
    let outcomes = [a, b, c].map(|handled| handled.expect("answered").outcome.expect("one commit"));
    assert!(outcomes.iter().all(|outcome| outcome.version == 1 && outcome.commit_id == outcomes[0].commit_id));
    assert_eq!(outcomes.iter().filter(|outcome| !outcome.duplicate).count(), 1);
    assert_eq!(log.head().await, Ok(1));
}
