//! For one aggregate and version exactly one commit succeeds; versions have no gaps.

use annals_core::{Aggregate, CommitError, ExpectedVersion, NewCommit};

use crate::Subject;
use crate::sample::{
    assert_conflict, assert_in_order, commit, commits_of, event, ns_of, number, open, order, order_aggregate,
    version_of, whole_log,
};

/// Versions count commits, not events: 1, 2, 3 …
pub async fn versions_count_commits_from_1(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    for version in 1..=5 {
        let two_events = order("a", version).event(event("order_changed", version));
        assert_eq!(commit(&log, two_events).await.version, version);
    }
    let versions: Vec<_> = commits_of(&log, order_aggregate("a")).await.iter().map(|c| c.info.version).collect();
    assert_eq!(versions, [1, 2, 3, 4, 5]);
}

/// A second, different first commit of an aggregate is refused with the actual version. A read shows only the first.
pub async fn a_second_first_commit_is_refused(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    commit(&log, order("a", 1).expect(ExpectedVersion::Empty)).await;
    assert_conflict(&log.commit(order("a", 2).expect(ExpectedVersion::Empty)).await, 1);
    assert_conflict(&log.commit(order("a", 2).expect(ExpectedVersion::Exact(0))).await, 1);
    assert_eq!(ns_of(&whole_log(&log).await), [1]);
}

/// A second commit for a taken version is refused with the actual version, and the error names the expected one.
pub async fn a_second_commit_of_a_version_is_refused(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    commit(&log, order("a", 1).expect(ExpectedVersion::Exact(0))).await;
    commit(&log, order("a", 2).expect(ExpectedVersion::Exact(1))).await;
    let error = log.commit(order("a", 3).expect(ExpectedVersion::Exact(1))).await.expect_err("it is refused");
    assert_eq!(error, CommitError::VersionConflict { expected: "1".into(), actual_version: 2 });
    assert_eq!(ns_of(&whole_log(&log).await), [1, 2]);
}

/// A version in the future is refused, for a new aggregate and for an existing one, so that there is no gap.
pub async fn a_version_in_the_future_is_refused(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    assert_conflict(&log.commit(order("a", 1).expect(ExpectedVersion::Exact(5))).await, 0);
    commit(&log, order("a", 1)).await;
    assert_conflict(&log.commit(order("a", 2).expect(ExpectedVersion::Exact(2))).await, 1);
    assert_conflict(&log.commit(order("a", 2).expect(ExpectedVersion::Exact(u64::MAX))).await, 1);
    assert_eq!(version_of(&log, order_aggregate("a")).await, 1);
}

/// A version in the past is refused: no commit is inserted later.
pub async fn a_version_in_the_past_is_refused(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    for n in 0..4 {
        commit(&log, order("a", n)).await;
    }
    for past in 0..4 {
        assert_conflict(&log.commit(order("a", 9).expect(ExpectedVersion::Exact(past))).await, 4);
    }
}

/// `any` accepts every version, `exists` requires a commit, `empty` and 0 require that there is none.
pub async fn the_words_for_versions_mean_what_they_say(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    assert_conflict(&log.commit(order("a", 0).expect(ExpectedVersion::Exists)).await, 0);
    commit(&log, order("a", 1).expect(ExpectedVersion::Any)).await;
    commit(&log, order("a", 2).expect(ExpectedVersion::Exists)).await;
    commit(&log, order("a", 3).expect(ExpectedVersion::Any)).await;
    commit(&log, order("b", 4).expect(ExpectedVersion::Empty)).await;
    commit(&log, order("c", 5).expect(ExpectedVersion::Exact(0))).await;
    assert_conflict(&log.commit(order("b", 6).expect(ExpectedVersion::Empty)).await, 1);
}

/// Of many concurrent writers for one version, one wins. The others learn the resulting version.
pub async fn of_many_writers_for_one_version_one_wins(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    for version in 0..20 {
        let tasks: Vec<_> = (0..16)
            .map(|n| {
                let (log, commit) = (log.clone(), order("a", n).expect(ExpectedVersion::Exact(version)));
                tokio::spawn(async move { log.commit(commit).await })
            })
            .collect();
        let mut winners = 0;
        for task in tasks {
            match task.await.expect("the task ends well") {
                Ok(outcome) => {
                    assert_eq!(outcome.version, version + 1);
                    winners += 1;
                }
                refused => assert_conflict(&refused, version + 1),
            }
        }
        assert_eq!(winners, 1);
    }
    assert_eq!(version_of(&log, order_aggregate("a")).await, 20);
    assert_eq!(log.head().await.expect("the head is read"), 20);
}

/// Writers race with versions 0, 1, 2 … for one aggregate. What is stored is exactly what succeeded.
pub async fn racing_writers_store_exactly_what_succeeded(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    let tasks: Vec<_> = (0..30)
        .map(|n| {
            let (log, commit) = (log.clone(), order("a", n).expect(ExpectedVersion::Exact(n % 5)));
            tokio::spawn(async move { (n, log.commit(commit).await) })
        })
        .collect();
    let mut stored = Vec::new();
    for task in tasks {
        if let (n, Ok(outcome)) = task.await.expect("the task ends well") {
            stored.push((outcome.version, n));
        }
    }
    stored.sort_unstable();
    let read: Vec<_> = whole_log(&log).await.iter().map(|e| (e.commit.version, crate::sample::n_of(e))).collect();
    assert_eq!(read, stored);
    assert!(stored.len() < 30, "writers for the same version cannot all win");
}

/// Writers that read, decide and commit with the version that they read all succeed by retrying.
pub async fn writers_that_read_again_after_a_conflict_all_get_in(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    let tasks: Vec<_> = (0..8)
        .map(|writer| {
            let log = log.clone();
            tokio::spawn(async move {
                for n in 0..10 {
                    let mut version = 0;
                    loop {
                        let commit = order("a", writer * 10 + n).expect(ExpectedVersion::Exact(version));
                        match log.commit(commit).await {
                            Ok(_) => break,
                            Err(CommitError::VersionConflict { actual_version, .. }) => version = actual_version,
                            Err(other) => panic!("{other}"),
                        }
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("the task ends well");
    }
    let mut ns = ns_of(&whole_log(&log).await);
    ns.sort_unstable();
    assert_eq!(ns, (0..80).collect::<Vec<_>>());
    assert_eq!(version_of(&log, order_aggregate("a")).await, 80);
}

/// Parallel commits at any version all succeed, each with consecutive sequence numbers of its own.
pub async fn parallel_commits_at_any_version_all_succeed(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    let tasks: Vec<_> = (0..64)
        .map(|n| {
            let (log, commit) = (log.clone(), order("a", n).event(event("order_changed", n)));
            tokio::spawn(async move { (n, log.commit(commit).await.expect("it is accepted")) })
        })
        .collect();
    let mut outcomes = Vec::new();
    for task in tasks {
        outcomes.push(task.await.expect("the task ends well"));
    }
    let events = whole_log(&log).await;
    assert_in_order(&events);
    assert_eq!(events.len(), 128);
    for (n, outcome) in outcomes {
        let first = usize::try_from(number(&outcome)).expect("a small number");
        assert_eq!(ns_of(&events[first..first + 2]), [n, n]);
        assert_eq!(events[first].commit.version, outcome.version);
        assert_eq!([events[first].id, events[first + 1].id], outcome.event_ids[..]);
    }
}

/// Parallel commits of different aggregates all succeed, even with an expected version.
pub async fn parallel_commits_of_different_aggregates_all_succeed(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    let tasks: Vec<_> = (0..64)
        .map(|n| {
            let log = log.clone();
            tokio::spawn(async move {
                for version in 0..4 {
                    commit(&log, order(&format!("a-{n}"), n).expect(ExpectedVersion::Exact(version))).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("the task ends well");
    }
    assert_eq!(log.head().await.expect("the head is read"), 256);
}

/// Commits with and without an expected version all succeed side by side if they concern different aggregates.
pub async fn commits_with_and_without_expected_version_run_side_by_side(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    let checked = tokio::spawn({
        let log = log.clone();
        async move {
            for version in 0..50 {
                commit(&log, order("checked", version).expect(ExpectedVersion::Exact(version))).await;
            }
        }
    });
    let free: Vec<_> = (0..4)
        .map(|_| {
            let log = log.clone();
            tokio::spawn(async move {
                for n in 0..50 {
                    commit(&log, order("free", n)).await;
                }
            })
        })
        .collect();
    checked.await.expect("the task ends well");
    for task in free {
        task.await.expect("the task ends well");
    }
    assert_eq!(version_of(&log, order_aggregate("checked")).await, 50);
    assert_eq!(version_of(&log, order_aggregate("free")).await, 200);
}

/// Aggregates with the same id and another name, or the same name and another id, have versions of their own. Names and ids that are
/// equal when joined are still different.
pub async fn aggregates_have_versions_of_their_own(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    let aggregates =
        [("a.b", "c"), ("a", ".b.c"), ("a", "b.c"), ("a", "b/c"), ("a-b", "c"), ("a", "-b-c"), ("order", "c")];
    for (round, _) in aggregates.iter().enumerate() {
        for (name, id) in aggregates {
            let expected = ExpectedVersion::Exact(round as u64);
            commit(&log, NewCommit::new(name, id).event(event("t", 0)).expect(expected)).await;
        }
    }
    for (name, id) in aggregates {
        let commits = commits_of(&log, Aggregate::new(name, id)).await;
        assert_eq!(commits.len(), aggregates.len());
        assert!(commits.iter().all(|c| c.info.aggregate == Aggregate::new(name, id)));
    }
}

/// Reads, look-ups and refused commits change no version.
pub async fn reads_and_refused_commits_touch_no_version(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    commit(&log, order("a", 1)).await;
    for _ in 0..3 {
        assert_conflict(&log.commit(order("a", 2).expect(ExpectedVersion::Exact(7))).await, 1);
        assert_conflict(&log.commit(order("b", 2).expect(ExpectedVersion::Exact(7))).await, 0);
        assert_eq!(version_of(&log, order_aggregate("a")).await, 1);
        assert_eq!(version_of(&log, order_aggregate("b")).await, 0);
        log.request_exists(&order_aggregate("b"), "r").await.expect("the request is looked up");
    }
    let known =
        log.aggregate_ids(annals_core::AggregateIdsQuery { name: "order".into(), after: None, limit: 10 }).await;
    assert_eq!(known.expect("ids are listed").len(), 1, "a refused commit makes no aggregate");
    commit(&log, order("b", 3).expect(ExpectedVersion::Empty)).await;
}
