//! The stages that the response to a commit waits for.

use std::time::Duration;

use annals_core::{AggregateQuery, Code, DEFAULT_SCOPE, DEFAULT_TENANT, LogQuery, Reached, Wait, limits};

use crate::Subject;
use crate::sample::{n_of, number, order, order_aggregate, whole_log};

/// A caller that waits until a commit is logged gets its sequence number, and finds it in the log.
pub async fn a_commit_that_waits_for_its_number_is_found_there(subject: &dyn Subject) {
    let store = subject.open().await;
    let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("the tenant is declared");
    for n in 0..20 {
        let outcome = log.commit(order("a", n).wait_until(Reached::Logged)).await.expect("accepted");
        assert_eq!((outcome.reached(), number(&outcome)), (Reached::Logged, n));
        let page = log.read(LogQuery { from: Some(n), limit: 1, ..LogQuery::default() }).await.expect("read");
        assert_eq!(page.events.iter().map(n_of).collect::<Vec<_>>(), [n]);
    }
}

/// A caller that waits only for storage has the essentials: the aggregate shows the commit, which then reaches the log by itself. Commits
/// made after the answer come later in the log.
pub async fn a_commit_that_is_only_stored_comes_to_the_log_by_itself(subject: &dyn Subject) {
    let store = subject.open().await;
    let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("the tenant is declared");
    for n in 0..20 {
        let outcome = log.commit(order(&format!("a-{}", n % 7), n)).await.expect("accepted");
        assert_eq!(outcome.reached() == Reached::Logged, outcome.first_sequence_number.is_some());
        let aggregate = order_aggregate(&format!("a-{}", n % 7));
        let read = log.read_aggregate(AggregateQuery::last(aggregate)).await.expect("read");
        assert_eq!(read.version, outcome.version);
    }
    let mut head = log.head().await.expect("the head is read");
    while head < 20 {
        head = log.wait_past(head).await.expect("more comes");
    }
    assert_eq!(whole_log(&log).await.iter().map(n_of).collect::<Vec<_>>(), (0..20).collect::<Vec<_>>());
}

/// A repeat that waits gets the sequence number, even if the first request did not wait for it.
pub async fn a_repeat_may_wait_for_more_than_the_first(subject: &dyn Subject) {
    let store = subject.open().await;
    let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("the tenant is declared");
    let first = log.commit(order("a", 1).request_id("r")).await.expect("accepted");
    let again = log.commit(order("a", 1).request_id("r").wait_until(Reached::Logged)).await.expect("a repeat");
    assert_eq!((again.commit_id, again.duplicate, number(&again)), (first.commit_id, true, 0));
}

/// A timeout is not a condition: whatever it is, the commit is stored, and the answer says which stage it reached.
pub async fn a_commit_whose_time_is_up_is_stored_all_the_same(subject: &dyn Subject) {
    let store = subject.open().await;
    let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("the tenant is declared");
    let mut commit = order("a", 1);
    commit.wait = Wait { until: Reached::Logged, at_most: Some(Duration::ZERO) };
    let outcome = log.commit(commit).await.expect("accepted");
    assert_eq!(outcome.version, 1);
    assert!(outcome.first_sequence_number.is_none_or(|number| number == 0));
    let again = log.commit(order("a", 2).wait_until(Reached::Logged)).await.expect("accepted");
    assert_eq!((again.version, number(&again)), (2, 1));
}

/// No wait is longer than connections are kept open.
pub async fn a_wait_that_is_too_long_is_refused(subject: &dyn Subject) {
    let store = subject.open().await;
    let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("the tenant is declared");
    let mut commit = order("a", 1);
    let too_long = limits::WAIT_MAX + Duration::from_millis(1);
    commit.wait = Wait { until: Reached::Committed, at_most: Some(too_long) };
    assert_eq!(log.commit(commit).await.expect_err("refused").code(), Code::InvalidWait);
    assert_eq!(log.head().await.expect("the head is read"), 0);
}
