//! Prepare keys that changed without a commit, moved with the store.

use std::sync::Arc;

use annals::operations::{ExportReader, MovedKeys};
use annals::{
    Code, Collection, DEFAULT_SCOPE, DEFAULT_TENANT, Data, KeyHolder, KeyValue, NewCommit, NewEvent, Release, Reserve,
    Store, Timestamp,
};

use crate::moving::{content, exported, imported, open};

fn user(key: &str, n: u64) -> Reserve {
    Reserve::new("user", key, KeyValue::new(n).expect("a value"))
}

fn commit() -> NewCommit {
    NewCommit::new("order", "o").event(NewEvent::new("placed", Data::empty()))
}

const KEYS: [&str; 9] = ["alone", "timed", "expired", "given-back", "changed", "released", "again", "last", "never"];

/// Keys that commits hold, that nobody but the service knows, and that both have changed, in either order.
async fn filled() -> Arc<dyn Store> {
    let store = open("memory:").await;
    let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("it is declared");
    let keys = store.prepare_keys(DEFAULT_TENANT).expect("it is declared");
    let held = |key: &str| Release::new("user", key);
    let until = |reserve: Reserve, at| reserve.until(Timestamp::from_millis(at));
    for new in [
        user("alone", 1),
        until(user("timed", 2), 5_000_000_000_000),
        until(user("expired", 3), 5),
        user("released", 4),
        user("again", 5),
    ] {
        assert_eq!(keys.prepare(new).await, Ok(true));
    }
    log.commit(commit().reserve(user("given-back", 6)).reserve(user("changed", 7))).await.expect("they are free");
    assert_eq!(keys.rollback(held("given-back")).await, Ok(true));
    assert_eq!(keys.reprepare(None, user("changed", 8)).await, Ok(true));
    assert_eq!(keys.rollback(held("again")).await, Ok(true));
    log.commit(commit().release(held("released")).reserve(user("again", 9))).await.expect("one is held, one is free");
    assert_eq!(keys.prepare(user("last", 10)).await, Ok(true));
    let other = store.prepare_keys("other").expect("it is declared");
    assert_eq!(other.prepare(user("alone", 11)).await, Ok(true));
    store
}

/// Who holds the keys of both tenants.
async fn held(store: &Arc<dyn Store>) -> Vec<Option<KeyHolder>> {
    let mut held = Vec::new();
    for tenant in [DEFAULT_TENANT, "other"] {
        let keys = store.prepare_keys(tenant).expect("it is declared");
        for key in KEYS {
            held.push(keys.look("user", key).await.expect("it is read").map(|found| found.holder));
        }
    }
    held
}

#[tokio::test]
async fn keys_are_held_behind_an_import_as_they_were_whoever_changed_them() {
    let source = filled().await;
    let (bytes, due) = (exported(&source).await, held(&source).await);
    let folder = tempfile::tempdir().expect("a folder");
    let target = open(&format!("embedded:{}/store", folder.path().display())).await;
    // Ended early at each of the last lines, among them those of keys.
    let text = String::from_utf8(bytes.clone()).expect("UTF-8");
    let lines: Vec<&str> = text.lines().collect();
    for end in lines.len() - 20..lines.len() {
        let part = lines[..end].join("\n") + "\n";
        let error = imported(part.as_bytes(), &target).await.expect_err("it ends early");
        assert_eq!(error.code, Code::InvalidBackup, "{error}");
    }
    for _ in 0..2 {
        let moved = imported(&bytes, &target).await.expect("it is imported");
        let of = |tenant: &str, keys| MovedKeys { tenant: tenant.to_owned(), keys };
        assert_eq!(moved.keys, [of(DEFAULT_TENANT, 6), of("other", 1)], "what commits alone say is not said twice");
        assert_eq!(held(&target).await, due);
    }
    assert_eq!(content(&exported(&target).await), content(&bytes));
    let keys = target.prepare_keys(DEFAULT_TENANT).expect("it is declared");
    assert_eq!(keys.prepare(user("alone", 12)).await, Ok(false), "it is held");
    assert_eq!(keys.prepare(user("given-back", 12)).await, Ok(true), "it is free");
    target.close().await;
}

#[tokio::test]
async fn a_key_that_somebody_else_holds_is_not_taken_by_an_import() {
    let bytes = exported(&filled().await).await;
    for there_before in [true, false] {
        let target = open("memory:").await;
        let keys = target.prepare_keys(DEFAULT_TENANT).expect("it is declared");
        if there_before {
            assert_eq!(keys.prepare(user("alone", 100)).await, Ok(true));
        } else {
            imported(&bytes, &target).await.expect("it is imported");
            assert_eq!(keys.reprepare(None, user("alone", 100)).await, Ok(true));
        }
        let error = imported(&bytes, &target).await.expect_err("it is held otherwise");
        assert_eq!(error.code, Code::KeyTaken, "{error}");
        assert!(error.message.contains("\"alone\" of user"), "{error}");
        let holder = keys.get("user", "alone").await.expect("it is read").expect("it is held");
        assert_eq!(holder.value.decode::<u64>().expect("a number"), 100);
    }
}

#[tokio::test]
async fn a_commit_that_is_imported_does_not_take_a_key_from_who_holds_it_and_nothing_is_written() {
    let source = open("memory:").await;
    let log = source.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("it is declared");
    log.commit(commit().reserve(user("eva", 1))).await.expect("it is free");
    let records = source.records(DEFAULT_TENANT).expect("it is declared");
    records.declare(Collection::new("things")).await.expect("it is declared");
    let bytes = exported(&source).await;
    let target = open("memory:").await;
    let keys = target.prepare_keys(DEFAULT_TENANT).expect("it is declared");
    let held = user("eva", 100).until(Timestamp::from_millis(5_000_000_000_000));
    assert_eq!(keys.prepare(held.clone()).await, Ok(true));
    let error = imported(&bytes, &target).await.expect_err("it is held");
    assert_eq!(error.code, Code::KeyTaken, "{error}");
    for part in ["\"eva\" of user", "by 100 until 2128-06-11T", "nothing was written"] {
        assert!(error.message.contains(part), "{error}");
    }
    assert_eq!(keys.get("user", "eva").await, Ok(Some(held.into())));
    let there = target.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("it is declared");
    assert_eq!(there.head().await, Ok(0));
    assert_eq!(target.records(DEFAULT_TENANT).expect("a tenant").collections().await, Ok(Vec::new()));
    // Given back it is in nobody's way, and is then held as the commit says.
    assert_eq!(keys.rollback(Release::new("user", "eva")).await, Ok(true));
    imported(&bytes, &target).await.expect("it is imported");
    assert_eq!(keys.get("user", "eva").await, Ok(Some(user("eva", 1).into())));
}

#[tokio::test]
async fn keys_that_were_left_out_added_or_altered_are_noticed() {
    let text = String::from_utf8(exported(&filled().await).await).expect("UTF-8");
    let lines: Vec<&str> = text.lines().collect();
    let at = lines.iter().position(|line| line.starts_with("{\"key\"")).expect("a key");
    let wrong = [
        [&lines[..at], &lines[at + 1..]].concat().join("\n"),
        [&lines[..=at], &lines[at..]].concat().join("\n"),
        text.replacen("\"value_bson\":\"", "\"value_bson\":\"0", 1),
        text.replacen("\"keys\":6", "\"keys\":5", 1),
    ];
    for wrong in wrong {
        assert!(wrong != text);
        let target = open("memory:").await;
        let reader = ExportReader::new(wrong.as_bytes()).expect("it begins well");
        let error = reader.import_into(&*target, &mut |_, _| {}).await.expect_err("it was altered");
        assert_eq!(error.code, Code::InvalidBackup, "{error}");
    }
}
