//! The same request again adds nothing and gets the first outcome.

use annals_core::{Code, CommitError, CommitOutcome, ExpectedVersion, NewCommit, NewEvent, Timestamp, Uuid};

use crate::sample::{
    assert_conflict, commit, commits_of, data, event, log_of, ns_of, open, order, order_aggregate, refused, reopen,
    version_of, whole_log,
};
use crate::{OTHER_TENANT, Subject, WithOther};

/// Asserts that `again` is the repeat of `first`.
#[track_caller]
fn assert_repeat(again: Result<CommitOutcome, CommitError>, first: &CommitOutcome) {
    let again = again.expect("a repeat is a success");
    assert_eq!(again, CommitOutcome { duplicate: true, ..first.clone() });
}

/// A repeated request returns the first outcome marked as duplicate, and adds nothing.
pub async fn a_repeated_request_returns_the_first_outcome(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    let request = order("a", 1).event(event("order_changed", 2)).request_id("r-1");
    let first = commit(&log, request.clone()).await;
    for _ in 0..3 {
        assert_repeat(log.commit(request.clone()).await, &first);
    }
    assert_eq!(ns_of(&whole_log(&log).await), [1, 2]);
}

/// A repeat is recognised whatever version it expects, whether that version would be refused or correct.
pub async fn a_repeat_is_recognised_whatever_version_it_expects(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    let first = commit(&log, order("a", 1).request_id("r").expect(ExpectedVersion::Empty)).await;
    commit(&log, order("a", 2)).await;
    for expected in [
        ExpectedVersion::Any,
        ExpectedVersion::Empty,
        ExpectedVersion::Exists,
        ExpectedVersion::Exact(1),
        ExpectedVersion::Exact(2),
        ExpectedVersion::Exact(99),
    ] {
        assert_repeat(log.commit(order("a", 1).request_id("r").expect(expected)).await, &first);
    }
    assert_eq!(version_of(&log, order_aggregate("a")).await, 2);
}

/// Requests are remembered however much was committed since, across every change of segment, and after reopening.
pub async fn requests_are_remembered_for_ever(subject: &dyn Subject) {
    let (store, log) = open(subject).await;
    let mut first = Vec::new();
    for n in 0..400 {
        let request = order(&format!("a-{}", n % 7), n).request_id(format!("r-{n}"));
        first.push((request.clone(), commit(&log, request).await));
    }
    for (request, outcome) in &first {
        assert_repeat(log.commit(request.clone()).await, outcome);
    }
    let (store, log) = reopen(subject, store, log).await;
    for (request, outcome) in first.iter().rev() {
        assert_repeat(log.commit(request.clone()).await, outcome);
        let other = NewCommit { events: vec![event("other", 1)], ..request.clone() };
        assert_eq!(refused(&log, other).await.code(), Code::RequestIdReused);
    }
    let (_store, log) = reopen(subject, store, log).await;
    assert_repeat(log.commit(first[0].0.clone()).await, &first[0].1);
    assert_eq!(log.head().await.expect("the head is read"), 400);
}

/// The same request id with other content is refused and named. Content is type, generation, data, tags, public, a given event id, and
/// the number and order of the events.
pub async fn a_request_id_with_other_content_is_refused(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    let request = order("a", 1).event(event("order_changed", 2)).request_id("r");
    commit(&log, request.clone()).await;
    let changes: [fn(&mut NewCommit); 9] = [
        |c| c.events[0].event_type = "order_lost".into(),
        |c| c.events[0].generation = 2,
        |c| c.events[0].data = data(serde_json::json!({ "n": 3 })),
        |c| c.events[0].data = data(serde_json::json!({ "n": 1.0 })),
        |c| c.events[1].tags.push("t".into()),
        |c| c.events[0].public = true,
        |c| c.events[0].id = Some(Uuid::from_u128(9)),
        |c| c.events.truncate(1),
        |c| c.events.reverse(),
    ];
    for (index, change) in changes.into_iter().enumerate() {
        let mut other = request.clone();
        change(&mut other);
        let error = refused(&log, other).await;
        assert_eq!(error, CommitError::RequestIdReused { request_id: "r".into() }, "change {index}");
    }
    assert_eq!(ns_of(&whole_log(&log).await), [1, 2]);
}

/// Metadata is content: other metadata, or none, is another request.
pub async fn other_metadata_is_another_request(subject: &dyn Subject) {
    let (store, log) = open(subject).await;
    let noted = |attempt: u64| {
        let noted = event("order_changed", 1).with_metadata(&serde_json::json!({ "attempt": attempt }));
        NewCommit::new("order", "a").event(noted.expect("a number")).request_id("r")
    };
    let first = commit(&log, noted(1)).await;
    let (_store, log) = reopen(subject, store, log).await;
    assert_repeat(log.commit(noted(1)).await, &first);
    let bare = NewCommit::new("order", "a").event(event("order_changed", 1)).request_id("r");
    for other in [noted(2), bare] {
        let refused = log.commit(other).await.expect_err("it is refused");
        assert_eq!(refused, CommitError::RequestIdReused { request_id: "r".into() });
    }
}

/// Header, times, expected version, command, owner, space, correlation and causation are not content: the repeat is recognised, and what
/// was stored first stays.
pub async fn what_is_not_content_does_not_make_another_request(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    let first = commit(&log, order("a", 1).request_id("r")).await;
    let mut again = order("a", 1).request_id("r").expect(ExpectedVersion::Exact(5));
    again.events[0].time = Some(Timestamp::from_millis(1));
    let again = NewCommit {
        header: vec![("k".into(), "v".into())],
        command_id: Some("c".into()),
        owner_id: Some("o".into()),
        space_id: Some("s".into()),
        correlation_id: Some("x".into()),
        causation_id: Some("y".into()),
        ..again
    };
    assert_repeat(log.commit(again).await, &first);
    let stored = commits_of(&log, order_aggregate("a")).await;
    assert_eq!(stored.len(), 1);
    assert_eq!(stored[0].info.header, []);
    assert_eq!(stored[0].info.owner_id, "");
    assert_ne!(stored[0].info.time, Timestamp::from_millis(1));
}

/// The same request sent many times concurrently is committed once, and all answers agree.
pub async fn racing_repeats_are_committed_once(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    for round in 0..20 {
        let request = order("a", round).request_id(format!("r-{round}"));
        let tasks: Vec<_> = (0..12)
            .map(|_| {
                let (log, request) = (log.clone(), request.clone());
                tokio::spawn(async move { log.commit(request).await.expect("it is accepted") })
            })
            .collect();
        let mut outcomes = Vec::new();
        for task in tasks {
            outcomes.push(task.await.expect("the task ends well"));
        }
        assert_eq!(outcomes.iter().filter(|outcome| !outcome.duplicate).count(), 1, "one of them is the first");
        assert!(outcomes.iter().all(|outcome| outcome.commit_id == outcomes[0].commit_id));
        assert!(outcomes.iter().all(|outcome| outcome.event_ids == outcomes[0].event_ids));
        assert!(outcomes.iter().all(|outcome| outcome.first_sequence_number == Some(round)));
    }
    assert_eq!(log.head().await.expect("the head is read"), 20);
}

/// Request ids of different aggregates, even of different names, are independent.
pub async fn a_request_id_belongs_to_its_aggregate(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    commit(&log, order("a", 1).request_id("r")).await;
    commit(&log, order("b", 2).request_id("r")).await;
    commit(&log, NewCommit::new("door", "a").event(event("opened", 3)).request_id("r")).await;
    for aggregate in [order_aggregate("a"), order_aggregate("b"), annals_core::Aggregate::new("door", "a")] {
        assert!(log.request_exists(&aggregate, "r").await.expect("the request is looked up"));
    }
    assert_eq!(log.head().await.expect("the head is read"), 3);
}

/// Request ids of different tenants are independent, too.
pub async fn a_request_id_belongs_to_its_tenant(subject: &dyn Subject) {
    let subject = &WithOther(subject);
    let (store, log) = open(subject).await;
    let other = log_of(&store, OTHER_TENANT);
    commit(&log, order("a", 1).request_id("r")).await;
    assert!(!other.request_exists(&order_aggregate("a"), "r").await.expect("the request is looked up"));
    commit(&other, order("a", 2).request_id("r")).await;
}

/// A request exists where it was committed: not under another id, for another aggregate, or after a refusal.
pub async fn a_request_exists_where_it_was_committed(subject: &dyn Subject) {
    let (store, log) = open(subject).await;
    commit(&log, order("a", 1).request_id("r-1")).await;
    assert_conflict(&log.commit(order("a", 2).request_id("r-2").expect(ExpectedVersion::Exact(9))).await, 1);
    let expected =
        [("a", "r-1", true), ("a", "r-2", false), ("a", "r", false), ("b", "r-1", false), ("A", "r-1", false)];
    let (_store, reopened) = {
        for (id, request, exists) in expected {
            assert_eq!(log.request_exists(&order_aggregate(id), request).await, Ok(exists), "{id} {request}");
        }
        reopen(subject, store, log).await
    };
    for (id, request, exists) in expected {
        assert_eq!(reopened.request_exists(&order_aggregate(id), request).await, Ok(exists), "{id} {request}");
    }
}

/// The result equals the answer to a repeat, before and after reopening, even if many commits followed.
pub async fn the_first_outcome_of_a_request_is_looked_up(subject: &dyn Subject) {
    let (mut store, mut log) = open(subject).await;
    let first = commit(&log, order("a", 1).event(event("t", 2)).request_id("r-1")).await;
    for n in 2..300 {
        commit(&log, order("a", n).request_id(format!("r-{n}"))).await;
    }
    for _ in 0..2 {
        let outcome = async |id: &str, request: &str| {
            log.request_outcome(&order_aggregate(id), request).await.expect("it is looked up")
        };
        let due = annals_core::CommitOutcome { duplicate: true, ..first.clone() };
        assert_eq!(outcome("a", "r-1").await, Some(due));
        assert_eq!(outcome("a", "r-299").await.map(|outcome| outcome.version), Some(299));
        assert_eq!((outcome("a", "r-0").await, outcome("b", "r-1").await), (None, None));
        (store, log) = reopen(subject, store, log).await;
    }
    drop(store);
}

/// A refused request is not remembered: if it is sent again when it fits, it is committed.
pub async fn a_refused_request_may_be_sent_again(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    let request = order("a", 2).request_id("r").expect(ExpectedVersion::Exact(1));
    assert_conflict(&log.commit(request.clone()).await, 0);
    commit(&log, order("a", 1)).await;
    assert_eq!(commit(&log, request).await.version, 2);
}

/// Without a request id, each commit is a request of its own. Its generated id works like any other.
pub async fn without_a_request_id_each_commit_is_a_request_of_its_own(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    let first = commit(&log, order("a", 1)).await;
    commit(&log, order("a", 1)).await;
    let commits = commits_of(&log, order_aggregate("a")).await;
    let made: Vec<_> = commits.iter().map(|c| c.info.request_id.clone().expect("a request id was made")).collect();
    assert_eq!(made.len(), 2);
    assert_ne!(made[0], made[1]);
    assert!(log.request_exists(&order_aggregate("a"), &made[0]).await.expect("the request is looked up"));
    assert_repeat(log.commit(order("a", 1).request_id(made[0].clone())).await, &first);
}

/// A repeat of a commit whose events were given ids is recognised by them. Generated ids do not count as content.
pub async fn given_event_ids_are_kept_and_made_ones_are_not_content(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    let given = NewEvent { id: Some(Uuid::from_u128(7)), ..event("order_changed", 1) };
    let request = NewCommit::new("order", "a").event(given).event(event("order_changed", 2)).request_id("r");
    let first = commit(&log, request.clone()).await;
    assert_eq!(first.event_ids[0], Uuid::from_u128(7));
    assert_repeat(log.commit(request).await, &first);
    let ids: Vec<_> = whole_log(&log).await.iter().map(|event| event.id).collect();
    assert_eq!(ids, first.event_ids);
    // Event ids are unique only inside a commit: another commit may have the same id.
    let again = NewEvent { id: Some(Uuid::from_u128(7)), ..event("order_changed", 3) };
    assert_eq!(commit(&log, NewCommit::new("order", "b").event(again)).await.event_ids, [Uuid::from_u128(7)]);
}
