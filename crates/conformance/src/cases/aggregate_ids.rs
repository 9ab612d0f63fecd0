//! Listing aggregates by id.

use std::sync::Arc;

use annals_core::{
    AggregateIdsQuery, AggregateNamesQuery, ByteString, Code, EventLog, ExpectedVersion, KnownAggregate, NewCommit,
};

use super::aggregates::UNUSUAL_IDS;
use crate::sample::{assert_conflict, commit, event, log_of, open, order, reopen};
use crate::{OTHER_TENANT, Subject, WithOther};

async fn listed(log: &Arc<dyn EventLog>, after: Option<&str>, limit: usize) -> Vec<String> {
    let query = AggregateIdsQuery { name: "order".into(), after: after.map(ByteString::from), limit };
    let known = log.aggregate_ids(query).await.expect("ids are listed");
    known.into_iter().map(|known| known.id.to_string()).collect()
}

/// A list resumes after its cursor, which need not exist. A cursor at the last id finds nothing.
pub async fn a_list_goes_on_after_its_cursor(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    for id in ["b", "d", "a", "c"] {
        commit(&log, order(id, 1)).await;
    }
    assert_eq!(listed(&log, None, 100).await, ["a", "b", "c", "d"]);
    assert_eq!(listed(&log, Some("b"), 100).await, ["c", "d"]);
    assert_eq!(listed(&log, Some("bb"), 100).await, ["c", "d"]);
    assert_eq!(listed(&log, Some(""), 100).await, ["a", "b", "c", "d"]);
    assert!(listed(&log, Some("d"), 100).await.is_empty());
    assert!(listed(&log, Some("e\0"), 100).await.is_empty());
}

/// A list keeps its limit, and pages cover every id once.
pub async fn a_list_keeps_its_limit(subject: &dyn Subject) {
    let (store, log) = open(subject).await;
    let mut all: Vec<String> = (0..250).map(|n| format!("a-{}", n * 7 % 250)).collect();
    for id in &all {
        commit(&log, order(id, 1)).await;
    }
    all.sort();
    let (_store, log) = reopen(subject, store, log).await;
    assert_eq!(listed(&log, None, 3).await, all[..3]);
    for limit in [1, 7, 1_000] {
        let mut found: Vec<String> = Vec::new();
        loop {
            let page = listed(&log, found.last().map(String::as_str), limit).await;
            assert!(page.len() <= limit);
            if page.is_empty() {
                break;
            }
            found.extend(page);
        }
        assert_eq!(found, all);
    }
}

/// An aggregate with many commits is listed once; one whose only commit was refused is not listed.
pub async fn an_aggregate_is_listed_once(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    for n in 0..5 {
        commit(&log, order("a", n)).await;
        commit(&log, order("b", n).request_id(format!("r-{n}"))).await;
        log.commit(order("b", n).request_id(format!("r-{n}"))).await.expect("it is a repeat");
    }
    assert_conflict(&log.commit(order("c", 1).expect(ExpectedVersion::Exists)).await, 0);
    assert_eq!(listed(&log, None, 100).await, ["a", "b"]);
}

/// Aggregates of another name, and of another tenant, are left out.
pub async fn other_names_and_tenants_are_left_out(subject: &dyn Subject) {
    let subject = &WithOther(subject);
    let (store, log) = open(subject).await;
    commit(&log, order("a", 1)).await;
    for name in ["orders", "orde", "Order", "order.x", "o"] {
        commit(&log, NewCommit::new(name, format!("of-{name}")).event(event("t", 1))).await;
    }
    commit(&log_of(&store, OTHER_TENANT), order("z", 1)).await;
    assert_eq!(listed(&log, None, 100).await, ["a"]);
    assert_eq!(listed(&log_of(&store, OTHER_TENANT), None, 100).await, ["z"]);
    let none = AggregateIdsQuery { name: "unknown".into(), after: None, limit: 10 };
    assert_eq!(log.aggregate_ids(none).await.expect("ids are listed"), []);
}

/// The tenantId that an aggregate's first commit gave it is listed with it.
pub async fn the_tenant_id_is_listed_too(subject: &dyn Subject) {
    let (store, log) = open(subject).await;
    commit(&log, NewCommit { tenant_id: Some("t-1".into()), ..order("a", 1) }).await;
    commit(&log, order("b", 1)).await;
    let (_store, log) = reopen(subject, store, log).await;
    let query = AggregateIdsQuery { name: "order".into(), after: None, limit: 10 };
    let known = |id: &str, tenant: &str| KnownAggregate { id: id.into(), tenant_id: tenant.into() };
    assert_eq!(log.aggregate_ids(query).await.expect("ids are listed"), [known("a", "t-1"), known("b", "(0)")]);
}

/// Ids are ordered by their bytes, whatever the order of commits: `(0)` comes before letters and digits, and `~` after them.
pub async fn ids_are_ordered_by_their_bytes(subject: &dyn Subject) {
    let (store, log) = open(subject).await;
    for id in UNUSUAL_IDS.iter().rev() {
        commit(&log, order(id, 1)).await;
    }
    let mut sorted: Vec<&str> = UNUSUAL_IDS.to_vec();
    sorted.sort_unstable_by_key(|id| id.as_bytes());
    assert_eq!(listed(&log, None, 1_000).await, sorted);
    let (_store, log) = reopen(subject, store, log).await;
    assert_eq!(listed(&log, None, 1_000).await, sorted);
    for window in sorted.windows(2) {
        assert_eq!(listed(&log, Some(window[0]), 1).await, [window[1]]);
    }
}

/// An invalid name, and a limit outside 1 to 1,000, are refused.
pub async fn a_list_with_a_wrong_name_or_limit_is_refused(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    for (name, limit, code) in [
        ("", 10, Code::InvalidName),
        ("a b", 10, Code::InvalidName),
        ("order", 0, Code::InvalidQuery),
        ("order", 1_001, Code::InvalidQuery),
    ] {
        let query = AggregateIdsQuery { name: name.into(), after: None, limit };
        assert_eq!(log.aggregate_ids(query).await.expect_err("it is refused").code(), code);
    }
}

async fn names(log: &Arc<dyn EventLog>, after: Option<&str>, limit: usize) -> Vec<ByteString> {
    let query = AggregateNamesQuery { after: after.map(ByteString::from), limit };
    log.aggregate_names(query).await.expect("names are listed")
}

/// Each name is listed once, in byte order, however many aggregates have it. Pages cover every name.
pub async fn names_are_listed_once_and_go_on_after_their_cursor(subject: &dyn Subject) {
    let subject = &WithOther(subject);
    let (store, log) = open(subject).await;
    assert!(names(&log, None, 100).await.is_empty());
    let mut all = ["order", "orders", "Order", "order.x", "o", "a-1", "9", "z_z"].map(ByteString::from).to_vec();
    for name in &all {
        for id in ["1", "2", "~"] {
            commit(&log, NewCommit::new(name.clone(), id).event(event("t", 1))).await;
        }
    }
    let foreign = NewCommit::new("of-another-tenant", "1").event(event("t", 1));
    commit(&log_of(&store, OTHER_TENANT), foreign).await;
    all.sort_unstable_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
    let (store, log) = reopen(subject, store, log).await;
    assert_eq!(names(&log, None, 100).await, all);
    assert_eq!(names(&log_of(&store, OTHER_TENANT), None, 100).await, ["of-another-tenant"]);
    for limit in [1, 3] {
        let mut found: Vec<ByteString> = Vec::new();
        loop {
            let page = names(&log, found.last().map(|last| &**last), limit).await;
            assert!(page.len() <= limit);
            if page.is_empty() {
                break;
            }
            found.extend(page);
        }
        assert_eq!(found, all);
    }
    assert_eq!(names(&log, Some("ordeq"), 1).await, ["order"], "a cursor need not exist");
    for limit in [0, 1_001] {
        let refused = log.aggregate_names(AggregateNamesQuery { after: None, limit }).await.expect_err("refused");
        assert_eq!(refused.code(), Code::InvalidQuery);
    }
}

/// A refused commit and a prepare key leave no name.
pub async fn a_name_without_a_commit_is_not_listed(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    let refused = NewCommit::new("door", "1").event(event("t", 1)).expect(ExpectedVersion::Exists);
    assert_conflict(&log.commit(refused).await, 0);
    assert!(names(&log, None, 100).await.is_empty());
    commit(&log, order("a", 1)).await;
    assert_eq!(names(&log, None, 100).await, ["order"]);
}
