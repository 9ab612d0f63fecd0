//! Reading one aggregate, by version and by time.

use annals_core::{
    Aggregate, AggregateCommits, AggregateQuery, Code, EventLog, Invalid, NewCommit, ReadError, Timestamp, Version,
};
use std::sync::Arc;

use crate::sample::{commit, commits_of, event, log_of, open, order, order_aggregate, reopen};
use crate::{OTHER_TENANT, Subject, WithOther};

const NOTHING: [u64; 0] = [];

async fn read(log: &Arc<dyn EventLog>, query: AggregateQuery) -> AggregateCommits {
    log.read_aggregate(query).await.expect("the aggregate is read")
}

async fn versions(log: &Arc<dyn EventLog>, query: AggregateQuery) -> Vec<Version> {
    read(log, query).await.commits.iter().map(|commit| commit.info.version).collect()
}

fn all(id: &str) -> AggregateQuery {
    AggregateQuery::new(order_aggregate(id))
}

async fn refusal(log: &Arc<dyn EventLog>, query: AggregateQuery) -> Invalid {
    match log.read_aggregate(query).await {
        Err(ReadError::Invalid(invalid)) => invalid,
        other => panic!("it must be refused, not {other:?}"),
    }
}

/// An aggregate without commits has version 0, no commits, and no last commit.
pub async fn an_unknown_aggregate_has_version_0_and_no_commits(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    commit(&log, order("a", 1)).await;
    let nothing = AggregateCommits { commits: Vec::new(), version: 0 };
    for query in [all("b"), AggregateQuery::last(order_aggregate("b")), AggregateQuery::single(order_aggregate("b"), 1)]
    {
        assert_eq!(read(&log, query).await, nothing);
    }
    assert_eq!(read(&log, AggregateQuery::new(Aggregate::new("door", "a"))).await, nothing);
}

/// An aggregate without commits has version 0. This holds whatever the number of commits.
pub async fn an_aggregates_version_is_that_of_its_last_commit(subject: &dyn Subject) {
    let (store, log) = open(subject).await;
    let of = async |log: &Arc<dyn EventLog>, id: &str| log.aggregate_version(&order_aggregate(id)).await;
    assert_eq!(of(&log, "a").await, Ok(0));
    for n in 1..=5 {
        commit(&log, order("a", n)).await;
        commit(&log, order("b", n)).await;
        assert_eq!((of(&log, "a").await, of(&log, "c").await), (Ok(n), Ok(0)));
    }
    let (_store, log) = reopen(subject, store, log).await;
    assert_eq!((of(&log, "a").await, of(&log, "b").await), (Ok(5), Ok(5)));
    assert_eq!(of(&log, "").await.expect_err("refused").code(), Code::InvalidId);
}

/// All commits, one commit and the last one are read back as committed. One commit makes version 1, three make 3, in order.
pub async fn all_one_and_the_last_commit_can_be_read(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    let mut ids = Vec::new();
    for n in 0..3 {
        ids.push(commit(&log, order("a", n).event(event("order_changed", n))).await.commit_id);
        let page = read(&log, all("a")).await;
        assert_eq!(page.version, n + 1);
        let read_ids: Vec<_> = page.commits.iter().map(|commit| commit.info.commit_id).collect();
        assert_eq!(read_ids, ids);
    }
    let one = read(&log, AggregateQuery::single(order_aggregate("a"), 2)).await;
    assert_eq!((one.commits[0].info.commit_id, one.commits.len(), one.version), (ids[1], 1, 3));
    let last = read(&log, AggregateQuery::last(order_aggregate("a"))).await;
    assert_eq!((last.commits[0].info.commit_id, last.commits.len(), last.version), (ids[2], 1, 3));
}

/// Another aggregate's commits are not returned, however alike the ids.
pub async fn other_aggregates_are_not_returned(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    let ids = ["a", "A", "a ", " a", "aa", "a/", "a%2F", "á", "a\u{301}"];
    for (n, id) in ids.iter().enumerate() {
        commit(&log, order(id, n as u64)).await;
    }
    for (n, id) in ids.iter().enumerate() {
        let commits = commits_of(&log, order_aggregate(id)).await;
        assert_eq!(commits.len(), 1, "{id:?}");
        assert_eq!(crate::sample::n_of(&commits[0].events[0]), n as u64);
    }
}

/// A version range includes both ends; 0 means 1; versions past the end are not an error.
pub async fn a_version_range_includes_both_ends(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    for n in 0..9 {
        commit(&log, order("a", n)).await;
        commit(&log, order("b", n)).await;
    }
    let range = |from, to| AggregateQuery { from_version: from, to_version: to, ..all("a") };
    assert_eq!(versions(&log, range(3, 5)).await, [3, 4, 5]);
    assert_eq!(versions(&log, range(0, 2)).await, [1, 2]);
    assert_eq!(versions(&log, range(0, 0)).await, NOTHING);
    assert_eq!(versions(&log, range(4, 4)).await, [4]);
    assert_eq!(versions(&log, range(8, 100)).await, [8, 9]);
    assert_eq!(versions(&log, range(10, 11)).await, NOTHING);
    assert_eq!(versions(&log, range(u64::MAX, u64::MAX)).await, NOTHING);
    assert_eq!(read(&log, range(10, 11)).await.version, 9);
}

/// A limit takes the first of a range, or the last of it, in ascending order in both cases.
pub async fn a_limit_takes_the_first_or_the_last_of_a_range(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    for n in 0..30 {
        commit(&log, order("a", n)).await;
    }
    let query = AggregateQuery { from_version: 5, to_version: 20, limit: 3, ..all("a") };
    assert_eq!(versions(&log, query.clone()).await, [5, 6, 7]);
    assert_eq!(versions(&log, AggregateQuery { last: true, ..query.clone() }).await, [18, 19, 20]);
    assert_eq!(
        versions(&log, AggregateQuery { limit: 1_000, last: true, ..query }).await,
        (5..=20).collect::<Vec<_>>()
    );
}

/// An aggregate is read to its end page by page, over more commits than a page holds.
pub async fn a_long_aggregate_is_read_page_by_page(subject: &dyn Subject) {
    let (store, log) = open(subject).await;
    for n in 0..1_050 {
        commit(&log, order("a", n)).await;
    }
    let (_store, log) = reopen(subject, store, log).await;
    assert_eq!(all("a").limit, 100, "a page has 100 unless told otherwise");
    assert_eq!(read(&log, all("a")).await.commits.len(), 100);
    let found: Vec<_> = commits_of(&log, order_aggregate("a")).await.iter().map(|c| c.info.version).collect();
    assert_eq!(found, (1..=1_050).collect::<Vec<_>>());
}

/// A time range includes both ends, and applies to the commit's time, which is that of its first event. The order stays by version.
pub async fn a_time_range_includes_both_ends(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    let at = Timestamp::from_millis;
    // Times need not grow, may be equal, and may be before 1970. They never decide the order.
    for (n, time) in [1_000, 3_000, 2_000, 2_000, -5].into_iter().enumerate() {
        let mut new = order("a", n as u64).event(event("order_changed", 9));
        new.events[0].time = Some(at(time));
        new.events[1].time = Some(at(9_000));
        commit(&log, new).await;
    }
    let range = |from: Option<i64>, to: Option<i64>| AggregateQuery {
        from_time: from.map(at),
        to_time: to.map(at),
        ..all("a")
    };
    assert_eq!(versions(&log, range(Some(1_000), Some(2_000))).await, [1, 3, 4]);
    assert_eq!(versions(&log, range(Some(2_000), Some(2_000))).await, [3, 4]);
    assert_eq!(versions(&log, range(Some(2_001), Some(2_999))).await, NOTHING);
    assert_eq!(versions(&log, range(Some(2_001), None)).await, [2]);
    assert_eq!(versions(&log, range(None, Some(1_000))).await, [1, 5]);
    assert_eq!(versions(&log, range(Some(0), Some(2_000))).await, [1, 3, 4]);
    assert_eq!(versions(&log, range(Some(i64::MIN), Some(i64::MAX))).await, [1, 2, 3, 4, 5]);
    assert_eq!(
        read(&log, range(Some(5_000), None)).await.version,
        5,
        "the version is the aggregate's, not the range's"
    );
    assert_eq!(
        read(&log, range(Some(2_001), None)).await.version,
        5,
        "also when the newest commit is not in the range"
    );
    let both = AggregateQuery { from_version: 2, to_version: 3, ..range(Some(0), Some(2_500)) };
    assert_eq!(versions(&log, both).await, [3]);
    let last = AggregateQuery { limit: 2, last: true, ..range(Some(0), Some(2_500)) };
    assert_eq!(versions(&log, last).await, [3, 4]);
    let first = AggregateQuery { limit: 1, ..range(Some(1_500), None) };
    assert_eq!(versions(&log, first).await, [2]);
}

/// A page of a time range is empty only at the end of the version range, however few commits lie in the time range.
pub async fn a_sparse_time_range_is_read_to_its_end(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    for n in 0..300 {
        let mut new = order("a", n);
        new.events[0].time = Some(Timestamp::from_millis(if n == 250 { 5 } else { 1_000 }));
        commit(&log, new).await;
    }
    let query = AggregateQuery {
        from_time: Some(Timestamp::from_millis(0)),
        to_time: Some(Timestamp::from_millis(10)),
        limit: 10,
        ..all("a")
    };
    assert_eq!(versions(&log, query.clone()).await, [251]);
    assert_eq!(versions(&log, AggregateQuery { last: true, ..query }).await, [251]);
}

/// A range that ends before it begins, and a limit outside 1 to 1,000, are refused with the field's name.
pub async fn a_range_that_ends_before_it_begins_is_refused(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    commit(&log, order("a", 1)).await;
    let versions = AggregateQuery { from_version: 5, to_version: 4, ..all("a") };
    let invalid = refusal(&log, versions).await;
    assert_eq!((invalid.code, &*invalid.path), (Code::InvalidRange, "from_version"));
    let times = AggregateQuery {
        from_time: Some(Timestamp::from_millis(2)),
        to_time: Some(Timestamp::from_millis(1)),
        ..all("a")
    };
    let invalid = refusal(&log, times).await;
    assert_eq!((invalid.code, &*invalid.path), (Code::InvalidRange, "from_time"));
    for limit in [0, 1_001, usize::MAX] {
        let invalid = refusal(&log, AggregateQuery { limit, ..all("a") }).await;
        assert_eq!((invalid.code, &*invalid.path), (Code::InvalidQuery, "limit"));
    }
    assert_eq!(refusal(&log, all("")).await.code, Code::InvalidId);
    assert_eq!(refusal(&log, AggregateQuery::new(Aggregate::new("no name", "a"))).await.code, Code::InvalidName);
}

/// Read with a tenantId, an aggregate exists only for its own; the default is `(0)`.
pub async fn an_aggregate_is_there_for_its_own_tenant_id_only(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    commit(&log, NewCommit { tenant_id: Some("t-1".into()), ..order("a", 1) }).await;
    commit(&log, order("b", 2)).await;
    let of = |id: &str, tenant: &str| AggregateQuery { tenant_id: Some(tenant.into()), ..all(id) };
    for (id, tenant, version) in [("a", "t-1", 1), ("a", "t-2", 0), ("a", "(0)", 0), ("b", "(0)", 1), ("b", "t-1", 0)] {
        let found = read(&log, of(id, tenant)).await;
        assert_eq!((found.version, found.commits.len() as u64), (version, version), "{id} of {tenant}");
        let found = read(&log, AggregateQuery { last: true, limit: 1, ..of(id, tenant) }).await;
        assert_eq!((found.version, found.commits.len() as u64), (version, version), "the last of {id} of {tenant}");
    }
    assert_eq!(read(&log, all("a")).await.version, 1, "without a tenantId it is there");
}

/// The same aggregate id exists in two tenants' stores, and neither sees the other's.
pub async fn tenants_do_not_see_each_other(subject: &dyn Subject) {
    let subject = &WithOther(subject);
    let (store, log) = open(subject).await;
    let other = log_of(&store, OTHER_TENANT);
    commit(&log, order("a", 1)).await;
    commit(&log, order("a", 2)).await;
    assert_eq!(read(&other, all("a")).await.version, 0);
    assert_eq!(commit(&other, order("a", 3)).await.version, 1);
    assert_eq!(read(&log, all("a")).await.version, 2);
}

/// A thousand commits of different aggregates, two at a time, all succeed; a thousand concurrent reads each find theirs.
pub async fn a_thousand_aggregates_are_committed_and_read_in_parallel(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    let writers: Vec<_> = (0..2)
        .map(|writer| {
            let log = log.clone();
            tokio::spawn(async move {
                for n in (writer..1_000).step_by(2) {
                    commit(&log, order(&format!("a-{n}"), n)).await;
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.expect("the writer ends well");
    }
    let readers: Vec<_> = (0..1_000)
        .map(|n| {
            let log = log.clone();
            tokio::spawn(async move { (n, commits_of(&log, order_aggregate(&format!("a-{n}"))).await) })
        })
        .collect();
    for reader in readers {
        let (n, commits) = reader.await.expect("the reader ends well");
        assert_eq!(commits.len(), 1);
        assert_eq!(crate::sample::n_of(&commits[0].events[0]), n);
    }
}

/// Ids are any text: slashes, percent signs, Unicode, text like an index, a path or a query, and up to 256 bytes.
pub async fn ids_are_any_text(subject: &dyn Subject) {
    let (store, log) = open(subject).await;
    let longest = "ü".repeat(128);
    let ids: Vec<&str> = UNUSUAL_IDS.iter().copied().chain([&*longest]).collect();
    for (n, id) in ids.iter().enumerate() {
        let new = NewCommit { command_id: Some((*id).into()), ..order(id, n as u64) };
        commit(&log, NewCommit { correlation_id: Some((*id).into()), ..new.request_id(*id) }).await;
    }
    let (_store, log) = reopen(subject, store, log).await;
    for (n, id) in ids.iter().enumerate() {
        let commits = commits_of(&log, order_aggregate(id)).await;
        assert_eq!(commits.len(), 1, "{id:?}");
        let info = &commits[0].info;
        assert_eq!(info.aggregate.id, *id);
        assert_eq!(info.request_id.as_deref(), Some(*id));
        assert_eq!((info.command_id.as_deref(), info.correlation_id.as_deref()), (Some(*id), Some(*id)));
        assert_eq!(log.request_exists(&order_aggregate(id), id).await, Ok(true));
        assert!(log.commit(order(id, n as u64).request_id(*id)).await.expect("it is a repeat").duplicate);
    }
}

/// Ids that naive storage would confuse, truncate or escape.
pub(crate) const UNUSUAL_IDS: &[&str] = &[
    "a/b",
    "a/b/",
    "/",
    "//",
    "..",
    ".",
    "a\\b",
    "a%2Fb",
    "%00",
    "a?b=c&d#e",
    " ",
    "  ",
    "\u{a0}",
    "a b",
    "\"",
    "'",
    "`",
    "$",
    "$gt",
    "{}",
    "null",
    "0",
    "-1",
    "(0)",
    "~",
    "*",
    "a*",
    "_id",
    "aggregateId_1_version_1",
    "u_idx_aggregate_id_version",
    "u_idx_request_id",
    "idx:order:a",
    "order/a",
    "type:order_placed",
    "tag:x",
    "日本語",
    "🦀",
    "👩‍👩‍👧‍👦",
    "مرحبا",
    "\u{202e}abc",
    "\u{feff}bom",
    "\u{10ffff}",
    "é",
    "e\u{301}",
    "ß",
    "SS",
    "İ",
];
