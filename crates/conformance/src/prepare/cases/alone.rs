//! What one caller observes.

use annals_core::{Code, KeyError, KeyValue, PrepareKey, Prepared, Release, Reserve, Timestamp, limits};
use serde::{Deserialize, Serialize};

use super::{got, held, held_as, in_millis, open, seen, user, value};
use crate::Subject;

/// A text and an object, each with a different one.
const VALUES: [(&str, &str); 2] = [("\"u-1\"", "\"u-2\""), (r#"{"id":"u-1","n":1}"#, r#"{"id":"u-2","n":1}"#)];

/// A key is taken once, released and taken again, changed from its current value, and finally released.
pub async fn a_key_is_prepared_once_and_again_after_its_rollback(subject: &dyn Subject) {
    let (_store, keys) = open(subject).await;
    for (first, second) in VALUES {
        assert_eq!(got(&keys, "eva").await, None);
        assert_eq!(keys.prepare(user("eva", first)).await, Ok(true));
        assert_eq!(keys.prepare(user("eva", second)).await, Ok(false));
        assert_eq!(keys.prepare(user("eva", first)).await, Ok(false), "who holds it holds it already");
        assert_eq!(got(&keys, "eva").await.as_deref(), Some(first));
        assert_eq!(keys.rollback(held("eva")).await, Ok(true));
        assert_eq!((got(&keys, "eva").await, seen(&keys, "eva").await), (None, None));
        assert_eq!(keys.rollback(held("eva")).await, Ok(false), "it is nobody's");
        assert_eq!(keys.prepare(user("eva", first)).await, Ok(true));
        assert_eq!(keys.reprepare(Some(value(first)), user("eva", second)).await, Ok(true));
        assert_eq!(got(&keys, "eva").await.as_deref(), Some(second));
        assert_eq!(keys.rollback(held("eva")).await, Ok(true));
    }
}

/// A change from an outdated value returns false. A change that names no value, or the current one, returns true, even if the new value
/// is equal.
pub async fn a_key_is_reprepared_from_the_value_that_it_has(subject: &dyn Subject) {
    let (_store, keys) = open(subject).await;
    for (first, second) in VALUES {
        assert_eq!(keys.prepare(user("eva", first)).await, Ok(true));
        assert_eq!(keys.reprepare(Some(value(second)), user("eva", second)).await, Ok(false));
        assert_eq!(got(&keys, "eva").await.as_deref(), Some(first));
        assert_eq!(keys.reprepare(None, user("eva", second)).await, Ok(true));
        assert_eq!(got(&keys, "eva").await.as_deref(), Some(second));
        assert_eq!(keys.reprepare(Some(value(second)), user("eva", second)).await, Ok(true), "an equal value is one");
        let timed = user("eva", second).until(in_millis(subject, 5));
        assert_eq!(keys.reprepare(None, timed).await, Ok(true));
        subject.clock().advance_millis(6);
        assert_eq!(got(&keys, "eva").await, None, "it was given another time, too");
        assert_eq!(keys.reprepare(Some(value(second)), user("eva", first)).await, Ok(true), "expired or not");
        assert_eq!(got(&keys, "eva").await.as_deref(), Some(first));
        assert_eq!(keys.rollback(held("eva")).await, Ok(true));
    }
}

/// A repetition returns false, because the new key is held by then.
pub async fn a_key_moves_to_another(subject: &dyn Subject) {
    let (_store, keys) = open(subject).await;
    for (first, second) in VALUES {
        assert_eq!(keys.prepare(user("old", first)).await, Ok(true));
        let moving = || keys.reprepare_as(held_as("old", first), user("new", second));
        assert_eq!(moving().await, Ok(true));
        assert_eq!((got(&keys, "old").await, got(&keys, "new").await.as_deref()), (None, Some(second)));
        assert_eq!(moving().await, Ok(false));
        assert_eq!(got(&keys, "new").await.as_deref(), Some(second));
        assert_eq!(keys.rollback(held("new")).await, Ok(true));
    }
    // An expired key can still be the source of a move, and its destination.
    for key in ["from", "to"] {
        assert_eq!(keys.prepare(user(key, "1").until(in_millis(subject, 5))).await, Ok(true));
    }
    subject.clock().advance_millis(6);
    assert_eq!(keys.reprepare_as(held_as("from", "1"), user("to", "2")).await, Ok(true));
    assert_eq!((seen(&keys, "from").await, got(&keys, "to").await.as_deref()), (None, Some("2")));
}

/// If the key is not held or has another value, the move is an error, and the new key is not taken.
pub async fn a_move_from_a_key_that_is_not_held_takes_nothing(subject: &dyn Subject) {
    let (_store, keys) = open(subject).await;
    let due = Err(KeyError::NotHeld { name: "user".into(), key: "old".into() });
    for (first, second) in VALUES {
        assert_eq!(keys.reprepare_as(held_as("old", first), user("new", second)).await, due);
        assert_eq!(keys.prepare(user("old", first)).await, Ok(true));
        assert_eq!(keys.reprepare_as(held_as("old", second), user("new", second)).await, due);
        assert_eq!((got(&keys, "old").await.as_deref(), seen(&keys, "new").await), (Some(first), None));
        assert_eq!(keys.rollback(held("old")).await, Ok(true));
    }
}

/// A move from a key to itself, to another name, or without the old value is refused.
pub async fn a_move_to_the_same_key_is_refused(subject: &dyn Subject) {
    let (_store, keys) = open(subject).await;
    assert_eq!(keys.prepare(user("eva", "1")).await, Ok(true));
    for (old, new, path) in [
        (held_as("eva", "1"), user("eva", "2"), "new_key"),
        (held_as("eva", "1"), Reserve::new("mail", "eve", value("2")), "name"),
        (held("eva"), user("eve", "2"), "old_value"),
    ] {
        match keys.reprepare_as(old, new).await {
            Err(KeyError::Invalid(invalid)) => assert_eq!((invalid.code, &*invalid.path), (Code::InvalidKeys, path)),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(got(&keys, "eva").await.as_deref(), Some("1"));
}

/// It can be taken once its time has passed, whether or not it has been removed.
pub async fn an_expired_key_is_prepared_anew(subject: &dyn Subject) {
    let (_store, keys) = open(subject).await;
    for (first, second) in VALUES {
        assert_eq!(keys.prepare(user("eva", first).until(in_millis(subject, 2_000))).await, Ok(true));
        assert_eq!(keys.prepare(user("ever", first)).await, Ok(true));
        assert_eq!(keys.prepare(user("eva", second)).await, Ok(false));
        subject.clock().advance_millis(2_001);
        assert_eq!(got(&keys, "eva").await, None);
        assert_eq!(keys.prepare(user("eva", second)).await, Ok(true));
        assert_eq!(keys.prepare(user("eva", first)).await, Ok(false), "it has no time now");
        subject.clock().advance_millis(1_000_000);
        assert_eq!(keys.prepare(user("ever", second)).await, Ok(false), "for ever is for ever");
        for key in ["eva", "ever"] {
            assert_eq!(keys.rollback(held(key)).await, Ok(true));
        }
    }
}

/// Only the current value releases it.
pub async fn a_rollback_with_another_value_keeps_the_key(subject: &dyn Subject) {
    let (_store, keys) = open(subject).await;
    for (first, second) in VALUES {
        assert_eq!(keys.prepare(user("eva", first)).await, Ok(true));
        assert_eq!(keys.rollback(held_as("eva", second)).await, Ok(false));
        assert_eq!(got(&keys, "eva").await.as_deref(), Some(first));
        assert_eq!(keys.rollback(held_as("eva", first)).await, Ok(true));
        assert_eq!(seen(&keys, "eva").await, None);
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Owner {
    id: String,
}

#[derive(Debug)]
enum Failure {
    Action,
    Key(#[expect(dead_code, reason = "shown when a case fails")] KeyError),
}

impl From<KeyError> for Failure {
    fn from(error: KeyError) -> Self {
        Self::Key(error)
    }
}

/// This also holds if the action panics, before or after its first pause. A key that it did not take stays.
pub async fn a_failing_action_gives_its_key_back(subject: &dyn Subject) {
    let (_store, keys) = open(subject).await;
    let users = PrepareKey::<Owner>::new(keys.clone(), "user").expect("a name");
    assert_eq!(users.name(), "user");
    let (eva, otto) = (owner("eva"), owner("otto"));
    let kept = users.using("eva", &eva, async |taken| Ok::<_, Failure>(taken)).await.expect("it ends well");
    assert!(kept);
    assert_eq!(users.get("eva").await, Ok(Some(eva.value.clone())), "who ends well keeps it");
    let failed = users.using("otto", &otto, async |taken| Err::<(), _>(told(taken, true))).await;
    assert!(matches!(failed, Err(Failure::Action)));
    assert_eq!(users.look("otto").await, Ok(None));
    let failed = users.using("eva", &otto, async |taken| Err::<(), _>(told(taken, false))).await;
    assert!(matches!(failed, Err(Failure::Action)));
    assert_eq!(users.get("eva").await, Ok(Some(eva.value)), "it is another's");
    for pausing in [false, true] {
        let users = PrepareKey::<Owner>::new(keys.clone(), "user").expect("a name");
        let panicking = tokio::spawn(async move {
            let action = move |taken| {
                assert!(pausing, "at once: {taken}");
                async move {
                    tokio::task::yield_now().await;
                    panic!("after a pause: {taken}");
                }
            };
            users.using::<(), Failure, _>("panic", &owner("eva"), action).await
        });
        let panic = panicking.await.expect_err("it panics").into_panic();
        let message = panic.downcast_ref::<String>().expect("the message of the panic");
        assert_eq!(message, if pausing { "after a pause: true" } else { "at once: true" });
        assert_eq!(seen(&keys, "panic").await, None);
    }
}

fn owner(id: &str) -> Prepared<Owner> {
    Prepared::for_ever(Owner { id: id.to_owned() })
}

fn told(taken: bool, due: bool) -> Failure {
    assert_eq!(taken, due);
    Failure::Action
}

/// Neither key changes, whatever the value that is named for the old one.
pub async fn a_move_to_a_held_key_changes_neither(subject: &dyn Subject) {
    let (_store, keys) = open(subject).await;
    assert_eq!(keys.prepare(user("old", "1")).await, Ok(true));
    assert_eq!(keys.prepare(user("new", "2")).await, Ok(true));
    for said in ["1", "7"] {
        assert_eq!(keys.reprepare_as(held_as("old", said), user("new", "3")).await, Ok(false));
    }
    assert_eq!((got(&keys, "old").await.as_deref(), got(&keys, "new").await.as_deref()), (Some("1"), Some("2")));
}

/// Looking shows the key and that it has expired. Getting shows nothing.
pub async fn an_expired_key_can_be_looked_at(subject: &dyn Subject) {
    let (_store, keys) = open(subject).await;
    let ttl_at = in_millis(subject, 10);
    assert_eq!(keys.prepare(user("eva", "1").until(ttl_at)).await, Ok(true));
    let expired = async || keys.look("user", "eva").await.expect("read").expect("there").expired;
    assert!(!expired().await);
    subject.clock().advance_millis(10);
    assert!(!expired().await, "at its very time it has not expired");
    assert_eq!(got(&keys, "eva").await.as_deref(), Some("1"));
    subject.clock().advance_millis(1);
    assert!(expired().await);
    let found = keys.look("user", "eva").await.expect("read").expect("there");
    assert_eq!((found.holder.value, found.holder.ttl_at), (value("1"), Some(ttl_at)));
    assert_eq!(got(&keys, "eva").await, None);
}

/// Without its value it counts as free.
pub async fn an_expired_key_is_rolled_back_by_its_value_only(subject: &dyn Subject) {
    let (_store, keys) = open(subject).await;
    assert_eq!(keys.prepare(user("eva", "1").until(in_millis(subject, 10))).await, Ok(true));
    subject.clock().advance_millis(11);
    assert_eq!(keys.rollback(held("eva")).await, Ok(false));
    assert_eq!(seen(&keys, "eva").await.as_deref(), Some("1"));
    assert_eq!(keys.rollback(held_as("eva", "1")).await, Ok(true));
    assert_eq!(seen(&keys, "eva").await, None);
}

/// A millisecond before its time it can be released, and a millisecond after it can be taken. At its time, neither is possible.
pub async fn at_its_very_time_a_key_is_neither_free_nor_rolled_back(subject: &dyn Subject) {
    let (_store, keys) = open(subject).await;
    assert_eq!(keys.prepare(user("eva", "1").until(in_millis(subject, 10))).await, Ok(true));
    subject.clock().advance_millis(10);
    assert_eq!(keys.prepare(user("eva", "2")).await, Ok(false));
    assert_eq!(keys.rollback(held("eva")).await, Ok(false));
    assert_eq!(got(&keys, "eva").await.as_deref(), Some("1"));
    assert_eq!(keys.prepare(user("otto", "1").until(in_millis(subject, 10))).await, Ok(true));
    subject.clock().advance_millis(9);
    assert_eq!(keys.rollback(held("otto")).await, Ok(true));
    assert_eq!(keys.prepare(user("eva", "2")).await, Ok(true));
}

/// This holds with and without a value, and no key is created.
pub async fn a_key_that_is_not_there_is_not_reprepared(subject: &dyn Subject) {
    let (_store, keys) = open(subject).await;
    assert_eq!(keys.reprepare(None, user("eva", "1")).await, Ok(false));
    assert_eq!(keys.reprepare(Some(value("null")), user("eva", "1")).await, Ok(false));
    assert_eq!(seen(&keys, "eva").await, None);
}

/// The order of fields counts, the type of a number does not. A list does not equal its only element, and nothing in a value is an
/// operator.
pub async fn values_are_equal_as_bson_values_are(subject: &dyn Subject) {
    let (_store, keys) = open(subject).await;
    let values = [
        "null",
        "true",
        "0",
        "\"0\"",
        "\"\"",
        "[]",
        "[0]",
        "[[0]]",
        "{}",
        "[1,2]",
        "[2,1]",
        r#"{"a":1,"b":2}"#,
        r#"{"b":2,"a":1}"#,
        r#"{"$gt":""}"#,
        r#"{"$exists":true}"#,
    ];
    for it in values {
        assert_eq!(keys.prepare(user("eva", it)).await, Ok(true));
        for other in values.into_iter().filter(|other| *other != it) {
            assert_eq!(keys.rollback(held_as("eva", other)).await, Ok(false), "{it} is not {other}");
            assert_eq!(keys.reprepare(Some(value(other)), user("eva", it)).await, Ok(false), "{it} is not {other}");
        }
        assert_eq!(got(&keys, "eva").await.as_deref(), Some(it));
        assert_eq!(keys.reprepare(Some(value(it)), user("eva", it)).await, Ok(true));
        assert_eq!(keys.rollback(held_as("eva", it)).await, Ok(true));
    }
    for (it, equal) in [("7", "7.0"), ("0.0", "-0.0"), (r#"{"a":[1.0]}"#, r#"{"a":[1]}"#)] {
        assert_eq!(keys.prepare(user("eva", it)).await, Ok(true));
        assert_eq!(keys.reprepare(Some(value(equal)), user("eva", it)).await, Ok(true));
        assert_eq!(keys.rollback(held_as("eva", equal)).await, Ok(true));
    }
}

/// A caller that requests the wrong type gets an error with the key, and the key stays.
pub async fn a_value_of_another_type_is_told(subject: &dyn Subject) {
    let (_store, keys) = open(subject).await;
    assert_eq!(keys.prepare(user("eva", "7")).await, Ok(true));
    let owners = PrepareKey::<Owner>::new(keys.clone(), "user").expect("a name");
    for refused in [owners.get("eva").await.map(drop), owners.look("eva").await.map(drop)] {
        assert!(matches!(&refused, Err(KeyError::OtherType { name, key, .. }) if name == "user" && key == "eva"));
    }
    // Before the time of any subject's clock.
    let past = Timestamp::from_millis(-1);
    let numbers = PrepareKey::<u32>::new(keys, "user").expect("a name");
    assert_eq!(numbers.get("eva").await, Ok(Some(7)));
    assert_eq!(numbers.reprepare_value("eva", &7, &Prepared::for_ever(8)).await, Ok(true));
    assert_eq!(numbers.reprepare_as(("eva", &8), ("eve", &Prepared::for_ever(9))).await, Ok(true));
    assert_eq!(numbers.reprepare("eve", &Prepared::until(10, past)).await, Ok(true));
    assert_eq!(numbers.look("eve").await, Ok(Some(Prepared::until(10, past))));
    assert_eq!(numbers.rollback("eve").await, Ok(false));
    assert_eq!(numbers.rollback_value("eve", &10).await, Ok(true));
}

/// The error names the part that is wrong: a name, a key, a value or a time.
pub async fn what_breaks_a_rule_is_refused_with_its_path(subject: &dyn Subject) {
    let (_store, keys) = open(subject).await;
    let path = |refused: Result<bool, KeyError>| match refused {
        Err(KeyError::Invalid(invalid)) if invalid.code == Code::InvalidKeys => invalid.path,
        other => panic!("{other:?}"),
    };
    let long = KeyValue::new("x".repeat(limits::KEY_VALUE_BYTES_MAX)).expect("a value");
    let never = Timestamp::from_millis(i64::MAX);
    assert_eq!(path(keys.prepare(Reserve::new("a user", "eva", value("1"))).await), "name");
    assert_eq!(path(keys.prepare(user("", "1")).await), "key");
    assert_eq!(path(keys.prepare(Reserve::new("user", "eva", long.clone())).await), "value");
    assert_eq!(path(keys.prepare(user("eva", "1").until(never)).await), "ttl_at");
    assert_eq!(path(keys.rollback(Release::new("user", "\n")).await), "key");
    assert_eq!(path(keys.rollback(held("eva").of_value(long.clone())).await), "value");
    assert_eq!(path(keys.reprepare(Some(long), user("eva", "1")).await), "old_value");
    assert_eq!(path(keys.reprepare_as(held_as("eva", "1"), user("", "1")).await), "new_key");
    assert_eq!(keys.look("user", "").await.map(drop).expect_err("no key").code(), Code::InvalidKeys);
    assert!(PrepareKey::<u32>::new(keys, "a user").is_err());
}
