//! Everything that was returned to a caller is there after the store is reopened. Each backend's own fault tests show that it also
//! survives power loss, with [`crate::history`].

use annals_core::{Code, CommitError, DEFAULT_TENANT, ExpectedVersion, LogQuery, ReadError, StoreError};

use crate::sample::{
    assert_conflict, assert_in_order, commit, commits_of, open, order, order_aggregate, reopen, version_of, whole_log,
};
use crate::{OTHER_TENANT, Subject, WithOther};

/// Every event is the same after reopening, with everything that it was given, and commits continue after it.
pub async fn everything_is_there_after_reopening(subject: &dyn Subject) {
    let (mut store, mut log) = open(subject).await;
    let mut before = Vec::new();
    for round in 0..4 {
        for n in 0..60 {
            let commit_now = order(&format!("a-{}", n % 9), n).request_id(format!("{round}-{n}"));
            commit(&log, commit_now).await;
        }
        let events = whole_log(&log).await;
        assert_eq!(events[..before.len()], before[..]);
        (store, log) = reopen(subject, store, log).await;
        before = whole_log(&log).await;
        assert_eq!(before, events);
        assert_in_order(&before);
    }
    assert_eq!(version_of(&log, order_aggregate("a-0")).await, 28);
    assert_conflict(&log.commit(order("a-0", 0).expect(ExpectedVersion::Exact(27))).await, 28);
    assert_eq!(commits_of(&log, order_aggregate("a-0")).await.len(), 28);
    drop(store);
}

/// A store that is opened and closed without a commit stays empty and usable.
pub async fn an_empty_store_may_be_reopened(subject: &dyn Subject) {
    let (mut store, mut log) = open(subject).await;
    for _ in 0..3 {
        (store, log) = reopen(subject, store, log).await;
        assert_eq!(log.head().await.expect("the head is read"), 0);
        let page = log.read(LogQuery::default()).await.expect("the page is read");
        assert_eq!((page.events.len(), page.next, page.head), (0, 0, 0));
    }
    assert_eq!(commit(&log, order("a", 1)).await.first_sequence_number, Some(0));
    drop(store);
}

/// The identity of a store does not change when it is reopened. Each tenant's store has an id of its own.
pub async fn a_store_keeps_its_identity(subject: &dyn Subject) {
    let subject = &WithOther(subject);
    let (store, log) = open(subject).await;
    let identity =
        |store: &dyn annals_core::Store, tenant: &str| store.identity(tenant).expect("the tenant is declared");
    let (first, second) = (identity(&*store, DEFAULT_TENANT), identity(&*store, OTHER_TENANT));
    assert_ne!(first.store_id, second.store_id);
    assert_eq!((first.incarnation, first.incarnation_start), (0, 0));
    commit(&log, order("a", 1)).await;
    let (store, _log) = reopen(subject, store, log).await;
    assert_eq!(identity(&*store, DEFAULT_TENANT), first);
    assert_eq!(identity(&*store, OTHER_TENANT), second);
}

/// A closed store refuses commits and wakes waiting callers. Closing it again does nothing.
pub async fn a_closed_store_refuses_commits_and_wakes_who_waits(subject: &dyn Subject) {
    let (store, log) = open(subject).await;
    commit(&log, order("a", 1)).await;
    let waiting = tokio::spawn({
        let log = log.clone();
        async move { log.wait_past(1).await }
    });
    tokio::task::yield_now().await;
    store.close().await;
    store.close().await;
    let woken = waiting.await.expect("the task ends well");
    assert_eq!(woken, Err(ReadError::Store(StoreError::Closed)));
    let error = log.commit(order("a", 2)).await.expect_err("it is refused");
    assert_eq!(error, CommitError::Store(StoreError::Closed));
    assert_eq!(error.code(), Code::Closing);
    drop((store, log));
    let (_store, log) = open(subject).await;
    assert_eq!(whole_log(&log).await.len(), 1);
}

/// Commits in flight when the store closes are stored and acknowledged, or refused and absent.
pub async fn commits_under_way_when_closing_are_stored_or_refused(subject: &dyn Subject) {
    let (store, log) = open(subject).await;
    let tasks: Vec<_> = (0..40)
        .map(|n| {
            let log = log.clone();
            tokio::spawn(async move { (n, log.commit(order(&format!("a-{n}"), n).request_id("r")).await) })
        })
        .collect();
    for _ in 0..5 {
        tokio::task::yield_now().await;
    }
    store.close().await;
    let mut outcomes = Vec::new();
    for task in tasks {
        outcomes.push(task.await.expect("the task ends well"));
    }
    drop((store, log));
    let (_store, log) = open(subject).await;
    for (n, outcome) in outcomes {
        let stored = log.request_exists(&order_aggregate(&format!("a-{n}")), "r").await.expect("it is looked up");
        match outcome {
            Ok(_) => assert!(stored, "an acknowledged commit is there"),
            Err(CommitError::Store(StoreError::Closed)) => assert!(!stored, "a refused commit is not"),
            Err(other) => panic!("{other}"),
        }
    }
    assert_in_order(&whole_log(&log).await);
}
