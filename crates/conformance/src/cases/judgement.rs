//! What is refused, with which code, and in which order it is checked: the commit's own rules, tenantId, request id, version.

use annals_core::{
    Aggregate, Code, CommitError, ExpectedVersion, KeyValue, NewCommit, NewEvent, ReadError, Reserve, Timestamp, Uuid,
    limits,
};

use crate::Subject;
use crate::sample::{commit, event, event_of_bytes, open, order, order_aggregate, refused, whole_log};

fn change(mut commit: NewCommit, change: impl FnOnce(&mut NewCommit)) -> NewCommit {
    change(&mut commit);
    commit
}

/// Each broken rule of a commit is refused with its code and the path of the value, and nothing is stored.
pub async fn a_commit_that_breaks_a_rule_is_refused_with_its_path(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    let good = || order("a", 1);
    let same_id = NewEvent { id: Some(Uuid::from_u128(1)), ..event("t", 1) };
    let over = |bytes| event_of_bytes("t", bytes);
    let beyond = Timestamp::from_millis(i64::MAX);
    let key = Reserve::new("user", "eva", KeyValue::new("u-1").expect("a value"));
    let bad = [
        (change(good(), |c| c.aggregate.name = "".into()), Code::InvalidName, "aggregate.name"),
        (change(good(), |c| c.aggregate.name = "a b".into()), Code::InvalidName, "aggregate.name"),
        (change(good(), |c| c.aggregate.name = "n".repeat(101).into()), Code::InvalidName, "aggregate.name"),
        (change(good(), |c| c.aggregate.id = "".into()), Code::InvalidId, "aggregate.id"),
        (change(good(), |c| c.aggregate.id = "a\0".into()), Code::InvalidId, "aggregate.id"),
        (change(good(), |c| c.aggregate.id = "i".repeat(257).into()), Code::InvalidId, "aggregate.id"),
        (change(good(), |c| c.request_id = Some("".into())), Code::InvalidId, "request_id"),
        (change(good(), |c| c.command_id = Some("\n".into())), Code::InvalidId, "command_id"),
        (change(good(), |c| c.tenant_id = Some("".into())), Code::InvalidId, "tenant_id"),
        (change(good(), |c| c.owner_id = Some("o\u{7f}".into())), Code::InvalidId, "owner_id"),
        (change(good(), |c| c.header = vec![("".into(), "v".into())]), Code::InvalidHeader, "header"),
        (change(good(), |c| c.header = vec![("k".into(), "v".repeat(65_536).into())]), Code::InvalidHeader, "header"),
        (change(good(), |c| c.events.clear()), Code::InvalidEvents, "events"),
        (change(good(), |c| c.events = vec![event("t", 1); limits::EVENTS_MAX + 1]), Code::InvalidEvents, "events"),
        (change(good(), |c| c.events = vec![same_id.clone(), same_id]), Code::InvalidEvents, "events"),
        (change(good(), |c| c.events[0].event_type = "".into()), Code::InvalidName, "events[0].type"),
        (change(good(), |c| c.events[0].generation = 0), Code::InvalidBody, "events[0].generation"),
        (change(good(), |c| c.events[0].time = Some(beyond)), Code::InvalidTime, "events[0].time"),
        (good().reserve(key.until(beyond)), Code::InvalidKeys, "reserve[0].ttl_at"),
        (change(good(), |c| c.events[0].tags = vec!["t".into(); 65]), Code::InvalidTags, "events[0].tags"),
        (change(good(), |c| c.events[0].tags = vec!["".into()]), Code::InvalidTags, "events[0].tags[0]"),
        (change(good(), |c| c.events[0] = over(limits::EVENT_BYTES_MAX + 1)), Code::EventTooLarge, "events[0].data"),
        (change(good(), |c| c.events = vec![over(6 << 20); 3]), Code::CommitTooLarge, "events"),
    ];
    for (commit, code, path) in bad {
        match refused(&log, commit).await {
            CommitError::Invalid(invalid) => {
                assert_eq!((invalid.code, &*invalid.path), (code, path));
                assert!(invalid.message.len() > 10, "{path}: the message is a sentence");
            }
            other => panic!("{path} must be invalid, not {other}"),
        }
    }
    assert_eq!(log.head().await.expect("the head is read"), 0);
}

/// The commit's own rules are checked before everything that the store knows.
pub async fn rules_are_judged_first(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    commit(&log, order("a", 1).request_id("r")).await;
    let all_wrong = NewCommit { tenant_id: Some("other".into()), events: Vec::new(), ..order("a", 1).request_id("r") };
    assert_eq!(refused(&log, all_wrong.expect(ExpectedVersion::Exact(9))).await.code(), Code::InvalidEvents);
}

/// The tenantId is checked before the request id and the version.
pub async fn the_tenant_id_is_judged_before_request_and_version(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    commit(&log, order("a", 1).request_id("r")).await;
    let other = |n| NewCommit { tenant_id: Some("other".into()), ..order("a", n) };
    for commit in
        [other(1).request_id("r"), other(2).request_id("r"), other(3).expect(ExpectedVersion::Exact(9)), other(4)]
    {
        let error = refused(&log, commit).await;
        assert_eq!(error, CommitError::AggregateOfOtherTenant { tenant_id: "(0)".into() });
    }
    let new = NewCommit { tenant_id: Some("other".into()), ..order("b", 1) };
    assert_eq!(refused(&log, new.clone().expect(ExpectedVersion::Exists)).await.code(), Code::VersionConflict);
    commit(&log, new).await;
    assert_eq!(refused(&log, order("b", 2)).await, CommitError::AggregateOfOtherTenant { tenant_id: "other".into() });
}

/// The request id is checked before the version: a repeat is a repeat and a reuse is a reuse at any version.
pub async fn the_request_id_is_judged_before_the_version(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    commit(&log, order("a", 1).request_id("r")).await;
    let wrong_version = ExpectedVersion::Exact(9);
    let repeat = log.commit(order("a", 1).request_id("r").expect(wrong_version)).await.expect("it is a repeat");
    assert!(repeat.duplicate);
    assert_eq!(
        refused(&log, order("a", 2).request_id("r").expect(wrong_version)).await,
        CommitError::RequestIdReused { request_id: "r".into() }
    );
}

/// A second tenantId cannot take the same aggregate id, even in a race: one gets it, and the others are refused with its owner.
pub async fn an_id_belongs_to_the_tenant_id_that_came_first(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    for round in 0..10 {
        let id = format!("a-{round}");
        let tasks: Vec<_> = (0..8)
            .map(|n| {
                let (log, tenant) = (log.clone(), format!("t-{n}"));
                let commit = NewCommit { tenant_id: Some(tenant.clone().into()), ..order(&id, n) };
                tokio::spawn(async move { (tenant, log.commit(commit).await) })
            })
            .collect();
        let mut winners = Vec::new();
        let mut told = Vec::new();
        for task in tasks {
            match task.await.expect("the task ends well") {
                (tenant, Ok(_)) => winners.push(tenant),
                (_, Err(CommitError::AggregateOfOtherTenant { tenant_id })) => told.push(tenant_id),
                (_, Err(other)) => panic!("{other}"),
            }
        }
        assert_eq!((winners.len(), told.len()), (1, 7));
        assert!(told.iter().all(|tenant| *tenant == winners[0]));
    }
    assert_eq!(whole_log(&log).await.len(), 10);
}

/// A look-up of a request checks its aggregate.
pub async fn a_look_up_of_a_request_checks_its_aggregate(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    let code = |result: Result<bool, ReadError>| result.expect_err("it is refused").code();
    assert_eq!(code(log.request_exists(&Aggregate::new("a b", "a"), "r").await), Code::InvalidName);
    assert_eq!(code(log.request_exists(&order_aggregate(""), "r").await), Code::InvalidId);
}
