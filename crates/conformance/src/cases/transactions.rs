//! Several commits under one request are stored together or not at all.

use annals_core::{
    Aggregate, Code, CommitError, CommitOutcome, ExpectedVersion, Filter, LogQuery, NewCommit, NewTransaction,
    RecordedEvent, TransactionError, TransactionPlace, limits,
};

use crate::Subject;
use crate::sample::{
    assert_in_order, commit, commits_of, event, event_of_bytes, ns_of, number, open, order, order_aggregate, pattern,
    refused, refused_together, reopen, transact, unless, version_of, whole_log,
};

/// Returns commits of these orders, each of one event whose `n` is its index.
fn of_orders(ids: &[&str]) -> NewTransaction {
    NewTransaction::new(ids.iter().zip(0..).map(|(id, n)| order(id, n)))
}

fn duplicates(first: &[CommitOutcome]) -> Vec<CommitOutcome> {
    first.iter().map(|outcome| CommitOutcome { duplicate: true, ..outcome.clone() }).collect()
}

fn conflict(expected: &str, actual_version: u64) -> CommitError {
    CommitError::VersionConflict { expected: expected.into(), actual_version }
}

fn reused(request_id: &str) -> TransactionError {
    CommitError::RequestIdReused { request_id: request_id.into() }.into()
}

/// All commits are stored with consecutive sequence numbers in the given order, each as the next version of its aggregate.
pub async fn all_commits_are_stored_together_in_their_order(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    commit(&log, order("b", 9)).await;
    let three = order("c", 0).event(event("order_changed", 1)).event(event("order_changed", 2));
    let door = NewCommit::new("door", "b").event(event("opened", 4));
    let outcomes = transact(&log, NewTransaction::new([three, order("b", 3), door]).request_id("t")).await;
    let places: Vec<_> = outcomes.iter().map(|it| (it.version, number(it), it.event_ids.len())).collect();
    assert_eq!(places, [(1, 1, 3), (2, 4, 1), (1, 5, 1)]);
    let events = whole_log(&log).await;
    assert_in_order(&events);
    assert_eq!(ns_of(&events), [9, 0, 1, 2, 3, 4]);
    for (outcome, aggregate) in
        outcomes.iter().zip([order_aggregate("c"), order_aggregate("b"), Aggregate::new("door", "b")])
    {
        let commits = commits_of(&log, aggregate.clone()).await;
        let stored = commits.last().expect("it has a commit");
        assert_eq!((stored.info.commit_id, stored.info.version), (outcome.commit_id, outcome.version));
        assert_eq!(stored.info.aggregate, aggregate);
        let ids: Vec<_> = stored.events.iter().map(|event| event.id).collect();
        assert_eq!(ids, outcome.event_ids);
    }
    assert_eq!(commit(&log, order("b", 5)).await.version, 3);
}

/// Every read shows the transaction of an event: the id of its first commit, the index of the event's commit, and their number. This
/// includes a read that finds only a later commit. Other events have no transaction.
pub async fn events_name_their_transaction_in_every_read(subject: &dyn Subject) {
    let (mut store, mut log) = open(subject).await;
    commit(&log, order("x", 0)).await;
    let door = NewCommit::new("door", "b").event(event("opened", 3)).event(event("closed", 4));
    let outcomes = transact(&log, NewTransaction::new([order("a", 1), order("b", 2), door]).request_id("t")).await;
    let place = |place| Some(TransactionPlace { id: outcomes[0].commit_id, place, count: 3 });
    let due = [None, place(0), place(1), place(2), place(2)];
    for _ in 0..2 {
        let places = |events: &[RecordedEvent]| events.iter().map(|event| event.commit.transaction).collect::<Vec<_>>();
        let all = whole_log(&log).await;
        assert_eq!(places(&all), due);
        let backwards = LogQuery { backwards: true, ..LogQuery::default() };
        let mut backwards = log.read(backwards).await.expect("it is read").events;
        backwards.reverse();
        assert_eq!(backwards, all);
        let filter = Filter { types: vec!["closed".into()], ..Filter::default() };
        let closed = log.read(LogQuery { filter, ..LogQuery::default() }).await.expect("it is read").events;
        assert_eq!(places(&closed), [place(2)]);
        let alone = log.read(LogQuery { from: Some(3), limit: 1, ..LogQuery::default() }).await.expect("it is read");
        assert_eq!(places(&alone.events), [place(2)]);
        assert_eq!(commits_of(&log, Aggregate::new("door", "b")).await[0].info.transaction, place(2));
        assert_eq!(commits_of(&log, order_aggregate("x")).await[0].info.transaction, None);
        (store, log) = reopen(subject, store, log).await;
    }
    drop(store);
}

/// A transaction has two to sixteen commits, and expectations for as many other aggregates.
pub async fn a_transaction_has_two_to_sixteen_commits(subject: &dyn Subject) {
    let (store, log) = open(subject).await;
    transact(&log, of_orders(&["a", "b"])).await;
    let ids: Vec<_> = (0..limits::TRANSACTION_COMMITS_MAX).map(|n| format!("many-{n}")).collect();
    let ids: Vec<_> = ids.iter().map(String::as_str).collect();
    let mut largest = of_orders(&ids).request_id("t");
    for n in 0..limits::TRANSACTION_COMMITS_MAX {
        largest = largest.expect(order_aggregate(&format!("other-{n}")), ExpectedVersion::Empty);
    }
    let outcomes = transact(&log, largest.clone()).await;
    assert!(outcomes.iter().zip(2..).all(|(it, n)| (it.version, it.first_sequence_number) == (1, Some(n))));
    let (_store, log) = reopen(subject, store, log).await;
    assert_eq!(whole_log(&log).await.len(), 18);
    assert_eq!(log.transact(largest).await, Ok(duplicates(&outcomes)));
}

/// Whatever the reason, a refusal of a transaction names the part, and nothing of any part is stored.
pub async fn a_refusal_names_its_part_and_nothing_is_stored(subject: &dyn Subject) {
    let (store, log) = open(subject).await;
    commit(&log, order("old", 0).request_id("r")).await;
    commit(&log, NewCommit { tenant_id: Some("t".into()), ..order("foreign", 1) }).await;
    let with_second = |second: NewCommit| NewTransaction::new([order("a", 0), second]).request_id("t");
    let expecting = |expected| {
        of_orders(&["a", "b"])
            .expect(order_aggregate("c"), ExpectedVersion::Empty)
            .expect(order_aggregate("old"), expected)
    };
    let excluding =
        order("b", 0).fail_if(unless(&[pattern(&["never"], &[]), pattern(&["order_changed"], &[])], Some(0)));
    let excluded = CommitError::AppendConditionFailed { pattern: 1, sequence_number: 1 };
    let foreign = CommitError::AggregateOfOtherTenant { tenant_id: "t".into() };
    let refusals = [
        (with_second(order("old", 1).expect(ExpectedVersion::Exact(0))), "commits[1]", conflict("0", 1)),
        (with_second(order("b", 1).expect(ExpectedVersion::Exists)), "commits[1]", conflict("exists", 0)),
        (with_second(order("foreign", 1)), "commits[1]", foreign),
        (with_second(excluding), "commits[1]", excluded),
        (expecting(ExpectedVersion::Empty), "expect[1]", conflict("empty", 1)),
        (expecting(ExpectedVersion::Exact(7)), "expect[1]", conflict("7", 1)),
        (of_orders(&["old", "a"]).request_id("r"), "", CommitError::RequestIdReused { request_id: "r".into() }),
    ];
    for (transaction, at, error) in refusals {
        // The words for version 0 are equivalent.
        let same = |told: &CommitError| match (told, &error) {
            (
                CommitError::VersionConflict { actual_version: told, .. },
                CommitError::VersionConflict { actual_version: due, .. },
            ) => told == due,
            (told, due) => told == due,
        };
        let refusal = refused_together(&log, transaction).await;
        assert!(refusal.at == at && same(&refusal.error), "{error} at {at:?} was due, not {refusal:?}");
        assert_eq!(log.head().await.expect("the head is read"), 2);
        assert_eq!(version_of(&log, order_aggregate("a")).await, 0);
        assert_eq!(log.request_exists(&order_aggregate("a"), "t").await, Ok(false));
    }
    let (_store, log) = reopen(subject, store, log).await;
    assert_eq!(whole_log(&log).await.len(), 2);
    assert_eq!(transact(&log, of_orders(&["a", "b"]).request_id("t")).await[0].first_sequence_number, Some(2));
}

/// Rules, tenantIds, request id, append conditions, expectations, versions: the first of these checks that fails is reported, whatever
/// its part.
pub async fn parts_are_judged_in_order(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    commit(&log, order("a", 0).request_id("t")).await;
    commit(&log, NewCommit { tenant_id: Some("t".into()), ..order("foreign", 1) }).await;
    let empty = ExpectedVersion::Empty;
    let everything = |condition: bool, foreign: bool, rule: bool| {
        let mut transaction = of_orders(&["a", "b", if foreign { "foreign" } else { "c" }]);
        transaction.commits[0].expected_version = empty;
        if condition {
            transaction.commits[2].append_condition = Some(unless(&[pattern(&[], &[])], None));
        }
        if rule {
            transaction.commits[2].events.clear();
        }
        transaction
    };
    let refusal = async |transaction: NewTransaction| {
        let refusal = refused_together(&log, transaction).await;
        (refusal.error.code(), refusal.at)
    };
    let expecting = |transaction: NewTransaction| transaction.expect(order_aggregate("d"), ExpectedVersion::Exists);
    let code = Code::VersionConflict;
    assert_eq!(refusal(everything(false, false, false)).await, (code, "commits[0]".into()));
    assert_eq!(refusal(expecting(everything(false, false, false))).await, (code, "expect[0]".into()));
    let code = Code::AppendConditionFailed;
    assert_eq!(refusal(expecting(everything(true, false, false))).await, (code, "commits[2]".into()));
    let code = Code::RequestIdReused;
    assert_eq!(refusal(expecting(everything(true, false, false)).request_id("t")).await, (code, String::new()));
    let code = Code::AggregateOfOtherTenant;
    assert_eq!(refusal(everything(true, true, false).request_id("t")).await, (code, "commits[2]".into()));
    assert_eq!(refusal(everything(true, true, true).request_id("t")).await.0, Code::InvalidEvents);
    assert_eq!(log.head().await.expect("the head is read"), 2);
}

/// An aggregate with only an expectation is not changed. If it has no commit, it still has none.
pub async fn an_expectation_changes_nothing(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    commit(&log, order("there", 0)).await;
    for (id, expected) in [
        ("there", ExpectedVersion::Exact(1)),
        ("there", ExpectedVersion::Exists),
        ("there", ExpectedVersion::Any),
        ("absent", ExpectedVersion::Empty),
        ("absent", ExpectedVersion::Exact(0)),
        ("absent", ExpectedVersion::Any),
    ] {
        transact(&log, of_orders(&["a", "b"]).expect(order_aggregate(id), expected)).await;
    }
    assert_eq!(version_of(&log, order_aggregate("there")).await, 1);
    assert_eq!(version_of(&log, order_aggregate("absent")).await, 0);
    assert_eq!(log.head().await.expect("the head is read"), 13);
}

/// The same request again adds nothing and returns all first outcomes, whatever versions, expectations and conditions it has now.
pub async fn a_repeat_returns_all_first_outcomes(subject: &dyn Subject) {
    let (store, log) = open(subject).await;
    let empty = ExpectedVersion::Empty;
    let commits = [order("a", 0).expect(empty), order("b", 1).expect(empty), order("c", 2)];
    let request = NewTransaction::new(commits).request_id("t");
    let first = transact(&log, request.clone()).await;
    commit(&log, order("b", 7)).await;
    let mut other_demands = request.clone().expect(order_aggregate("d"), ExpectedVersion::Exists);
    other_demands.commits[1].expected_version = ExpectedVersion::Exact(44);
    other_demands.commits[2].append_condition = Some(unless(&[pattern(&[], &[])], None));
    other_demands.commits[2].owner_id = Some("o".into());
    for again in [request.clone(), other_demands.clone(), request] {
        assert_eq!(log.transact(again).await, Ok(duplicates(&first)));
    }
    let (_store, log) = reopen(subject, store, log).await;
    assert_eq!(log.transact(other_demands).await, Ok(duplicates(&first)));
    assert_eq!(log.head().await.expect("the head is read"), 4);
}

/// A request id with other commits is reused, and so is that of a single commit in a transaction, and the reverse.
pub async fn a_request_id_with_other_commits_is_refused(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    transact(&log, of_orders(&["a", "b", "c"]).request_id("t")).await;
    let mut other_event = of_orders(&["a", "b", "c"]);
    other_event.commits[2].events[0].generation = 2;
    let mut other_name = of_orders(&["a", "b", "c"]);
    other_name.commits[1].aggregate.name = "door".into();
    let others = [
        of_orders(&["a", "b"]),
        of_orders(&["a", "b", "c", "d"]),
        of_orders(&["a", "b", "d"]),
        of_orders(&["a", "c", "b"]),
        other_event,
        other_name,
    ];
    for (n, other) in others.into_iter().enumerate() {
        assert_eq!(refused_together(&log, other.request_id("t")).await, reused("t"), "transaction {n}");
    }
    assert_eq!(refused(&log, order("a", 0).request_id("t")).await, reused("t").error);
    commit(&log, order("e", 0).request_id("single")).await;
    assert_eq!(refused_together(&log, of_orders(&["e", "f"]).request_id("single")).await, reused("single"));
    assert_eq!(log.head().await.expect("the head is read"), 4);
}

/// The request id belongs to the first commit's aggregate. For the other aggregates it is free: a transaction that begins with one of
/// them is another request.
pub async fn the_request_id_belongs_to_the_first_aggregate(subject: &dyn Subject) {
    let (store, log) = open(subject).await;
    transact(&log, of_orders(&["a", "b"]).request_id("t")).await;
    let (_store, log) = reopen(subject, store, log).await;
    assert_eq!(log.request_exists(&order_aggregate("a"), "t").await, Ok(true));
    assert_eq!(log.request_exists(&order_aggregate("b"), "t").await, Ok(false));
    assert_eq!(commit(&log, order("b", 1).request_id("t")).await.version, 2);
    transact(&log, of_orders(&["c", "a"]).request_id("t")).await;
    assert_eq!(log.request_exists(&order_aggregate("c"), "t").await, Ok(true));
    let stored = commits_of(&log, order_aggregate("a")).await;
    assert_eq!(stored[0].info.request_id.as_deref(), Some("t"));
    assert_ne!(stored[1].info.request_id.as_deref(), Some("t"));
}

/// Without a request id, each transaction is a request of its own. Its generated id works like any other.
pub async fn without_a_request_id_each_transaction_is_a_request_of_its_own(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    let first = transact(&log, of_orders(&["a", "b"])).await;
    transact(&log, of_orders(&["a", "b"])).await;
    let made = commits_of(&log, order_aggregate("a")).await[0].info.request_id.clone().expect("a request id was made");
    assert_eq!(log.transact(of_orders(&["a", "b"]).request_id(made)).await, Ok(duplicates(&first)));
    assert_eq!(log.head().await.expect("the head is read"), 4);
}

/// A refused transaction is not remembered: if it is sent again when it fits, it is stored.
pub async fn a_refused_transaction_may_be_sent_again(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    let mut request = of_orders(&["a", "b"]).request_id("t");
    request.commits[1].expected_version = ExpectedVersion::Exact(1);
    assert_eq!(refused_together(&log, request.clone()).await, TransactionError::commit(1, conflict("1", 0)));
    commit(&log, order("b", 0)).await;
    let versions: Vec<_> = transact(&log, request).await.iter().map(|outcome| outcome.version).collect();
    assert_eq!(versions, [1, 2]);
}

/// The append condition of a commit is checked against the log before the transaction, so the other commits of the transaction do not
/// count. Later they do.
pub async fn commits_of_one_transaction_do_not_exclude_each_other(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    let only = |id: &str| order(id, 0).fail_if(unless(&[pattern(&["order_changed"], &[])], None));
    transact(&log, NewTransaction::new([only("a"), only("b")])).await;
    let refusal = refused_together(&log, NewTransaction::new([order("c", 0), only("d")])).await;
    assert_eq!((refusal.error.code(), &*refusal.at), (Code::AppendConditionFailed, "commits[1]"));
}

/// A transaction determines the tenantId of the aggregates that it begins.
pub async fn a_transaction_decides_the_tenant_id_of_new_aggregates(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    let of = |tenant: &str, id: &str| NewCommit { tenant_id: Some(tenant.to_owned().into()), ..order(id, 0) };
    transact(&log, NewTransaction::new([of("t-1", "a"), of("t-2", "b")])).await;
    let refusal = refused_together(&log, NewTransaction::new([of("t-1", "a"), of("t-1", "b")])).await;
    let other = CommitError::AggregateOfOtherTenant { tenant_id: "t-2".into() };
    assert_eq!(refusal, TransactionError::commit(1, other));
}

/// Requests, versions and events of many transactions are all there after reopening, however many segments they fill.
pub async fn everything_of_a_transaction_is_there_after_reopening(subject: &dyn Subject) {
    let (store, log) = open(subject).await;
    let mut first = Vec::new();
    for n in 0..120_u64 {
        let ids = [0, 1, 2].map(|place| format!("{}", (n + place * 3) % 10));
        let request = of_orders(&ids.each_ref().map(String::as_str)).request_id(format!("t-{n}"));
        first.push((request.clone(), transact(&log, request).await));
    }
    let before = whole_log(&log).await;
    assert_in_order(&before);
    let (_store, log) = reopen(subject, store, log).await;
    assert_eq!(whole_log(&log).await, before);
    for id in 0..10 {
        let commits = commits_of(&log, order_aggregate(&id.to_string())).await;
        assert!(commits.iter().zip(1..).all(|(commit, version)| commit.info.version == version));
        assert_eq!(commits.len(), 36);
    }
    for (request, outcomes) in first.iter().rev() {
        assert_eq!(log.transact(request.clone()).await, Ok(duplicates(outcomes)));
    }
    assert_eq!(log.head().await.expect("the head is read"), 360);
}

/// A transaction holds as many bytes as a commit may, and as many events as its commits may.
pub async fn a_transaction_may_be_as_large_as_its_limits(subject: &dyn Subject) {
    let (store, log) = open(subject).await;
    let large = |id, bytes| NewCommit::new("order", id).event(event_of_bytes("t", bytes));
    let rest = limits::COMMIT_BYTES_MAX - limits::EVENT_BYTES_MAX - 2;
    let of_bytes = |rest| NewTransaction::new([large("a", limits::EVENT_BYTES_MAX), large("b", rest)]).request_id("t");
    let refusal = refused_together(&log, of_bytes(rest + 1)).await;
    assert_eq!(refusal.error.code(), Code::CommitTooLarge);
    let bytes = transact(&log, of_bytes(rest)).await;
    let many = |id| {
        let events = (0..limits::EVENTS_MAX as u64).map(|n| event("order_changed", n)).collect();
        NewCommit { events, ..NewCommit::new("order", id) }
    };
    transact(&log, NewTransaction::new([many("c"), many("d")])).await;
    let (_store, log) = reopen(subject, store, log).await;
    assert_eq!(log.transact(of_bytes(rest)).await, Ok(duplicates(&bytes)));
    let events = whole_log(&log).await;
    assert_in_order(&events);
    assert_eq!(events.len(), 2 + 2 * limits::EVENTS_MAX);
    assert_eq!(events[1].data.as_bytes().len(), rest);
}

/// Each broken rule is refused with its code and the path of the value.
pub async fn a_transaction_that_breaks_a_rule_is_refused_with_its_path(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    let changed = |change: &dyn Fn(&mut NewTransaction)| {
        let mut transaction = of_orders(&["a", "b"]).request_id("t").expect(order_aggregate("c"), ExpectedVersion::Any);
        change(&mut transaction);
        transaction
    };
    let rule = Code::InvalidTransaction;
    let many = |count| (0..count).map(|n: usize| order(&n.to_string(), 0)).collect::<Vec<_>>();
    let bad = [
        (changed(&|t| t.commits.clear()), rule, "commits"),
        (changed(&|t| t.commits.truncate(1)), rule, "commits"),
        (changed(&|t| t.commits = many(17)), rule, "commits"),
        (changed(&|t| t.expect = vec![t.expect[0].clone(); 17]), rule, "expect"),
        (changed(&|t| t.commits[1].aggregate.id = "a".into()), rule, "commits[1].aggregate"),
        (changed(&|t| t.expect[0].aggregate.id = "b".into()), rule, "expect[0].aggregate"),
        (changed(&|t| t.commits[1].request_id = Some("r".into())), rule, "commits[1].request_id"),
        (changed(&|t| t.request_id = Some("".into())), Code::InvalidId, "request_id"),
        (changed(&|t| t.commits[1].aggregate.id = "".into()), Code::InvalidId, "commits[1].aggregate.id"),
        (changed(&|t| t.commits[1].events.clear()), Code::InvalidEvents, "commits[1].events"),
        (changed(&|t| t.commits[0].events[0].event_type = "".into()), Code::InvalidName, "commits[0].events[0].type"),
        (changed(&|t| t.expect[0].aggregate.name = "a b".into()), Code::InvalidName, "expect[0].aggregate.name"),
        (
            changed(&|t| t.commits[1].append_condition = Some(unless(&[], None))),
            Code::InvalidAppendCondition,
            "commits[1].append_condition.fail_if",
        ),
    ];
    for (transaction, code, path) in bad {
        match refused_together(&log, transaction).await.error {
            CommitError::Invalid(invalid) => assert_eq!((invalid.code, &*invalid.path), (code, path)),
            other => panic!("{path} must be invalid, not {other}"),
        }
    }
    assert_eq!(log.head().await.expect("the head is read"), 0);
}
