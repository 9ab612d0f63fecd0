//! Transactions take and release prepare keys across their commits, in order, all or none.

use annals_core::{
    Code, CommitError, CommitOutcome, ExpectedVersion, KeyValue, NewCommit, NewTransaction, Release, Reserve,
    TransactionError, limits,
};

use crate::Subject;
use crate::sample::{
    commit, open, order, order_aggregate, pattern, refused, refused_together, reopen, transact, unless,
};

fn value(text: &str) -> KeyValue {
    KeyValue::new(text).expect("a value")
}

fn reserve(key: &str) -> Reserve {
    Reserve::new("user", key, value("u-1"))
}

fn release(key: &str) -> Release {
    Release::new("user", key)
}

fn taken(key: &str) -> CommitError {
    CommitError::KeyTaken { name: "user".into(), key: key.into() }
}

fn not_held(key: &str) -> CommitError {
    CommitError::KeyNotHeld { name: "user".into(), key: key.into() }
}

/// The keys of all commits are taken and released with the transaction, and stay so after reopening.
pub async fn a_transaction_changes_the_keys_of_all_its_commits(subject: &dyn Subject) {
    let (store, log) = open(subject).await;
    transact(&log, NewTransaction::new([order("a", 1).reserve(reserve("x")), order("b", 1).reserve(reserve("y"))]))
        .await;
    let (_store, log) = reopen(subject, store, log).await;
    for key in ["x", "y"] {
        assert_eq!(refused(&log, order("c", 1).reserve(reserve(key))).await, taken(key));
    }
    let exchange = [order("a", 2).release(release("x")), order("b", 2).release(release("y")).reserve(reserve("z"))];
    transact(&log, NewTransaction::new(exchange)).await;
    commit(&log, order("c", 1).reserve(reserve("x")).reserve(reserve("y"))).await;
    assert_eq!(refused(&log, order("c", 2).reserve(reserve("z"))).await, taken("z"));
}

/// A later commit of a transaction sees what an earlier one did to a key, and no earlier one sees the later.
pub async fn keys_pass_from_commit_to_commit_in_order(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    commit(&log, order("a", 1).reserve(reserve("x"))).await;
    let gives = || order("a", 2).release(release("x"));
    let takes = || order("b", 1).reserve(Reserve { value: value("u-2"), ..reserve("x") });
    let refusal = refused_together(&log, NewTransaction::new([takes(), gives()])).await;
    assert_eq!(refusal, TransactionError::commit(0, taken("x")));
    transact(&log, NewTransaction::new([gives(), takes()])).await;
    let old = order("a", 3).release(release("x").of_value(value("u-1")));
    assert_eq!(refused(&log, old).await, not_held("x"));
    // The first takes it, the second releases it, the third takes it.
    let chain =
        [order("a", 3).reserve(reserve("y")), order("b", 2).release(release("y")), order("c", 1).reserve(reserve("y"))];
    transact(&log, NewTransaction::new(chain)).await;
    assert_eq!(refused(&log, order("d", 1).reserve(reserve("y"))).await, taken("y"));
    let twice = [order("a", 4).reserve(reserve("z")), order("b", 3).reserve(reserve("z"))];
    let refusal = refused_together(&log, NewTransaction::new(twice)).await;
    assert_eq!(refusal, TransactionError::commit(1, taken("z")));
}

/// If any part is refused, no key of any part changes, even after reopening.
pub async fn a_refused_transaction_changes_no_key(subject: &dyn Subject) {
    let (store, log) = open(subject).await;
    commit(&log, order("a", 1).reserve(reserve("held"))).await;
    let first = || order("a", 2).release(release("held")).reserve(reserve("new"));
    let refusal = |second: NewCommit| refused_together(&log, NewTransaction::new([first(), second]));
    assert_eq!(refusal(order("b", 1).reserve(reserve("new"))).await, TransactionError::commit(1, taken("new")));
    assert_eq!(refusal(order("b", 1).release(release("held"))).await, TransactionError::commit(1, not_held("held")));
    let late = refusal(order("b", 1).expect(ExpectedVersion::Exists)).await;
    assert_eq!((&*late.at, late.error.code()), ("commits[1]", Code::VersionConflict));
    let excluded = refusal(order("b", 1).fail_if(unless(&[pattern(&[], &[])], None))).await;
    assert_eq!((&*excluded.at, excluded.error.code()), ("commits[1]", Code::AppendConditionFailed));
    let expecting = NewTransaction::new([first(), order("b", 1)]);
    let expecting = expecting.expect(order_aggregate("c"), ExpectedVersion::Exists);
    assert_eq!(refused_together(&log, expecting).await.at, "expect[0]");
    let (_store, log) = reopen(subject, store, log).await;
    assert_eq!(refused(&log, order("c", 1).reserve(reserve("held"))).await, taken("held"));
    commit(&log, order("c", 1).reserve(reserve("new"))).await;
}

/// All keys are checked after all append conditions, and before expectations and versions.
pub async fn keys_of_all_commits_are_judged_together(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    commit(&log, order("a", 1).reserve(reserve("x"))).await;
    let wrong_key = || order("a", 2).reserve(reserve("x"));
    let excluded = order("b", 1).fail_if(unless(&[pattern(&[], &[])], None));
    let refusal = refused_together(&log, NewTransaction::new([wrong_key(), excluded])).await;
    assert_eq!((&*refusal.at, refusal.error.code()), ("commits[1]", Code::AppendConditionFailed));
    let late = order("b", 1).expect(ExpectedVersion::Exists);
    let transaction = NewTransaction::new([late, wrong_key()]);
    let transaction = transaction.expect(order_aggregate("c"), ExpectedVersion::Exists);
    assert_eq!(refused_together(&log, transaction).await, TransactionError::commit(1, taken("x")));
}

/// A repeat of a transaction is recognised although its keys are taken. With other keys it is another request.
pub async fn a_repeated_transaction_is_not_refused_for_its_own_keys(subject: &dyn Subject) {
    let (store, log) = open(subject).await;
    let request = |key: &str| NewTransaction::new([order("a", 1), order("b", 1).reserve(reserve(key))]).request_id("r");
    let first = transact(&log, request("x")).await;
    let due: Vec<_> = first.into_iter().map(|outcome| CommitOutcome { duplicate: true, ..outcome }).collect();
    assert_eq!(log.transact(request("x")).await, Ok(due.clone()));
    let reused = CommitError::RequestIdReused { request_id: "r".into() };
    assert_eq!(refused_together(&log, request("y")).await, reused.into());
    let (_store, log) = reopen(subject, store, log).await;
    assert_eq!(log.transact(request("x")).await, Ok(due));
    commit(&log, order("c", 1).reserve(reserve("y"))).await;
}

/// Of transactions that race for overlapping keys, each gets all its keys or none.
pub async fn racing_transactions_share_no_key(subject: &dyn Subject) {
    const KEYS: usize = 5;
    let (_store, log) = open(subject).await;
    for round in 0..10 {
        let tasks: Vec<_> = (0..10)
            .map(|n| {
                let log = log.clone();
                tokio::spawn(async move {
                    let keys = [n % KEYS, (n + 1 + n / KEYS) % KEYS].map(|key| format!("{round}-{key}"));
                    let wants =
                        |side: &str, key: &String| order(&format!("{side}-{round}-{n}"), 1).reserve(reserve(key));
                    let both = NewTransaction::new([wants("left", &keys[0]), wants("right", &keys[1])]);
                    match log.transact(both).await {
                        Ok(_) => keys.to_vec(),
                        Err(refusal) => {
                            let place = usize::from(refusal.at == "commits[1]");
                            assert_eq!(refusal, TransactionError::commit(place, taken(&keys[place])));
                            Vec::new()
                        }
                    }
                })
            })
            .collect();
        let mut held = Vec::new();
        for task in tasks {
            held.extend(task.await.expect("the task ends well"));
        }
        held.sort_unstable();
        let count = held.len();
        held.dedup();
        assert!(count == held.len() && count >= 2, "{held:?}");
        for key in (0..KEYS).map(|key| format!("{round}-{key}")) {
            let free = log.commit(order("later", 1).reserve(reserve(&key))).await;
            assert_eq!(free.is_ok(), !held.contains(&key), "{key} of {held:?}");
        }
    }
}

/// Keys count towards the size of a transaction. If they make it too large, it is refused with the path.
pub async fn keys_count_against_the_size_of_a_transaction(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    let large = value(&"x".repeat(limits::KEY_VALUE_BYTES_MAX - 100));
    let full = |id: &str| {
        let keys = (0..limits::KEYS_MAX).map(|n| Reserve::new("user", format!("{id}-{n}"), large.clone()));
        keys.fold(order(id, 1), NewCommit::reserve)
    };
    let refusal = refused_together(&log, NewTransaction::new(["a", "b", "c", "d"].map(full))).await;
    let CommitError::Invalid(invalid) = refusal.error else { panic!("{refusal}") };
    assert_eq!((invalid.code, &*invalid.path), (Code::CommitTooLarge, "commits"));
    transact(&log, NewTransaction::new(["a", "b", "c"].map(full))).await;
    assert_eq!(refused(&log, full("b")).await, taken("b-0"));
}
