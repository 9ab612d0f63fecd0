//! What the answer to a commit waits for.

use std::time::Duration;

use annals_core::{AggregateQuery, Code, DEFAULT_SCOPE, DEFAULT_TENANT, LogQuery, Reached, Wait, limits};

use crate::Subject;
use crate::sample::{n_of, number, order, order_aggregate, whole_log};

/// Who waits until a commit is logged is told its number, and finds it there.
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

/// Who waits for no more than the storing has what counts: the commit is read with its aggregate, comes to the log by itself, and what is
/// committed after its answer comes later there.
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

/// A repeat that waits is told the number that the first one did not wait for.
pub async fn a_repeat_may_wait_for_more_than_the_first(subject: &dyn Subject) {
    let store = subject.open().await;
    let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("the tenant is declared");
    let first = log.commit(order("a", 1).request_id("r")).await.expect("accepted");
    let again = log.commit(order("a", 1).request_id("r").wait_until(Reached::Logged)).await.expect("a repeat");
    assert_eq!((again.commit_id, again.duplicate, number(&again)), (first.commit_id, true, 0));
}

/// A time is no condition: whatever it is, the commit is stored, and the answer says how far it came.
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

/// Nobody waits longer than connections are held.
pub async fn a_wait_that_is_too_long_is_refused(subject: &dyn Subject) {
    let store = subject.open().await;
    let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("the tenant is declared");
    let mut commit = order("a", 1);
    let too_long = limits::WAIT_MAX + Duration::from_millis(1);
    commit.wait = Wait { until: Reached::Committed, at_most: Some(too_long) };
    assert_eq!(log.commit(commit).await.expect_err("refused").code(), Code::InvalidWait);
    assert_eq!(log.head().await.expect("the head is read"), 0);
}
