//! Loading an aggregate from its commits.

use annals_core::{Code, Known, Loaded, NewCommit, NewEvent, Timestamp};
use annals_runtime::LoadError;
use serde_json::{Value, json};

use super::Opened;
use crate::Subject;
use crate::aggregates::counter::{CounterEvent, add, increased, recorded};

/// This also holds at any version and time. A command is decided from that state.
pub async fn an_aggregate_without_commits_has_its_initial_state_at_version_0(subject: &dyn Subject) {
    let opened = Opened::of(subject).await;
    let initial = Loaded::new("c-1");
    assert_eq!(opened.load("c-1").await, initial);
    assert_eq!(opened.counters.load_at("c-1", 7).await, Ok(initial.clone()));
    assert_eq!(opened.counters.load_at_time("c-1", Timestamp::from_millis(7)).await, Ok(initial.clone()));
    let past = opened.counters.history("c-1", 1).await.expect("reads");
    assert_eq!((past.commits, past.version), (vec![], 0));
    let if_initial = |counter: &Loaded<_>| add(i64::from(*counter == initial))(counter);
    assert_eq!(opened.counters.handle("c-1", if_initial).await.expect("taken").aggregate.count, 1);
}

/// At a time, the state is the result of the commits before the first one with a later time.
pub async fn an_aggregate_is_loaded_as_it_was_at_a_version_and_at_a_time(subject: &dyn Subject) {
    let Opened { _store, log, counters } = Opened::of(subject).await;
    // The clock was set back between the third commit and the fourth.
    for (n, time) in [(1, 10), (2, 20), (4, 40), (8, 30), (16, 50)] {
        let mut commit = increased("c-1", n);
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

/// What an earlier program named or wrote differently is upcast, whatever is beside it. The log stays unchanged.
pub async fn events_of_earlier_programs_are_read_as_they_would_be_today(subject: &dyn Subject) {
    let Opened { _store, log, counters } = Opened::of(subject).await;
    let today = NewEvent { generation: 2, ..recorded("c-1", "added", &json!({ "n": 4 })).events.remove(0) };
    let renamed = increased("c-1", 1).event(today);
    log.commit(renamed).await.expect("taken");
    log.commit(recorded("c-1", "added", &json!({ "by": 2 }))).await.expect("taken");
    let handled = counters.handle("c-1", add(8)).await.expect("taken");
    assert_eq!((handled.aggregate.count, handled.aggregate.odd.len()), (15, 0));
    let past = counters.history("c-1", 1).await.expect("reads").commits;
    let events: Vec<_> = past.into_iter().flat_map(|commit| commit.events).collect();
    assert_eq!(events, [1, 4, 2, 8].map(|n| Known::Event(CounterEvent::Added { n })));
    let stored = crate::sample::commits_of(&log, handled.aggregate.info.aggregate).await;
    let stored = stored.iter().flat_map(|commit| &commit.events);
    let stored: Vec<_> = stored.map(|event| (&*event.event_type, event.generation)).collect();
    assert_eq!(stored, [("increased", 1), ("added", 2), ("added", 1), ("added", 2)]);
}

/// Events of unknown types count for the version, and are passed to the state as they were recorded.
pub async fn events_of_unknown_types_are_kept_and_those_that_cannot_be_read_are_named(subject: &dyn Subject) {
    let Opened { _store, log, counters } = Opened::of(subject).await;
    let commit = async |commit: NewCommit| log.commit(commit).await.expect("taken");
    commit(increased("c-1", 3)).await;
    commit(recorded("c-1", "painted", &json!({ "colour": "red" }))).await;
    let loaded = counters.load("c-1").await.expect("loads");
    assert_eq!((loaded.count, &*loaded.odd, loaded.version()), (3, ["painted".to_owned()].as_slice(), 2));
    let past = counters.history("c-1", 1).await.expect("reads");
    assert_eq!(past.commits[0].events, [Known::Event(CounterEvent::Added { n: 3 })]);
    let Known::Unknown(unknown) = &past.commits[1].events[0] else { panic!("{past:?}") };
    assert_eq!(unknown.data.decode::<Value>(), Ok(json!({ "colour": "red" })));
    assert_eq!(counters.history("c-1", 3).await.expect("reads").commits, []);
    commit(recorded("c-1", "added", &json!({ "n": "many" }))).await;
    let error = counters.load("c-1").await.expect_err("unreadable");
    assert!(
        matches!(&error, LoadError::Evolve(_)) && error.to_string().contains("version 3, event 0: added of"),
        "{error}"
    );
    assert_eq!(error.code(), Code::UnreadableEvent);
}
