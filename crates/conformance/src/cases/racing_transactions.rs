//! Concurrent transactions: none is seen in part, none waits for another forever, and one wins.

use std::collections::HashMap;
use std::sync::Arc;

use annals_core::{
    Aggregate, CommitError, DEFAULT_TENANT, EventLog, ExpectedVersion, LogQuery, NewCommit, NewEvent, NewTransaction,
    RecordedEvent, StoreError, limits,
};

use crate::Subject;
use crate::sample::{
    assert_in_order, commit, data, event, log_of, number, open, order, order_aggregate, transact, version_of, whole_log,
};

/// Transactions that overlap in every way, each naming the versions that it read, have one winner for each version. None blocks another
/// forever.
pub async fn overlapping_transactions_have_one_winner_per_version(subject: &dyn Subject) {
    const IDS: [&str; 3] = ["a", "b", "c"];
    const WRITERS: usize = 12;
    let (_store, log) = open(subject).await;
    let tasks: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let log = log.clone();
            tokio::spawn(async move {
                for n in 0..10 {
                    // Every pair, in both orders.
                    let (first, second) = (IDS[(writer + n) % 3], IDS[(writer + n + 1 + n % 2) % 3]);
                    until_stored(&log, [first, second]).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("the task ends well");
    }
    let events = whole_log(&log).await;
    assert_in_order(&events);
    assert_eq!(events.len(), 2 * 10 * WRITERS);
    let mut versions: HashMap<Aggregate, u64> = HashMap::new();
    for event in &events {
        let version = versions.entry(event.commit.aggregate.clone()).or_default();
        *version += 1;
        assert_eq!(event.commit.version, *version, "versions have no gap");
    }
    for pair in events.chunks(2) {
        assert_ne!(pair[0].commit.aggregate, pair[1].commit.aggregate, "the commits of a transaction stand together");
    }
}

/// Reads the versions of these orders and commits to both, until there is no conflict.
async fn until_stored(log: &Arc<dyn EventLog>, ids: [&str; 2]) {
    loop {
        let mut commits = Vec::new();
        for id in ids {
            let version = version_of(log, order_aggregate(id)).await;
            commits.push(order(id, 0).expect(ExpectedVersion::Exact(version)));
        }
        match log.transact(NewTransaction::new(commits.clone())).await {
            Ok(_) => return,
            Err(refusal) => {
                let place = usize::from(refusal.at == "commits[1]");
                let CommitError::VersionConflict { actual_version, .. } = refusal.error else { panic!("{refusal}") };
                assert!(!commits[place].expected_version.admits(actual_version), "the conflict is of its part");
            }
        }
    }
}

/// The same transaction sent many times concurrently is stored once, and all answers agree.
pub async fn racing_repeats_of_a_transaction_are_stored_once(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    for round in 0..15_u64 {
        let request = NewTransaction::new([order("a", round), order("b", round)]).request_id(format!("t-{round}"));
        let tasks: Vec<_> = (0..10)
            .map(|_| {
                let (log, request) = (log.clone(), request.clone());
                tokio::spawn(async move { log.transact(request).await.expect("it is accepted") })
            })
            .collect();
        let mut answers = Vec::new();
        for task in tasks {
            answers.push(task.await.expect("the task ends well"));
        }
        let first = |outcomes: &[annals_core::CommitOutcome]| outcomes.iter().all(|outcome| !outcome.duplicate);
        assert_eq!(answers.iter().filter(|outcomes| first(outcomes)).count(), 1, "one of them is the first");
        for outcomes in &answers {
            let places: Vec<_> = outcomes.iter().map(|it| (it.version, number(it))).collect();
            assert_eq!(places, [(round + 1, 2 * round), (round + 1, 2 * round + 1)]);
            let ids = |of: &[annals_core::CommitOutcome]| of.iter().map(|it| it.commit_id).collect::<Vec<_>>();
            assert_eq!(ids(outcomes), ids(&answers[0]));
        }
    }
    assert_eq!(log.head().await.expect("the head is read"), 30);
}

fn moved(id: &str, amount: i64) -> NewCommit {
    NewCommit::new("account", id).event(NewEvent::new("moved", data(serde_json::json!({ "amount": amount }))))
}

fn sum_of(events: &[RecordedEvent]) -> i64 {
    events.iter().map(|event| event.data.as_raw().get_i64("amount").expect("the event has an amount")).sum()
}

/// Money that many clients move between accounts concurrently neither appears nor vanishes, for any reader at any time. No account is
/// overdrawn, because each transaction names the version of the account that it takes from.
pub async fn transfers_between_accounts_keep_the_sum(subject: &dyn Subject) {
    const ACCOUNTS: u64 = 5;
    const START: i64 = 20;
    let (_store, log) = open(subject).await;
    for id in 0..ACCOUNTS {
        commit(&log, moved(&id.to_string(), START)).await;
    }
    let tasks: Vec<_> = (0..8)
        .map(|writer| {
            let log = log.clone();
            tokio::spawn(async move { move_money(&log, writer, ACCOUNTS).await })
        })
        .collect();
    while !tasks.iter().all(tokio::task::JoinHandle::is_finished) {
        let events = whole_log(&log).await;
        assert_eq!(sum_of(&events), START * ACCOUNTS as i64, "a reader found the sum changed");
        tokio::task::yield_now().await;
    }
    let mut transfers = 0;
    for task in tasks {
        transfers += task.await.expect("the task ends well");
    }
    let events = whole_log(&log).await;
    assert_in_order(&events);
    assert_eq!(events.len() as u64, ACCOUNTS + 2 * transfers);
    let mut balances: HashMap<&Aggregate, i64> = HashMap::new();
    for event in &events {
        let balance = balances.entry(&event.commit.aggregate).or_default();
        *balance += sum_of(std::slice::from_ref(event));
        assert!(*balance >= 0, "{} was overdrawn", event.commit.aggregate);
    }
}

/// Makes twenty attempts. Returns how many succeeded.
async fn move_money(log: &Arc<dyn EventLog>, seed: u64, accounts: u64) -> u64 {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut transfers = 0;
    for _ in 0..20 {
        let from = random.u64(0..accounts);
        let to = (from + random.u64(1..accounts)) % accounts;
        let commits = crate::sample::commits_of(log, Aggregate::new("account", from.to_string())).await;
        let balance: i64 = commits.iter().map(|commit| sum_of(&commit.events)).sum();
        let amount = random.i64(1..=10);
        if amount > balance {
            continue;
        }
        let expected = ExpectedVersion::Exact(commits.len() as u64);
        let taken = moved(&from.to_string(), -amount).expect(expected);
        match log.transact(NewTransaction::new([moved(&to.to_string(), amount), taken])).await {
            Ok(_) => transfers += 1,
            Err(refusal) => assert_eq!(refusal.at, "commits[1]", "{refusal}"),
        }
    }
    transfers
}

/// While transactions are made, no head and no end of a page, of whatever limit, lies inside one.
pub async fn a_reader_never_sees_part_of_a_transaction(subject: &dyn Subject) {
    const COMMITS: u64 = 4;
    const EVENTS: u64 = 3;
    let (_store, log) = open(subject).await;
    let writer = tokio::spawn({
        let log = log.clone();
        async move {
            for _ in 0..50 {
                let of = |id: u64| {
                    let events = (0..EVENTS).map(|n| event("order_changed", n)).collect();
                    NewCommit { events, ..NewCommit::new("order", id.to_string()) }
                };
                transact(&log, NewTransaction::new((0..COMMITS).map(of))).await;
            }
        }
    });
    let whole = |number: u64| number.is_multiple_of(COMMITS * EVENTS);
    let mut from = 0;
    for limit in [1, 2, 5, 7, limits::PAGE_MAX].into_iter().cycle() {
        let query = LogQuery { from: Some(from), limit, ..LogQuery::default() };
        let page = log.read(query).await.expect("the page is read");
        assert!(whole(page.head), "the head {} lies inside of a transaction", page.head);
        assert!(page.next < page.head || whole(page.next), "the log ended at {}", page.next);
        from = page.next;
        let mut versions = Vec::new();
        for id in 0..COMMITS {
            versions.push(version_of(&log, order_aggregate(&id.to_string())).await);
        }
        assert!(versions.is_sorted(), "{versions:?}: what is read later is not older");
        if from == 50 * COMMITS * EVENTS {
            break;
        }
        tokio::task::yield_now().await;
    }
    writer.await.expect("the writer ends well");
}

/// Concurrent transactions and commits are checked one by one: a refused one does not affect the others.
pub async fn one_bad_transaction_never_fails_its_neighbours(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    commit(&log, order("taken", 0)).await;
    let taken = || order("taken", 1).expect(ExpectedVersion::Empty);
    let (mut good, mut bad, mut single) = (Vec::new(), Vec::new(), Vec::new());
    for n in 0..30 {
        let (a, b) = (order(&format!("a-{n}"), 0), order(&format!("b-{n}"), 1));
        let send = |transaction: NewTransaction| {
            let log = log.clone();
            tokio::spawn(async move { log.transact(transaction).await })
        };
        bad.push(send(NewTransaction::new(if n % 2 == 0 { [a.clone(), taken()] } else { [taken(), a.clone()] })));
        good.push(send(NewTransaction::new([a, b])));
        let (log, alone) = (log.clone(), order("alone", n));
        single.push(tokio::spawn(async move { log.commit(alone).await }));
    }
    for (n, task) in bad.into_iter().enumerate() {
        let refusal = task.await.expect("the task ends well").expect_err("a bad transaction is refused");
        assert_eq!(refusal.at, if n % 2 == 0 { "commits[1]" } else { "commits[0]" });
    }
    for task in good {
        let outcomes = task.await.expect("the task ends well").expect("a good transaction is accepted");
        assert!(outcomes.iter().all(|outcome| outcome.version == 1));
        assert_eq!(number(&outcomes[0]) + 1, number(&outcomes[1]));
    }
    for task in single {
        task.await.expect("the task ends well").expect("a good commit is accepted");
    }
    assert_in_order(&whole_log(&log).await);
    assert_eq!(log.head().await.expect("the head is read"), 91);
}

/// A transaction whose caller went away is stored completely or not at all. A retry shows which, without adding a second.
pub async fn a_transaction_whose_caller_went_away_is_whole_or_absent(subject: &dyn Subject) {
    let (store, _log) = open(subject).await;
    let log = log_of(&store, DEFAULT_TENANT);
    for n in 0..24 {
        let request = NewTransaction::new([order(&format!("a-{n}"), n), order("all", n)]).request_id("t");
        let task = tokio::spawn({
            let (log, request) = (log.clone(), request.clone());
            async move { log.transact(request).await.map(|outcomes| outcomes.len()) }
        });
        for _ in 0..n % 5 {
            tokio::task::yield_now().await;
        }
        task.abort();
        let _ = task.await;
        let outcomes = log.transact(request).await.expect("the retry is accepted");
        assert_eq!((outcomes[0].version, outcomes[1].version), (1, n + 1));
    }
    let events = whole_log(&log).await;
    assert_in_order(&events);
    assert_eq!(events.len(), 48, "each request was stored once");
    assert!(events.chunks(2).all(|pair| crate::sample::n_of(&pair[0]) == crate::sample::n_of(&pair[1])));
}

/// Transactions in flight when the store closes are stored completely and acknowledged, or refused and absent.
pub async fn transactions_under_way_when_closing_are_stored_or_refused(subject: &dyn Subject) {
    let (store, log) = open(subject).await;
    let tasks: Vec<_> = (0..30)
        .map(|n| {
            let log = log.clone();
            let request = NewTransaction::new([order(&format!("a-{n}"), n), order(&format!("b-{n}"), n)]);
            tokio::spawn(async move { (n, log.transact(request.request_id("t")).await) })
        })
        .collect();
    for _ in 0..5 {
        tokio::task::yield_now().await;
    }
    store.close().await;
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.expect("the task ends well"));
    }
    drop((store, log));
    let (_store, log) = open(subject).await;
    for (n, answer) in answers {
        let due = match answer {
            Ok(_) => 1,
            Err(refusal) => {
                assert_eq!(refusal.error, CommitError::Store(StoreError::Closed));
                0
            }
        };
        for id in ["a", "b"] {
            assert_eq!(version_of(&log, order_aggregate(&format!("{id}-{n}"))).await, due);
        }
    }
    assert_in_order(&whole_log(&log).await);
}
