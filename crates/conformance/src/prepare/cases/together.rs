//! Concurrent callers, commits beside the service, and what is durable.

use std::collections::BTreeSet;
use std::sync::Arc;

use annals_core::{
    ByteString, Clock, Code, CommitError, DEFAULT_TENANT, EventLog, KeyChange, KeyError, KeysQuery, PrepareKeys,
    Release, Reserve, StoreError,
};

use super::{got, held, held_as, in_millis, open, seen, user, value};
use crate::model::Model;
use crate::sample::{commit, log_of, order, refused};
use crate::{OTHER_TENANT, Subject, WithOther};

/// The number of concurrent callers, and of rounds.
const CALLERS: usize = 8;
const ROUNDS: usize = 60;

/// Makes all changes concurrently. Returns how many happened.
async fn race(keys: &Arc<dyn PrepareKeys>, changes: impl Iterator<Item = KeyChange>) -> usize {
    let tasks: Vec<_> = changes
        .map(|change| {
            let keys = keys.clone();
            tokio::spawn(async move { keys.change(change).await })
        })
        .collect();
    let mut happened = 0;
    for task in tasks {
        match task.await.expect("the task ends well") {
            Ok(done) => happened += usize::from(done),
            // A move whose old key has gone meanwhile.
            Err(KeyError::NotHeld { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
    happened
}

/// The key is new, or has expired.
pub async fn of_many_racing_prepares_one_wins(subject: &dyn Subject) {
    let (_store, keys) = open(subject).await;
    for round in 0..ROUNDS {
        let key = format!("seat-{}", round / 2);
        let ttl_at = in_millis(subject, 5);
        let prepare = |n: usize| KeyChange::Prepare(user(&key, &n.to_string()).until(ttl_at));
        assert_eq!(race(&keys, (0..CALLERS).map(prepare)).await, 1, "round {round}");
        let winner = got(&keys, &key).await.and_then(|json| json.parse::<usize>().ok());
        assert!(winner.is_some_and(|winner| winner < CALLERS));
        subject.clock().advance_millis(6);
    }
}

/// All of them start from the key's current value, and only the first finds it.
pub async fn of_many_racing_changes_of_a_value_one_wins(subject: &dyn Subject) {
    let (_store, keys) = open(subject).await;
    assert_eq!(keys.prepare(user("seat", "-1")).await, Ok(true));
    for round in 0..ROUNDS {
        let old = got(&keys, "seat").await.map(|json| value(&json));
        let change = |n: usize| {
            let new = user("seat", &(round * CALLERS + n).to_string());
            KeyChange::Reprepare { old: old.clone(), new }
        };
        assert_eq!(race(&keys, (0..CALLERS).map(change)).await, 1, "round {round}");
    }
    assert_eq!(race(&keys, (0..CALLERS).map(|_| KeyChange::Rollback(held("seat")))).await, 1);
    assert_eq!(seen(&keys, "seat").await, None);
}

/// One key goes to many others concurrently, and many go to one. A key is never in two places, and none is lost.
pub async fn of_many_racing_moves_one_wins(subject: &dyn Subject) {
    let (_store, keys) = open(subject).await;
    for round in 0..10 {
        let from = format!("from-{round}");
        assert_eq!(keys.prepare(user(&from, "1")).await, Ok(true));
        let apart = |n: usize| KeyChange::Move { old: held_as(&from, "1"), new: user(&format!("{round}-{n}"), "1") };
        assert_eq!(race(&keys, (0..CALLERS).map(apart)).await, 1, "round {round}");
        let mut places = BTreeSet::new();
        for n in 0..CALLERS {
            let place = format!("{round}-{n}");
            match seen(&keys, &place).await {
                Some(_) => drop(places.insert(place)),
                None => assert_eq!(keys.prepare(user(&place, "1")).await, Ok(true)),
            }
        }
        assert_eq!((seen(&keys, &from).await, places.len()), (None, 1));
        let together = |n: usize| KeyChange::Move { old: held_as(&format!("{round}-{n}"), "1"), new: user(&from, "2") };
        assert_eq!(race(&keys, (0..CALLERS).map(together)).await, 1, "round {round}");
        let mut left = 0;
        for n in 0..CALLERS {
            left += usize::from(seen(&keys, &format!("{round}-{n}")).await.is_some());
        }
        assert_eq!((seen(&keys, &from).await.as_deref(), left), (Some("2"), CALLERS - 1));
    }
}

/// A key that one takes is taken for the other, and the other may take a key that one releases.
pub async fn commits_and_the_service_hold_the_same_keys(subject: &dyn Subject) {
    let (store, keys) = open(subject).await;
    let log = log_of(&store, DEFAULT_TENANT);
    let taken = |key: &str| CommitError::KeyTaken { name: "user".into(), key: key.into() };
    assert_eq!(keys.prepare(user("service", "1")).await, Ok(true));
    commit(&log, order("a", 1).reserve(user("commit", "2"))).await;
    assert_eq!(refused(&log, order("b", 1).reserve(user("service", "2"))).await, taken("service"));
    assert_eq!(keys.prepare(user("commit", "1")).await, Ok(false));
    assert_eq!(got(&keys, "commit").await.as_deref(), Some("2"));
    commit(&log, order("a", 2).release(held_as("service", "1"))).await;
    assert_eq!(got(&keys, "service").await, None);
    assert_eq!(keys.reprepare(Some(value("2")), user("commit", "3")).await, Ok(true));
    let stale = order("a", 3).release(held_as("commit", "2"));
    let due = CommitError::KeyNotHeld { name: "user".into(), key: "commit".into() };
    assert_eq!(refused(&log, stale).await, due);
    assert_eq!(keys.reprepare_as(held_as("commit", "3"), user("service", "4")).await, Ok(true));
    commit(&log, order("b", 1).reserve(user("commit", "5"))).await;
    assert_eq!(keys.rollback(held("service")).await, Ok(true));
    commit(&log, order("b", 2).reserve(user("service", "6").until(in_millis(subject, 5)))).await;
    subject.clock().advance_millis(6);
    assert_eq!(keys.prepare(user("service", "7")).await, Ok(true), "the commit's has expired");
    race_with_commits(subject, &log, &keys).await;
}

/// Commits and the service compete for one key, and exactly one of them gets it.
async fn race_with_commits(subject: &dyn Subject, log: &Arc<dyn EventLog>, keys: &Arc<dyn PrepareKeys>) {
    for round in 0..20 {
        let seat = user(&format!("seat-{}", round / 2), "1").until(in_millis(subject, 5));
        let committing: Vec<_> = (0..CALLERS / 2)
            .map(|n| {
                let (log, commit) = (log.clone(), order(&format!("{round}-{n}"), 1).reserve(seat.clone()));
                tokio::spawn(async move { log.commit(commit).await })
            })
            .collect();
        let mut winners = race(keys, (0..CALLERS / 2).map(|_| KeyChange::Prepare(seat.clone()))).await;
        for task in committing {
            match task.await.expect("the task ends well") {
                Ok(_) => winners += 1,
                Err(error) => assert!(matches!(error, CommitError::KeyTaken { .. }), "{error}"),
            }
        }
        assert_eq!(winners, 1, "round {round}");
        subject.clock().advance_millis(6);
    }
}

/// It takes no sequence number, and readers and followers of the log do not see it.
pub async fn a_change_of_a_key_is_no_event(subject: &dyn Subject) {
    let (store, keys) = open(subject).await;
    let log = log_of(&store, DEFAULT_TENANT);
    for n in 0..100 {
        assert_eq!(keys.prepare(user(&format!("k-{n}"), "1")).await, Ok(true));
        if n % 10 == 9 {
            commit(&log, order("a", n)).await;
        }
    }
    assert_eq!(log.head().await.expect("read"), 10);
    let events = crate::history::read_all(&log).await.expect("read");
    assert_eq!(events.iter().map(|event| event.sequence_number).collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
    assert!(events.iter().all(|event| event.commit.aggregate.name == "order"));
}

/// The same key under another name, or of another tenant, is another key.
pub async fn names_and_tenants_have_keys_of_their_own(subject: &dyn Subject) {
    let subject = &WithOther(subject);
    let (store, keys) = open(subject).await;
    let others = store.prepare_keys(OTHER_TENANT).expect("declared");
    assert_eq!(keys.prepare(user("eva", "1")).await, Ok(true));
    assert_eq!(keys.prepare(Reserve::new("mail", "eva", value("2"))).await, Ok(true));
    assert_eq!(others.prepare(user("eva", "3")).await, Ok(true));
    assert_eq!(keys.rollback(Release::new("mail", "eva")).await, Ok(true));
    assert_eq!((got(&keys, "eva").await.as_deref(), got(&others, "eva").await.as_deref()), (Some("1"), Some("3")));
    assert!(store.prepare_keys("nobody").is_err());
}

/// Held keys keep their value and time, and released keys stay released.
pub async fn keys_are_there_after_reopening(subject: &dyn Subject) {
    let (store, keys) = open(subject).await;
    let ttl_at = in_millis(subject, 1_000);
    assert_eq!(keys.prepare(user("ever", r#"{"b":1,"a":[2]}"#)).await, Ok(true));
    assert_eq!(keys.prepare(user("timed", "1").until(ttl_at)).await, Ok(true));
    assert_eq!(keys.prepare(user("back", "1")).await, Ok(true));
    assert_eq!(keys.rollback(held("back")).await, Ok(true));
    assert_eq!(keys.prepare(user("old", "1")).await, Ok(true));
    assert_eq!(keys.reprepare_as(held_as("old", "1"), user("new", "2")).await, Ok(true));
    drop(keys);
    store.close().await;
    drop(store);
    let (_store, keys) = open(subject).await;
    assert_eq!(got(&keys, "ever").await.as_deref(), Some(r#"{"b":1,"a":[2]}"#));
    assert_eq!(keys.get("user", "timed").await.expect("read").and_then(|holder| holder.ttl_at), Some(ttl_at));
    assert_eq!((seen(&keys, "back").await, seen(&keys, "old").await), (None, None));
    assert_eq!(got(&keys, "new").await.as_deref(), Some("2"));
    assert_eq!(keys.prepare(user("ever", "1")).await, Ok(false));
}

/// All callers get the error that it is closing, and none waits.
pub async fn a_closed_store_changes_no_key(subject: &dyn Subject) {
    let (store, keys) = open(subject).await;
    store.close().await;
    assert_eq!(keys.prepare(user("eva", "1")).await, Err(StoreError::Closed.into()));
    drop((store, keys));
    let (_store, keys) = open(subject).await;
    assert_eq!(seen(&keys, "eva").await, None);
}

/// Some hundred changes of a few keys, with commits among them and occasional reopening, are answered as the model predicts.
pub async fn random_changes_follow_who_holds_what(subject: &dyn Subject) {
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut model = Model::default();
    let (mut store, mut keys) = open(subject).await;
    for n in 0..400_u64 {
        let now = subject.clock().now();
        if random.u8(0..8) == 0 {
            let (key, held) = (any_key(&mut random), any_key(&mut random));
            let mut both = order(&format!("o-{n}"), n);
            if random.bool() {
                both = both.reserve(user(key, any_value(&mut random)));
            }
            if random.bool() || both.keys.is_empty() {
                both = both.release(held_as(held, any_value(&mut random)));
            }
            let told = log_of(&store, DEFAULT_TENANT).commit(both.clone()).await;
            let checked = model.commit(&both, now, &told);
            checked.unwrap_or_else(|wrong| panic!("seed {seed}, change {n}: {wrong}"));
        } else {
            let change = any_change(subject, &mut random);
            let due = model.change_key(&change, now);
            assert_eq!(keys.change(change.clone()).await, due, "seed {seed}, change {n}: {change:?}");
        }
        subject.clock().advance_millis(random.i64(0..3));
        if random.u8(0..100) == 0 {
            drop(keys);
            store.close().await;
            (store, keys) = open(subject).await;
        }
        let key = any_key(&mut random);
        let found = keys.look("user", key).await.expect("it is read");
        let now = subject.clock().now();
        assert_eq!(found, model.holder("user", key).map(|it| it.found(now)), "seed {seed}, behind {n}: {key}");
    }
}

fn any_key(random: &mut fastrand::Rng) -> &'static str {
    ["eva", "eve", "otto"][random.usize(0..3)]
}

fn any_value(random: &mut fastrand::Rng) -> &'static str {
    ["1", "{\"a\":1}"][random.usize(0..2)]
}

fn any_change(subject: &dyn Subject, random: &mut fastrand::Rng) -> KeyChange {
    let key = any_key(random);
    let mut new = user(key, any_value(random));
    if random.bool() {
        new = new.until(in_millis(subject, random.i64(0..6)));
    }
    let some = random.bool().then(|| value(any_value(random)));
    match random.u8(0..4) {
        0 => KeyChange::Prepare(new),
        1 => KeyChange::Rollback(Release { value: some, ..held(key) }),
        2 => KeyChange::Reprepare { old: some, new },
        _ => {
            let others = ["eva", "eve", "otto"].into_iter().filter(|other| *other != key);
            let others: Vec<_> = others.collect();
            KeyChange::Move { old: held_as(others[random.usize(0..2)], any_value(random)), new }
        }
    }
}

/// They are in byte order: keys of commits and of the service, without those that were released or have expired.
pub async fn held_keys_are_listed_page_by_page(subject: &dyn Subject) {
    let (store, keys) = open(subject).await;
    let list = async |keys: &Arc<dyn PrepareKeys>, after: Option<&str>, limit: usize| {
        let query = KeysQuery { after: after.map(ByteString::from), limit, ..KeysQuery::new("user") };
        keys.list(query).await.expect("they are listed").keys
    };
    assert_eq!(list(&keys, None, 10).await, []);
    let name = |n: usize| format!("u-{:02}", n * 7 % 60);
    for n in 0..60 {
        assert_eq!(keys.prepare(user(&name(n), &n.to_string())).await, Ok(true));
    }
    // The smallest are released, so that a page has to look past them.
    for n in 0..30 {
        assert_eq!(keys.rollback(held(&format!("u-{n:02}"))).await, Ok(true));
    }
    assert_eq!(keys.prepare(user("u-40.5", "1").until(in_millis(subject, 5))).await, Ok(true));
    assert_eq!(keys.prepare(user("u-90", "1").until(in_millis(subject, 1_000_000))).await, Ok(true));
    assert_eq!(keys.prepare(Reserve::new("door", "u-50.5", value("1"))).await, Ok(true));
    assert_eq!(keys.reprepare_as(held_as("u-90", "1"), user("u-91", "{\"a\":1}")).await, Ok(true));
    let log = log_of(&store, DEFAULT_TENANT);
    commit(&log, order("a", 1).reserve(user("A", "7"))).await;
    subject.clock().advance_millis(6);
    let mut due: Vec<String> = (30..60).map(|n| format!("u-{n:02}")).collect();
    due.insert(0, "A".to_owned());
    due.push("u-91".to_owned());
    drop((log, keys));
    store.close().await;
    drop(store);
    let (_store, keys) = open(subject).await;
    for limit in [1, 7, 1_000] {
        let mut found: Vec<String> = Vec::new();
        loop {
            let page = list(&keys, found.last().map(String::as_str), limit).await;
            assert!(page.len() <= limit);
            if page.is_empty() {
                break;
            }
            for listed in &page {
                let looked = keys.look("user", &listed.key).await.expect("it is read").expect("it is held");
                assert_eq!(listed.holder, looked.holder);
            }
            found.extend(page.into_iter().map(|listed| listed.key.to_string()));
        }
        assert_eq!(found, due, "pages of {limit}");
    }
    assert_eq!(keys.list(KeysQuery::new("a b")).await.expect_err("refused").code(), Code::InvalidKeys);
    let none = KeysQuery { limit: 0, ..KeysQuery::new("user") };
    assert_eq!(keys.list(none).await.expect_err("refused").code(), Code::InvalidQuery);
}
