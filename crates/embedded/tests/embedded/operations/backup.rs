//! Backups taken under load, restored whole and in part; truncated, altered and interrupted ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use annals_conformance::history::read_all;
use annals_core::{Code, DEFAULT_SCOPE, DEFAULT_TENANT, Store, StoreError};
use annals_embedded::disk::{Disk, MemoryDisk, Open, RealDisk};
use annals_embedded::operations::{Manifest, OperationError, Receiver, Restore, Restored, Source, check, restore};
use annals_embedded::{EmbeddedStore, Options};
use tokio::time::timeout;

use super::map_samples::fill_maps;
use super::repair::{cut_at, events};
use super::samples::{LOGS, borders, commit, disk_with, fill, filled, frames, hash_to, open_store, options};
use crate::faulty_disk::{Fault, FaultyDisk};
use crate::stores::block_on;

const COMMITS: usize = 60;
const PATIENCE: Duration = Duration::from_secs(60);
pub const ARCHIVE: &str = "backup.tar";

/// Backs up into a folder, or into a file of that name; gives the manifest and the bytes that came.
pub fn back_up(store: &dyn Store, to: Receiver) -> Result<(Manifest, usize), OperationError> {
    let mut to = to;
    let mut backup =
        store.backup(to.earlier()).map_err(|error| OperationError::new(error.code(), error.to_string()))?;
    let mut bytes = 0;
    while let Some(piece) = backup.next().map_err(|error| OperationError::new(error.code(), error.to_string()))? {
        bytes += piece.len();
        to.push(&piece)?;
    }
    Ok((to.finish()?, bytes))
}

pub fn into_folder(disk: &Arc<FaultyDisk>) -> Receiver {
    Receiver::into_folder(disk.clone()).unwrap_or_else(|error| panic!("{error}"))
}

pub fn restored(
    source: &Source,
    what: &Restore,
    options: &Options,
) -> Result<(Arc<FaultyDisk>, Restored), OperationError> {
    let disk = FaultyDisk::new(2);
    let target: Arc<dyn Disk> = disk.clone();
    let made = restore(source, &target, what, options, &mut |done, total| assert!(done <= total, "{done} of {total}"))?;
    Ok((disk, made))
}

pub fn folder(disk: &Arc<FaultyDisk>) -> Source {
    Source::Folder(disk.clone())
}

fn to(at: u64) -> Restore {
    Restore { cut: Some((DEFAULT_TENANT.to_owned(), DEFAULT_SCOPE.to_owned(), at)) }
}

/// A backup of a filled store in a folder, with records and streams.
pub fn sample() -> (Arc<FaultyDisk>, Manifest) {
    block_on(async {
        let store = open_store(&filled(COMMITS, true).await, 1);
        fill_maps(&store, 0..10).await;
        let disk = FaultyDisk::new(3);
        let (manifest, _) = back_up(&store, into_folder(&disk)).unwrap_or_else(|error| panic!("{error}"));
        (disk, manifest)
    })
}

#[test]
fn a_backup_taken_under_load_restores_to_the_log_at_its_head() {
    block_on(async {
        let disk = FaultyDisk::new(1);
        let store = Arc::new(open_store(&disk, 1));
        let stop = Arc::new(AtomicBool::new(false));
        let mut writers = Vec::new();
        for (tenant, scope) in LOGS {
            let (log, stop) = (store.log(tenant, scope).expect("it is declared"), stop.clone());
            writers.push(tokio::spawn(async move {
                let mut n = 0;
                while !stop.load(Ordering::Relaxed) {
                    log.commit(commit(n)).await.expect("it is accepted");
                    n += 1;
                }
            }));
        }
        let (tenant, scope) = LOGS[0];
        let log = store.log(tenant, scope).expect("it is declared");
        let head_in = |(_, manifest): &(Source, Manifest)| {
            let tenant = manifest.tenants.iter().find(|known| known.tenant == tenant).expect("it is there");
            tenant.logs.iter().find(|known| known.scope == scope).expect("it is there").head
        };
        let mut backups: Vec<(Source, Manifest)> = Vec::new();
        for n in 0..8 {
            // Each backup begins only after a commit that the one before it does not have.
            let before = backups.last().map_or(0, head_in);
            let grown = async {
                while log.head().await.expect("a head") <= before {
                    tokio::task::yield_now().await;
                }
            };
            timeout(PATIENCE, grown).await.expect("the writers commit");
            let (store, kept) = (store.clone(), FaultyDisk::new(n));
            let file = n % 2 == 0;
            let taken = tokio::task::spawn_blocking(move || {
                let to = match file {
                    true => Receiver::into_file(kept.clone(), ARCHIVE),
                    false => Receiver::into_folder(kept.clone()),
                };
                let (manifest, _) = back_up(&*store, to.expect("it is new")).unwrap_or_else(|error| panic!("{error}"));
                let source = if file { Source::File(kept, ARCHIVE.to_owned()) } else { Source::Folder(kept) };
                (source, manifest)
            });
            backups.push(taken.await.expect("it is taken"));
        }
        stop.store(true, Ordering::Relaxed);
        for writer in writers {
            writer.await.expect("it ends");
        }
        for (source, manifest) in backups {
            let (disk, made) =
                restored(&source, &Restore::default(), &options(4)).unwrap_or_else(|error| panic!("{error}"));
            assert!(check(&*disk, &mut |_, _| {}).expect("it can be checked").is_sound());
            let again = open_store(&disk, 5);
            assert_eq!(made.logs.len(), LOGS.len());
            for log in &made.logs {
                let tenant = manifest.tenants.iter().find(|tenant| tenant.tenant == log.tenant).expect("it is there");
                let due = tenant.logs.iter().find(|due| due.scope == log.scope).expect("it is there");
                assert_eq!((log.head, log.events_hash), (due.head, due.events_hash));
                let original = store.log(&log.tenant, &log.scope).expect("it is declared");
                assert_eq!(log.events_hash, hash_to(&original, log.head).await);
                let open = again.log(&log.tenant, &log.scope).expect("it is declared");
                assert_eq!(open.head().await.expect("a head"), log.head);
                assert_eq!(hash_to(&open, log.head).await, log.events_hash);
                let identity = again.identity_since(&log.tenant, &log.scope, 0).expect("it is declared");
                assert_eq!((identity.incarnation, identity.incarnation_start), (1, log.head));
                assert_eq!(Some(identity.store_id), store.identity(&log.tenant).map(|identity| identity.store_id));
            }
            fill(&again, 10_000..10_003).await;
        }
    });
}

/// Takes a backup while a commit is written and its sync waits; says what was not as it must be.
pub async fn held_back(options: Options) -> Result<(), String> {
    let disk = FaultyDisk::new(1);
    let store = EmbeddedStore::open(disk.clone(), options.clone()).expect("it opens");
    fill(&store, 0..10).await;
    let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("it is declared");
    let head = log.head().await.expect("a head");
    disk.plan(0, Fault::Hold);
    let waiting = tokio::spawn({
        let log = log.clone();
        async move { log.commit(commit(11)).await }
    });
    while !disk.holds() {
        tokio::task::yield_now().await;
    }
    let kept = FaultyDisk::new(3);
    let taken = back_up(&store, into_folder(&kept));
    disk.release();
    waiting.await.expect("it ends").expect("it is accepted");
    let (manifest, _) = taken.map_err(|error| error.message)?;
    if manifest.tenants[0].logs[0].head != head {
        return Err(format!("the head was {head}, and the backup's is {}", manifest.tenants[0].logs[0].head));
    }
    let (_, made) = restored(&folder(&kept), &Restore::default(), &options).map_err(|error| error.message)?;
    if made.logs[0].head == head { Ok(()) } else { Err(format!("the head was {head}, and is {}", made.logs[0].head)) }
}

#[test]
fn what_was_not_durable_yet_is_in_no_backup() {
    block_on(held_back(options(1))).unwrap_or_else(|wrong| panic!("{wrong}"));
}

async fn borders_of(disk: &Arc<FaultyDisk>) -> Vec<u64> {
    let store = open_store(disk, 9);
    let borders = borders(&store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("it is declared")).await;
    store.close().await;
    borders
}

#[test]
fn a_backup_is_restored_to_any_sequence_number_at_which_a_commit_ends() {
    let (backup, _) = sample();
    block_on(async {
        let (whole, _) = restored(&folder(&backup), &Restore::default(), &options(4)).expect("it is restored");
        let all = events(&whole, DEFAULT_TENANT, DEFAULT_SCOPE).await;
        let other = events(&whole, DEFAULT_TENANT, "partner").await;
        for at in borders_of(&whole).await.into_iter().step_by(7) {
            let (disk, made) =
                restored(&folder(&backup), &to(at), &options(4)).unwrap_or_else(|error| panic!("{error}"));
            let log = made.logs.iter().find(|log| log.tenant == DEFAULT_TENANT && log.scope == DEFAULT_SCOPE);
            assert_eq!(log.expect("it is there").head, at);
            assert!(check(&*disk, &mut |_, _| {}).expect("it can be checked").is_sound());
            assert_eq!(events(&disk, DEFAULT_TENANT, DEFAULT_SCOPE).await, all[..at as usize]);
            assert_eq!(events(&disk, DEFAULT_TENANT, "partner").await, other, "only the log that was named is cut");
        }
        let inside = all.iter().find(|event| event.ordinal == 1).expect("there are such commits").sequence_number;
        for at in [inside, all.len() as u64 + 1] {
            let error = restored(&folder(&backup), &to(at), &options(4)).err().expect("there is no border");
            assert_eq!(error.code, Code::InvalidRange, "{error}");
        }
        let nowhere = Restore { cut: Some(("nobody".to_owned(), DEFAULT_SCOPE.to_owned(), 0)) };
        let error = restored(&folder(&backup), &nowhere, &options(4)).err().expect("there is no such tenant");
        assert_eq!(error.code, Code::UnknownTenant);
    });
}

#[test]
fn a_later_backup_into_the_same_folder_writes_only_what_has_grown() {
    block_on(async {
        let store = open_store(&filled(COMMITS, true).await, 1);
        let kept = FaultyDisk::new(3);
        let (first, all) = back_up(&store, into_folder(&kept)).expect("it is taken");
        let (same, few) = back_up(&store, into_folder(&kept)).expect("it is taken again");
        assert!(few * 2 < all, "{few} of {all} bytes came again");
        assert_eq!(Manifest { began: first.began, ..same }, first);
        fill(&store, 100..140).await;
        let (second, _) = back_up(&store, into_folder(&kept)).expect("it is taken again");
        assert!(second.tenants[0].logs[0].head > first.tenants[0].logs[0].head);
        let due = second.files().count() + 1;
        assert_eq!(kept.files().len(), due, "what only the earlier one needed is gone");
        let (disk, _) =
            restored(&folder(&kept), &Restore::default(), &options(4)).unwrap_or_else(|error| panic!("{error}"));
        let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("it is declared");
        assert_eq!(events(&disk, DEFAULT_TENANT, DEFAULT_SCOPE).await, read_all(&log).await.expect("it is read"));
        // Another store's backup stays what it is.
        let other = open_store(&FaultyDisk::new(1), 77);
        let before = kept.files();
        let error = back_up(&other, into_folder(&kept)).expect_err("it is another store");
        assert_eq!(error.code, Code::FolderNotEmpty, "{error}");
        let stayed = |(path, bytes): &(String, Vec<u8>)| kept.files().iter().any(|(p, b)| p == path && b == bytes);
        assert!(before.iter().all(stayed));
    });
}

/// Segments of another incarnation may have the same numbers, salts and lengths.
#[test]
fn a_log_that_was_cut_meanwhile_is_backed_up_anew() {
    block_on(async {
        let disk = filled(COMMITS, true).await;
        let kept = FaultyDisk::new(3);
        let store = open_store(&disk, 1);
        back_up(&store, into_folder(&kept)).expect("it is taken");
        store.close().await;
        drop(store);
        cut_at(&disk, borders_of(&disk).await[COMMITS / 3], &Options::default()).expect("it is cut");
        let store = open_store(&disk, 1);
        fill(&store, 200..240).await;
        back_up(&store, into_folder(&kept)).expect("it is taken again");
        let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("it is declared");
        let (disk, made) =
            restored(&folder(&kept), &Restore::default(), &options(4)).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(made.logs[0].incarnation, 2);
        assert_eq!(events(&disk, DEFAULT_TENANT, DEFAULT_SCOPE).await, read_all(&log).await.expect("it is read"));
    });
}

#[test]
fn a_later_backup_may_end_at_any_operation_and_the_earlier_one_stays_good() {
    block_on(async {
        let store = open_store(&filled(COMMITS / 2, true).await, 1);
        let kept = FaultyDisk::new(3);
        let (first, _) = back_up(&store, into_folder(&kept)).expect("it is taken");
        fill(&store, 100..110).await;
        for operation in 0..400 {
            let disk = kept.after_power_loss();
            disk.plan(operation, Fault::End);
            let second = back_up(&store, Receiver::into_folder(disk.clone()).expect("the earlier one is whole"));
            let next = if operation % 2 == 0 { disk.after_kill() } else { disk.after_power_loss() };
            let (_, made) = restored(&folder(&next), &Restore::default(), &options(4))
                .unwrap_or_else(|error| panic!("ended at operation {operation}: {error}"));
            let now = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("it is declared").head().await.expect("a head");
            let heads = [first.tenants[0].logs[0].head, now];
            assert!(heads.contains(&made.logs[0].head), "ended at operation {operation}: {made:?}");
            if second.is_ok() {
                assert_eq!(made.logs[0].head, now);
                assert!(operation > 20, "it has more than {operation} operations");
                return;
            }
        }
        panic!("a backup has more than 400 operations");
    });
}

#[test]
fn a_first_backup_may_end_at_any_operation_and_the_next_one_takes_its_folder() {
    let store = block_on(async { open_store(&filled(COMMITS / 6, true).await, 1) });
    for operation in 0..400 {
        let disk = FaultyDisk::new(operation);
        disk.plan(operation, Fault::End);
        let first = Receiver::into_folder(disk.clone()).and_then(|receiver| back_up(&store, receiver));
        let next = if operation % 2 == 0 { disk.after_kill() } else { disk.after_power_loss() };
        let again = Receiver::into_folder(next.clone()).and_then(|receiver| back_up(&store, receiver));
        let (manifest, _) = again.unwrap_or_else(|error| panic!("ended at operation {operation}: {error}"));
        let (_, made) = restored(&folder(&next), &Restore::default(), &options(4))
            .unwrap_or_else(|error| panic!("ended at operation {operation}: {error}"));
        assert_eq!(made.logs[0].head, manifest.tenants[0].logs[0].head);
        if first.is_ok() {
            assert!(operation > 20, "it has more than {operation} operations");
            return;
        }
    }
    panic!("a backup has more than 400 operations");
}

#[test]
fn what_interrupted_backups_left_is_removed_if_only_a_backup_makes_it_and_named_otherwise() {
    block_on(async {
        let store = open_store(&filled(COMMITS / 6, true).await, 1);
        let kept = FaultyDisk::new(3);
        back_up(&store, into_folder(&kept)).expect("it is taken");
        let unfinished = [
            "tenants/default/_engine/map-0a1b-7.entries.unfinished",
            "tenants/default/default/0000000009-0-4711-packed.index.unfinished",
            "tenants/default/default/0000000009-0-4711.segment.unfinished",
            "tenants/default/tenant-7.json.unfinished",
        ];
        let others = [
            "tenants/default/default/0000000009-0-4711.segment",
            "tenants/default/default/9-0-4711.segment.unfinished",
            "tenants/default/default/notes.unfinished",
        ];
        for path in unfinished.iter().chain(&others) {
            kept.open(path, Open::Create).and_then(|file| file.write_at(b"part", 0)).expect("written");
        }
        let mut to = into_folder(&kept);
        let mut backup = store.backup(to.earlier()).expect("it begins");
        while let Some(piece) = backup.next().expect("it is read") {
            to.push(&piece).expect("it is kept");
        }
        let (manifest, left) = to.finish_and_clear().expect("it is whole");
        assert_eq!(
            (&left.removed[..], &left.unnamed[..]),
            (&unfinished.map(str::to_owned)[..], &others.map(str::to_owned)[..])
        );
        assert_eq!(kept.files().len(), manifest.files().count() + 1 + others.len());
        restored(&folder(&kept), &Restore::default(), &options(4)).unwrap_or_else(|error| panic!("{error}"));
    });
}

#[test]
fn a_folder_takes_one_backup_at_a_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let into = || Receiver::into_folder(Arc::new(RealDisk::for_backup(folder.path())));
    let first = into().expect("it is empty");
    assert_eq!(into().err().map(|error| error.code), Some(Code::StoreLocked));
    drop(first);
    into().expect("it is free again");
}

#[track_caller]
fn refused_by_name(backup: &Arc<FaultyDisk>, name: &str) {
    let disk = FaultyDisk::new(2);
    let target: Arc<dyn Disk> = disk.clone();
    let refused = restore(&folder(backup), &target, &Restore::default(), &options(4), &mut |_, _| {});
    let error = refused.map(|_| ()).expect_err(name);
    assert_eq!(error.code, Code::InvalidBackup, "{error}");
    assert!(error.message.contains(name), "{name} is not named: {error}");
    assert_eq!(disk.files(), [], "nothing is left of it");
}

#[test]
fn a_backup_that_was_altered_cut_or_lost_a_file_is_refused_by_name() {
    let (backup, _) = sample();
    for (name, bytes) in backup.files() {
        let at = bytes.len() / 2;
        let altered = disk_with(&backup.files());
        altered.damage(&name, |bytes| bytes[at] ^= 1);
        refused_by_name(&altered, &name);
        let cut = disk_with(&backup.files());
        cut.damage(&name, |bytes| bytes.truncate(at));
        refused_by_name(&cut, &name);
        let lost = disk_with(&backup.files());
        lost.remove(&name).expect("it is there");
        refused_by_name(&lost, &name);
    }
}

#[test]
fn an_archive_that_was_cut_or_altered_is_refused_or_is_the_same() {
    let store = block_on(async { open_store(&filled(20, true).await, 1) });
    let kept = FaultyDisk::new(3);
    let to_file = Receiver::into_file(kept.clone(), ARCHIVE).expect("it is new");
    let (manifest, _) = back_up(&store, to_file).expect("it is taken");
    assert_eq!(Receiver::into_file(kept.clone(), ARCHIVE).err().map(|error| error.code), Some(Code::FolderNotEmpty));
    let bytes = kept.files()[0].1.clone();
    let restore_of = |bytes: Vec<u8>| {
        let source = Source::File(disk_with(&[(ARCHIVE.to_owned(), bytes)]), ARCHIVE.to_owned());
        restored(&source, &Restore::default(), &options(4)).map(|(_, made)| made.logs)
    };
    for length in (0..bytes.len()).step_by(1_009).chain([bytes.len() - 512, bytes.len() - 1_024]) {
        let done = restore_of(bytes[..length].to_vec());
        // The last block of zeros adds nothing.
        let whole = length >= bytes.len() - 512;
        assert_eq!(done.is_ok(), whole, "cut to {length} of {}", bytes.len());
        assert!(whole || done.is_err_and(|error| error.code == Code::InvalidBackup));
    }
    for at in (0..bytes.len()).step_by(397) {
        let mut altered = bytes.clone();
        altered[at] ^= 1;
        match restore_of(altered) {
            Err(error) => assert!([Code::InvalidBackup, Code::NewerFormat].contains(&error.code), "{at}: {error}"),
            Ok(logs) => assert_eq!(logs[0].events_hash, manifest.tenants[0].logs[0].events_hash, "byte {at}"),
        }
    }
}

#[test]
fn a_backup_of_a_newer_version_and_a_folder_that_is_not_empty_are_refused() {
    let (backup, _) = sample();
    let newer = disk_with(&backup.files());
    newer.damage("manifest.json", |bytes| *bytes = b"{\"format\":999,\"content\":{\"new\":1},\"crc32c\":1}".to_vec());
    let error = restored(&folder(&newer), &Restore::default(), &options(4)).err().expect("it is newer");
    assert_eq!(error.code, Code::NewerFormat);
    for name in ["notes.txt", "store.json", "tenants/x"] {
        let files = [(name.to_owned(), b"precious".to_vec())];
        let disk = disk_with(&files);
        let target: Arc<dyn Disk> = disk.clone();
        let refused = restore(&folder(&backup), &target, &Restore::default(), &options(4), &mut |_, _| {});
        assert_eq!(refused.map(|_| ()).expect_err("it is not empty").code, Code::FolderNotEmpty);
        assert_eq!(disk.files(), files);
        if name != "tenants/x" {
            assert_eq!(Receiver::into_folder(disk).err().map(|error| error.code), Some(Code::FolderNotEmpty));
        }
    }
    let nothing = restored(&folder(&FaultyDisk::new(1)), &Restore::default(), &options(4)).err().expect("it is empty");
    assert_eq!(nothing.code, Code::InvalidBackup);
}

/// A restore that fails or is ended leaves no store behind; one that ends well leaves a whole one, also without power.
#[test]
fn a_restore_may_end_or_fail_at_any_operation_and_leaves_no_part_that_looks_whole() {
    let (backup, manifest) = sample();
    for (operation, fault) in (0..1_000).flat_map(|operation| [(operation, Fault::End), (operation, Fault::Error)]) {
        let disk = FaultyDisk::new(operation);
        disk.plan(operation, fault);
        let target: Arc<dyn Disk> = disk.clone();
        let made = restore(&folder(&backup), &target, &Restore::default(), &options(4), &mut |_, _| {});
        let next = if operation % 3 == 0 { disk.after_kill() } else { disk.after_power_loss() };
        let what = format!("{fault:?} at operation {operation}, {:?}", made.as_ref().err());
        match EmbeddedStore::open(next.clone(), options(5)) {
            Ok(store) => block_on(async {
                let fresh = next.files().iter().all(|(path, _)| !path.starts_with("cut/"));
                let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("it is declared");
                let head = log.head().await.expect("a head");
                // An empty folder opens as a new store.
                let whole = head == manifest.tenants[0].logs[0].head || (made.is_err() && head == 0);
                assert!(whole && fresh, "{what}: a store of {head} events");
                assert_eq!(store.status()[0].refusing, None, "{what}");
            }),
            Err(error) => {
                assert!(made.is_err(), "{what}: {error}");
                assert_eq!(error.code, Code::NotAStore, "{what}: {error}");
                // Power may fail while what was written is removed again.
                let explained = error.message.contains("interrupted") || fault == Fault::Error;
                assert!(explained, "{what}: {error}");
                let target: Arc<dyn Disk> = next;
                let again = restore(&folder(&backup), &target, &Restore::default(), &options(4), &mut |_, _| {});
                assert_eq!(again.map(|_| ()).expect_err("it is not empty").code, Code::FolderNotEmpty, "{what}");
            }
        }
        if made.is_ok() && fault == Fault::Error {
            assert!(operation > 50, "it has more than {operation} operations");
            return;
        }
    }
    panic!("a restore has more than 1,000 operations");
}

#[test]
fn a_full_disk_ends_a_backup_and_a_restore_with_a_clear_error() {
    let (backup, _) = sample();
    let disk = FaultyDisk::new(1);
    disk.set_room(Some(10_000));
    let target: Arc<dyn Disk> = disk.clone();
    let error = restore(&folder(&backup), &target, &Restore::default(), &options(4), &mut |_, _| {}).map(|_| ());
    assert_eq!(error.expect_err("there is no room").code, Code::DiskFull);
    let store = block_on(async { open_store(&filled(COMMITS, true).await, 1) });
    let error = back_up(&store, into_folder(&disk)).map(|_| ()).expect_err("there is no room");
    assert_eq!(error.code, Code::DiskFull);
}

#[test]
fn a_damaged_log_is_not_backed_up() {
    block_on(async {
        let disk = filled(COMMITS, true).await;
        let path = "tenants/other/partner/0000000002.segment";
        let store = open_store(&disk, 1);
        disk.damage(path, |bytes| {
            let start = frames(bytes)[0];
            bytes[start + 50] ^= 1;
        });
        let error = back_up(&store, into_folder(&FaultyDisk::new(1))).map(|_| ()).expect_err("it is damaged");
        assert_eq!(error.code, Code::StoreDamaged);
        assert!(error.message.contains(path), "{error}");
        assert!(matches!(store.backup(None), Ok(_) | Err(StoreError::Damaged(_))));
    });
}

#[test]
fn names_as_long_as_they_may_be_come_through_an_archive() {
    block_on(async {
        let (tenant, scope) = ("t".repeat(100), "s".repeat(100));
        let long = Options { tenants: vec![tenant.clone()], scopes: vec![scope.clone()], ..options(1) };
        let store = EmbeddedStore::open(Arc::new(MemoryDisk::default()), long.clone()).expect("it opens");
        let log = store.log(&tenant, &scope).expect("it is declared");
        for n in 0..20 {
            log.commit(commit(n)).await.expect("it is accepted");
        }
        let kept = FaultyDisk::new(1);
        back_up(&store, Receiver::into_file(kept.clone(), ARCHIVE).expect("it is new")).expect("it is taken");
        let source = Source::File(kept, ARCHIVE.to_owned());
        let (disk, _) = restored(&source, &Restore::default(), &long).unwrap_or_else(|error| panic!("{error}"));
        let again = EmbeddedStore::open(disk, long).expect("it opens");
        let restored = again.log(&tenant, &scope).expect("it is declared");
        assert_eq!(read_all(&restored).await.expect("it is read"), read_all(&log).await.expect("it is read"));
    });
}
