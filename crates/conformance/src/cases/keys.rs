//! Prepare keys change only with the events of their commit, and one commit at a time holds each.

use annals_core::{
    Clock, Code, CommitError, CommitOutcome, ExpectedVersion, KeyValue, NewCommit, Release, Reserve, Timestamp, limits,
};

use crate::sample::{assert_conflict, commit, log_of, open, order, order_aggregate, refused, reopen, version_of};
use crate::words::{KEYS, pick};
use crate::{Subject, WithOther};

fn value(json: &str) -> KeyValue {
    serde_json::from_str(json).expect("a value")
}

fn reserve(key: &str) -> Reserve {
    Reserve::new("user", key, value("\"u-1\""))
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

/// Returns the clock's time plus this many milliseconds.
fn in_millis(subject: &dyn Subject, millis: i64) -> Timestamp {
    Timestamp::from_millis(subject.clock().now().as_millis() + millis)
}

/// A key that a commit reserved is taken for every other commit, even of the same aggregate.
pub async fn a_reserved_key_is_taken_for_others(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    commit(&log, order("a", 1).reserve(reserve("eva"))).await;
    assert_eq!(refused(&log, order("b", 1).reserve(reserve("eva"))).await, taken("eva"));
    assert_eq!(refused(&log, order("a", 2).reserve(reserve("eva"))).await, taken("eva"));
    let second = order("b", 1).reserve(reserve("eve")).reserve(reserve("eva"));
    assert_eq!(refused(&log, second).await, taken("eva"), "the key that is taken is named");
    commit(&log, order("b", 1).reserve(reserve("eve"))).await;
    assert_eq!(log.head().await.expect("the head is read"), 2);
}

/// A commit that is refused takes no key and releases none, whatever the reason.
pub async fn a_refused_commit_changes_no_key(subject: &dyn Subject) {
    let (store, log) = open(subject).await;
    commit(&log, order("a", 1).reserve(reserve("held")).reserve(reserve("other"))).await;
    let both = || order("b", 1).release(release("held")).reserve(reserve("new"));
    assert_conflict(&log.commit(both().expect(ExpectedVersion::Exists)).await, 0);
    assert_eq!(refused(&log, both().reserve(reserve("other"))).await, taken("other"));
    assert_eq!(refused(&log, both().release(release("never"))).await, not_held("never"));
    let foreign = NewCommit { tenant_id: Some("t".into()), ..order("a", 2).release(release("held")) };
    assert_eq!(refused(&log, foreign).await.code(), Code::AggregateOfOtherTenant);
    let (_store, log) = reopen(subject, store, log).await;
    assert_eq!(refused(&log, order("c", 1).reserve(reserve("held"))).await, taken("held"));
    commit(&log, order("c", 1).reserve(reserve("new"))).await;
}

/// A key that was released can be taken, and cannot be released twice.
pub async fn a_released_key_can_be_reserved(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    for round in 0..5 {
        commit(&log, order("a", round).reserve(reserve("eva"))).await;
        commit(&log, order("b", round).release(release("eva"))).await;
        assert_eq!(refused(&log, order("b", round).release(release("eva"))).await, not_held("eva"));
    }
    assert_eq!(refused(&log, order("b", 9).release(release("never"))).await, not_held("never"));
}

/// Releasing and reserving a key in one commit changes its value. A key may be exchanged for another.
pub async fn one_commit_may_change_a_keys_value(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    commit(&log, order("a", 1).reserve(reserve("eva"))).await;
    let other = || value("\"u-2\"");
    let change = order("a", 2).release(release("eva").of_value(value("\"u-1\"")));
    commit(&log, change.clone().reserve(Reserve::new("user", "eva", other()))).await;
    assert_eq!(refused(&log, change).await, not_held("eva"), "it has the other value now");
    let exchange = order("a", 3).release(release("eva").of_value(other())).reserve(reserve("eve"));
    commit(&log, exchange).await;
    commit(&log, order("b", 1).reserve(reserve("eva"))).await;
    assert_eq!(refused(&log, order("b", 2).reserve(reserve("eve"))).await, taken("eve"));
    // Releases come first, so one commit cannot reserve a key and release it.
    let both = order("b", 2).reserve(reserve("new")).release(release("new"));
    assert_eq!(refused(&log, both).await, not_held("new"));
}

/// A release that names a value is refused unless the key has this value by BSON comparison: the order of fields counts, the type of a
/// number does not.
pub async fn a_release_with_another_value_is_refused(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    let values =
        ["null", "true", "0", "\"0\"", "\"\"", "[]", "{}", "[1,2]", "[2,1]", r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#];
    for held in values {
        commit(&log, order("a", 1).reserve(Reserve::new("user", "eva", value(held)))).await;
        for other in values.into_iter().filter(|other| *other != held) {
            let wrong = order("a", 2).release(release("eva").of_value(value(other)));
            assert_eq!(refused(&log, wrong).await, not_held("eva"), "{held} is not {other}");
        }
        commit(&log, order("a", 2).release(release("eva").of_value(value(held)))).await;
    }
    for (held, equal) in [("7", "7.0"), ("0.0", "-0.0"), (r#"{"a":[1.0]}"#, r#"{"a":[1]}"#)] {
        commit(&log, order("a", 1).reserve(Reserve::new("user", "eva", value(held)))).await;
        commit(&log, order("a", 2).release(release("eva").of_value(value(equal)))).await;
    }
}

/// A reservation may be taken over once its time has passed, but not yet at that very millisecond.
pub async fn an_expired_reservation_may_be_taken_over(subject: &dyn Subject) {
    let (store, log) = open(subject).await;
    let clock = subject.clock();
    let ttl_at = in_millis(subject, 100);
    commit(&log, order("a", 1).reserve(reserve("eva").until(ttl_at)).reserve(reserve("for-ever"))).await;
    clock.advance_millis(100);
    assert_eq!(refused(&log, order("b", 1).reserve(reserve("eva"))).await, taken("eva"));
    clock.advance_millis(1);
    let (_store, log) = reopen(subject, store, log).await;
    let next = reserve("eva").until(in_millis(subject, 50));
    commit(&log, order("b", 1).reserve(next)).await;
    assert_eq!(refused(&log, order("c", 1).reserve(reserve("eva"))).await, taken("eva"), "it has a new time");
    clock.advance_millis(1_000_000_000_000);
    assert_eq!(refused(&log, order("c", 1).reserve(reserve("for-ever"))).await, taken("for-ever"));
    commit(&log, order("c", 1).reserve(reserve("eva"))).await;
    // A reservation that has expired when it is made may be taken over at once.
    let expired = || reserve("eve").until(in_millis(subject, -1));
    commit(&log, order("c", 2).reserve(expired())).await;
    commit(&log, order("d", 1).reserve(expired())).await;
}

/// An expired key is released only by a caller that names its value.
pub async fn an_expired_key_is_released_by_its_value_only(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    let clock = subject.clock();
    for key in ["eva", "eve"] {
        commit(&log, order("a", 1).reserve(reserve(key).until(in_millis(subject, 10)))).await;
    }
    clock.advance_millis(10);
    commit(&log, order("a", 2).release(release("eve"))).await;
    clock.advance_millis(1);
    assert_eq!(refused(&log, order("a", 2).release(release("eva"))).await, not_held("eva"));
    let wrong = release("eva").of_value(value("\"u-2\""));
    assert_eq!(refused(&log, order("a", 2).release(wrong)).await, not_held("eva"));
    commit(&log, order("a", 2).release(release("eva").of_value(value("\"u-1\"")))).await;
    assert_eq!(refused(&log, order("a", 2).release(release("eva"))).await, not_held("eva"));
}

/// A repeat returns the first outcome although the key is taken, by the request itself or by a later one.
pub async fn a_repeat_is_not_refused_for_its_own_key(subject: &dyn Subject) {
    let (store, log) = open(subject).await;
    let request = order("a", 1).request_id("r").reserve(reserve("eva").until(in_millis(subject, 10)));
    let first = commit(&log, request.clone()).await;
    let due = Ok(CommitOutcome { duplicate: true, ..first });
    assert_eq!(log.commit(request.clone()).await, due);
    subject.clock().advance_millis(11);
    commit(&log, order("b", 1).reserve(reserve("eva"))).await;
    assert_eq!(log.commit(request.clone()).await, due);
    let (_store, log) = reopen(subject, store, log).await;
    assert_eq!(log.commit(request).await, due);
    assert_eq!(refused(&log, order("c", 1).reserve(reserve("eva"))).await, taken("eva"), "a repeat changes no key");
}

/// Keys are content: the same request id with other keys, or with none, is another request.
pub async fn other_keys_are_other_content(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    let request = || order("a", 1).request_id("r");
    commit(&log, request().reserve(reserve("eva"))).await;
    let ttl_at = Timestamp::from_millis(1);
    for other in [
        request(),
        request().reserve(reserve("eve")),
        request().reserve(Reserve::new("mail", "eva", value("\"u-1\""))),
        request().reserve(Reserve::new("user", "eva", value("\"u-2\""))),
        request().reserve(reserve("eva").until(ttl_at)),
        request().reserve(reserve("eva")).reserve(reserve("eve")),
        request().release(release("eva")),
        request().release(release("eva")).reserve(reserve("eva")),
    ] {
        let due = CommitError::RequestIdReused { request_id: "r".into() };
        assert_eq!(refused(&log, other.clone()).await, due, "{:?}", other.keys);
    }
}

/// Of many concurrent commits that reserve one key, one wins, and the others learn that it is taken. The same holds for an expired key.
pub async fn of_many_racing_reservations_one_wins(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    for round in 0..20_u64 {
        let key = format!("seat-{}", round / 2);
        let ttl_at = in_millis(subject, 5);
        let tasks: Vec<_> = (0..16)
            .map(|n| {
                let seat = Reserve::new("user", key.clone(), value("1")).until(ttl_at);
                let (log, commit) = (log.clone(), order(&format!("{round}-{n}"), n).reserve(seat));
                tokio::spawn(async move { log.commit(commit).await })
            })
            .collect();
        let mut winners = 0;
        for task in tasks {
            match task.await.expect("the task ends well") {
                Ok(_) => winners += 1,
                Err(error) => assert_eq!(error, taken(&key)),
            }
        }
        assert_eq!(winners, 1);
        subject.clock().advance_millis(6);
    }
    assert_eq!(log.head().await.expect("the head is read"), 20);
}

/// A key for which each holder races with the next is never held twice: as many commits take it as release it.
pub async fn a_key_goes_from_hand_to_hand(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    commit(&log, order("first", 0).reserve(Reserve::new("user", "baton", value("0")))).await;
    let tasks: Vec<_> = (0..8)
        .map(|runner| {
            let log = log.clone();
            tokio::spawn(async move {
                let mut won = Vec::new();
                for n in 0..30_u64 {
                    let baton = |n: u64| value(&n.to_string());
                    let pass = order(&format!("r-{runner}"), n)
                        .release(release("baton").of_value(baton(n)))
                        .reserve(Reserve::new("user", "baton", baton(n + 1)));
                    match log.commit(pass).await {
                        Ok(_) => won.push(n),
                        Err(error) => assert_eq!(error, not_held("baton")),
                    }
                }
                won
            })
        })
        .collect();
    let mut won = Vec::new();
    for task in tasks {
        won.extend(task.await.expect("the task ends well"));
    }
    won.sort_unstable();
    assert_eq!(won, (0..won.len() as u64).collect::<Vec<_>>(), "each value had one successor");
    let held = release("baton").of_value(value(&won.len().to_string()));
    commit(&log, order("last", 0).release(held)).await;
}

/// Names separate keys, even if name and key are equal when joined.
pub async fn names_separate_keys(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    for (name, key) in KEYS {
        let of = |id: &str| order(id, 1).reserve(Reserve::new(*name, *key, value("null")));
        commit(&log, of("a")).await;
        let due = CommitError::KeyTaken { name: (*name).into(), key: (*key).into() };
        assert_eq!(refused(&log, of("b")).await, due);
    }
    // An aggregate, a type and a tag with the same text are not keys.
    commit(&log, order("a", 9).reserve(Reserve::new("order", "a", value("null")))).await;
    commit(&log, order("a", 9).reserve(Reserve::new("order_changed", "order_changed", value("null")))).await;
}

/// Keys belong to a tenant.
pub async fn keys_of_other_tenants_are_others(subject: &dyn Subject) {
    let subject = &WithOther(subject);
    let (store, log) = open(subject).await;
    let other = log_of(&store, crate::OTHER_TENANT);
    commit(&log, order("a", 1).reserve(reserve("eva"))).await;
    assert_eq!(refused(&other, order("a", 1).release(release("eva"))).await, not_held("eva"));
    commit(&other, order("a", 1).reserve(reserve("eva"))).await;
    commit(&other, order("a", 1).release(release("eva"))).await;
    assert_eq!(refused(&log, order("a", 1).reserve(reserve("eva"))).await, taken("eva"));
}

/// However many commits lie between, and after reopening, the state of a key is that of its last change.
pub async fn keys_hold_through_everything_stored(subject: &dyn Subject) {
    const KEYS: u64 = 60;
    let (store, log) = open(subject).await;
    let of = |n: u64, text: &str| Reserve::new("user", format!("k-{n}"), value(text));
    for n in 0..KEYS {
        commit(&log, order(&format!("a-{}", n % 7), n).reserve(of(n, "1"))).await;
    }
    for n in 0..200 {
        commit(&log, order(&format!("b-{}", n % 7), n)).await;
    }
    for n in 0..KEYS {
        let back = Release::new("user", format!("k-{n}"));
        match n % 3 {
            0 => {}
            1 => drop(commit(&log, order("c", n).release(back)).await),
            _ => drop(commit(&log, order("c", n).release(back.of_value(value("1"))).reserve(of(n, "2"))).await),
        }
    }
    let check = async |log: &_| {
        for n in 0..KEYS {
            let key = format!("k-{n}");
            let held = ["1", "", "2"][n as usize % 3];
            if held.is_empty() {
                assert_eq!(
                    refused(log, order("d", n).release(Release::new("user", key.clone()))).await,
                    not_held(&key)
                );
                continue;
            }
            assert_eq!(refused(log, order("d", n).reserve(of(n, "3"))).await, taken(&key));
            let other = Release::new("user", key.clone()).of_value(value(if held == "1" { "2" } else { "1" }));
            assert_eq!(refused(log, order("d", n).release(other)).await, not_held(&key));
        }
    };
    check(&log).await;
    let (_store, log) = reopen(subject, store, log).await;
    check(&log).await;
    for n in 0..KEYS {
        if n % 3 != 1 {
            commit(&log, order("d", n).release(Release::new("user", format!("k-{n}")))).await;
        }
        commit(&log, order("d", n).reserve(of(n, "4"))).await;
    }
}

/// Random changes of a few keys by one client get the answers that a list of holders predicts.
pub async fn random_changes_follow_who_holds_what(subject: &dyn Subject) {
    let (mut store, mut log) = open(subject).await;
    let random = &mut fastrand::Rng::with_seed(41);
    let mut held = std::collections::BTreeMap::new();
    let (mut accepted, mut told) = (0, 0);
    for n in 0..400_u64 {
        let (name, key) = pick(random, KEYS);
        let text = pick(random, &["1", "2"]);
        let made = order(pick(random, &["a", "b", "c"]), n);
        let (made, passes, after) = if random.bool() {
            let passes = !held.contains_key(&(name, key));
            (made.reserve(Reserve::new(name, key, value(text))), passes, Some(text))
        } else {
            let passes = held.get(&(name, key)) == Some(&text);
            (made.release(Release::new(name, key).of_value(value(text))), passes, None)
        };
        let due = match after {
            Some(_) => CommitError::KeyTaken { name: name.into(), key: key.into() },
            None => CommitError::KeyNotHeld { name: name.into(), key: key.into() },
        };
        match log.commit(made).await {
            Ok(_) => {
                assert!(passes, "{due} was due");
                accepted += 1;
                match after {
                    Some(text) => held.insert((name, key), text),
                    None => held.remove(&(name, key)),
                };
            }
            Err(error) => {
                assert!(!passes, "{error}");
                assert_eq!(error, due);
                told += 1;
            }
        }
        if n % 100 == 99 {
            (store, log) = reopen(subject, store, log).await;
        }
    }
    drop(store);
    assert!(accepted > 100 && told > 100, "{accepted} were accepted, {told} refused");
}

/// Keys are checked before the version, in their order.
pub async fn the_keys_are_judged_before_the_version(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    commit(&log, order("a", 1).reserve(reserve("eva"))).await;
    let both_wrong = order("a", 2).reserve(reserve("eva")).expect(ExpectedVersion::Empty);
    assert_eq!(refused(&log, both_wrong).await, taken("eva"));
    let right_keys = order("a", 2).reserve(reserve("eve")).expect(ExpectedVersion::Empty);
    assert_conflict(&log.commit(right_keys).await, 1);
    assert_eq!(version_of(&log, order_aggregate("a")).await, 1);
    // Of two changes that fail, the first is named. Releases come first.
    let two = order("b", 1).reserve(reserve("eva")).release(release("x")).release(release("y"));
    assert_eq!(refused(&log, two).await, not_held("x"));
}

/// Keys that break a rule are refused with the path of the value, before everything else. The largest valid ones are accepted.
pub async fn keys_that_break_a_rule_are_refused_with_their_path(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    commit(&log, order("a", 1).request_id("r")).await;
    let good = || order("a", 1).request_id("r").expect(ExpectedVersion::Exact(9));
    let many = |count: usize| (0..count).map(|n| reserve(&format!("{n:0>256}"))).collect::<Vec<_>>();
    let text =
        |bytes: usize| KeyValue::new("x".repeat(bytes - value("\"\"").data().as_bytes().len())).expect("a value");
    let large = || text(limits::KEY_VALUE_BYTES_MAX);
    let over = || text(limits::KEY_VALUE_BYTES_MAX + 1);
    for (bad, path) in [
        (good().reserve(Reserve::new("user name", "a", value("1"))), "reserve[0].name"),
        (good().reserve(reserve("a")).reserve(reserve("")), "reserve[1].key"),
        (good().reserve(reserve("a")).reserve(reserve("a")), "reserve[1].key"),
        (good().reserve(reserve(&"k".repeat(257))), "reserve[0].key"),
        (good().reserve(Reserve::new("user", "a", over())), "reserve[0].value"),
        (good().release(Release::new("", "a")), "release[0].name"),
        (good().release(release("a\0")), "release[0].key"),
        (good().release(release("a")).release(release("b")).release(release("a")), "release[2].key"),
        (good().release(release("a").of_value(over())), "release[0].value"),
        (many(limits::KEYS_MAX + 1).into_iter().fold(good(), NewCommit::reserve), "reserve"),
    ] {
        match refused(&log, bad).await {
            CommitError::Invalid(invalid) => assert_eq!((invalid.code, &*invalid.path), (Code::InvalidKeys, path)),
            other => panic!("{path} must be invalid, not {other}"),
        }
    }
    assert_eq!(log.head().await.expect("the head is read"), 1);
    let largest = many(limits::KEYS_MAX).into_iter().map(|key| Reserve { value: large(), ..key });
    commit(&log, largest.fold(order("b", 1), NewCommit::reserve)).await;
    let released = many(limits::KEYS_MAX).into_iter().map(|key| Release::new(key.name, key.key).of_value(large()));
    commit(&log, released.fold(order("b", 2), NewCommit::release)).await;
}
