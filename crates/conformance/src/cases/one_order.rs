//! Sequence numbers are 0, 1, 2 … and follow the order in which commits were acknowledged.

use annals_core::{LogQuery, NewCommit};

use crate::sample::{assert_in_order, commit, event, log_of, ns_of, number, open, order, reopen, whole_log};
use crate::{OTHER_TENANT, Subject, WithOther};

/// The first event of a log has number 0, and the log then has one event.
pub async fn the_first_event_has_number_0(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    assert_eq!(log.head().await.expect("the head is read"), 0);
    assert_eq!(commit(&log, order("a", 1)).await.first_sequence_number, Some(0));
    assert_eq!(log.head().await.expect("the head is read"), 1);
    assert_eq!(whole_log(&log).await[0].sequence_number, 0);
}

/// Consecutive commits get consecutive sequence numbers, across reopening too.
pub async fn commits_in_a_row_get_numbers_in_a_row(subject: &dyn Subject) {
    let (mut store, mut log) = open(subject).await;
    for n in 0..200 {
        assert_eq!(commit(&log, order(&format!("a-{}", n % 3), n)).await.first_sequence_number, Some(n));
        if n % 67 == 0 {
            (store, log) = reopen(subject, store, log).await;
        }
    }
    assert_eq!(ns_of(&whole_log(&log).await), (0..200).collect::<Vec<_>>());
    drop(store);
}

/// Whatever ran in parallel, the log has no gap and no repeat, and each aggregate's commits are in order of version.
pub async fn parallel_commits_leave_no_hole(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    let tasks: Vec<_> = (0..16)
        .map(|writer| {
            let log = log.clone();
            tokio::spawn(async move {
                for n in 0..20 {
                    let events = (0..=n % 3).map(|_| event("t", n)).collect();
                    let aggregate = NewCommit::new("order", format!("a-{}", (writer + n) % 5));
                    commit(&log, NewCommit { events, ..aggregate }).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("the task ends well");
    }
    let events = whole_log(&log).await;
    assert_in_order(&events);
    let mut versions = std::collections::HashMap::new();
    for event in events.iter().filter(|event| event.ordinal == 0) {
        let version: &mut u64 = versions.entry(event.commit.aggregate.clone()).or_default();
        *version += 1;
        assert_eq!(event.commit.version, *version);
    }
    assert_eq!(versions.values().sum::<u64>(), 320);
}

/// A commit made after another was acknowledged comes later, whatever the client and aggregate.
pub async fn what_is_committed_after_an_acknowledgement_comes_later(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    let acknowledged = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let tasks: Vec<_> = (0..8)
        .map(|writer| {
            let (log, acknowledged) = (log.clone(), acknowledged.clone());
            tokio::spawn(async move {
                for n in 0..40 {
                    let before = acknowledged.load(std::sync::atomic::Ordering::SeqCst);
                    let number = number(&commit(&log, order(&format!("a-{writer}"), n)).await);
                    assert!(number >= before, "{number} was committed after {before} events were acknowledged");
                    acknowledged.fetch_max(number + 1, std::sync::atomic::Ordering::SeqCst);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("the task ends well");
    }
}

/// A read that starts after a commit was acknowledged finds it, by every kind of read.
pub async fn a_read_after_an_acknowledgement_finds_it(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    for n in 0..50 {
        let outcome = commit(&log, order("a", n).request_id(format!("r-{n}"))).await;
        let number = number(&outcome);
        assert_eq!(log.head().await.expect("the head is read"), number + 1);
        let page = log.read(LogQuery { from: Some(number), ..LogQuery::default() }).await.expect("the page is read");
        assert_eq!((page.events.len(), page.next, page.head), (1, number + 1, number + 1));
        assert_eq!(crate::sample::version_of(&log, outcome_aggregate()).await, outcome.version);
        assert_eq!(log.request_exists(&outcome_aggregate(), &format!("r-{n}")).await, Ok(true));
        assert_eq!(log.wait_past(number).await.expect("nothing to wait for"), number + 1);
    }
}

fn outcome_aggregate() -> annals_core::Aggregate {
    crate::sample::order_aggregate("a")
}

/// Each tenant has a log of its own, with numbers from 0.
pub async fn each_tenant_has_a_log_of_its_own(subject: &dyn Subject) {
    let subject = &WithOther(subject);
    let (store, log) = open(subject).await;
    let other = log_of(&store, OTHER_TENANT);
    for n in 0..10 {
        assert_eq!(commit(&log, order("a", n)).await.first_sequence_number, Some(n));
        if n % 2 == 0 {
            let outcome = commit(&other, order("a", 100 + n)).await;
            assert_eq!((number(&outcome), outcome.version), (n / 2, n / 2 + 1));
        }
    }
    let (store, log) = reopen(subject, store, log).await;
    assert_eq!(ns_of(&whole_log(&log).await), (0..10).collect::<Vec<_>>());
    assert_eq!(ns_of(&whole_log(&log_of(&store, OTHER_TENANT)).await), [100, 102, 104, 106, 108]);
}
