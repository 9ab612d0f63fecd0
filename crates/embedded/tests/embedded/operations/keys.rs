//! Prepare keys that the service changed: they are checked, packed, backed up, restored and cut with the log in which they stand.

use std::sync::Arc;

use annals_core::{DEFAULT_SCOPE, DEFAULT_TENANT, KeyValue, Store};
use annals_embedded::disk::Disk;
use annals_embedded::operations::{Restore, Source, check, restore};
use annals_embedded::{EmbeddedStore, Options};

use super::backup::{back_up, into_folder};
use super::packing::{is_packed, pack_now};
use super::repair::cut_at;
use super::samples::{disk_with, options};
use crate::faulty_disk::FaultyDisk;
use crate::prepare::{order, user};
use crate::stores::{PACK_ALWAYS, block_on};

const COMMITS: u64 = 60;

fn open(disk: &Arc<FaultyDisk>, seed: u64) -> EmbeddedStore {
    EmbeddedStore::open(disk.clone(), options(seed)).unwrap_or_else(|error| panic!("{error}"))
}

/// Before each commit n the key `before-n` is taken with that number, and `last` is given it; both once more behind the last commit.
async fn fill(store: &EmbeddedStore) {
    let keys = store.prepare_keys(DEFAULT_TENANT).expect("declared");
    let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("declared");
    assert_eq!(keys.prepare(user("last", u64::MAX / 4)).await, Ok(true));
    for n in 0..=COMMITS {
        assert_eq!(keys.prepare(user(&format!("before-{n}"), n)).await, Ok(true));
        assert_eq!(keys.reprepare(None, user("last", n)).await, Ok(true));
        if n < COMMITS {
            log.commit(order(n)).await.expect("it is accepted");
        }
    }
}

async fn filled() -> Arc<FaultyDisk> {
    let disk = FaultyDisk::new(1);
    let store = open(&disk, 1);
    fill(&store).await;
    store.close().await;
    disk
}

/// Sees that the store holds what was there before the event `at`, and that it goes on.
async fn assert_holds_to(disk: &Arc<FaultyDisk>, at: u64) {
    let report = check(&**disk, &mut |_, _| {}).expect("it can be checked");
    assert!(report.is_sound(), "{at}: {report:#?}");
    let log = report.logs.iter().find(|log| (&*log.tenant, &*log.scope) == (DEFAULT_TENANT, DEFAULT_SCOPE));
    let log = log.expect("it is there");
    assert_eq!((log.head, log.commits, log.events), (at, at, at), "a key is no commit");
    let store = open(disk, 5);
    let keys = store.prepare_keys(DEFAULT_TENANT).expect("declared");
    let there = async |key: &str| keys.get("user", key).await.expect("it is read").map(|holder| holder.value);
    assert_eq!(there("last").await, Some(KeyValue::new(at).expect("a value")), "cut at {at}");
    for n in [0, at / 2, at] {
        let due = Some(KeyValue::new(n).expect("a value"));
        assert_eq!(there(&format!("before-{n}")).await, due, "cut at {at}");
    }
    let behind = format!("before-{}", at + 1);
    assert_eq!(keys.prepare(user(&behind, 1)).await, Ok(true), "cut at {at}");
    let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("declared");
    let stats = log.stats(&mut |_, _| {}).await.expect("counted");
    assert_eq!((stats.commits, stats.events), (at, at));
    let outcome = log.commit(order(1).reserve(user("another", 1))).await.expect("it goes on");
    assert_eq!(outcome.first_sequence_number, Some(at));
    store.close().await;
}

#[test]
fn keys_are_checked_and_packed_with_their_log() {
    block_on(async {
        let disk = filled().await;
        assert_holds_to(&disk_with(&disk.files()), COMMITS).await;
        let always = Options { packing: PACK_ALWAYS, ..options(7) };
        pack_now(&disk, &always).unwrap_or_else(|error| panic!("{error}"));
        assert!(disk.files().iter().filter(|file| is_packed(file)).count() > 2);
        assert_holds_to(&disk_with(&disk.files()), COMMITS).await;
        // The indexes are made again from what is packed.
        let without: Vec<_> = disk.files().into_iter().filter(|(path, _)| !path.ends_with(".index")).collect();
        assert_holds_to(&disk_with(&without), COMMITS).await;
    });
}

/// What is behind the last commit, too, and keys without any commit.
#[test]
fn a_backup_has_the_keys_that_were_there_when_it_was_taken() {
    block_on(async {
        for alone in [false, true] {
            let disk = FaultyDisk::new(1);
            let store = open(&disk, 1);
            let keys = store.prepare_keys(DEFAULT_TENANT).expect("declared");
            match alone {
                true => assert_eq!(keys.prepare(user("last", 0)).await, Ok(true)),
                false => fill(&store).await,
            }
            if alone {
                assert_eq!(keys.prepare(user("before-0", 0)).await, Ok(true));
            }
            let kept = FaultyDisk::new(3);
            back_up(&store, into_folder(&kept)).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(keys.prepare(user("afterwards", 1)).await, Ok(true));
            let made = FaultyDisk::new(2);
            let target: Arc<dyn Disk> = made.clone();
            let restored = restore(&Source::Folder(kept), &target, &Restore::default(), &options(4), &mut |_, _| {});
            restored.unwrap_or_else(|error| panic!("{error}"));
            assert_holds_to(&made, if alone { 0 } else { COMMITS }).await;
        }
    });
}

/// A log that is cut before an event keeps the keys as they were when that event came.
#[test]
fn a_cut_keeps_the_keys_that_were_changed_before_it() {
    block_on(async {
        let original = filled().await;
        for packing in [false, true] {
            let files = original.files();
            for at in 0..=COMMITS {
                let disk = disk_with(&files);
                if packing {
                    let always = Options { packing: PACK_ALWAYS, ..options(7) };
                    pack_now(&disk, &always).unwrap_or_else(|error| panic!("{error}"));
                }
                cut_at(&disk, at, &Options::default()).unwrap_or_else(|error| panic!("{at}: {error}"));
                assert_holds_to(&disk, at).await;
            }
        }
    });
}
