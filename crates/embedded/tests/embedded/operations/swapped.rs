//! Files of another store, and older copies of its own, in the place of each file that a store reads when it is opened. Those of maps are
//! in `generations.rs`, and segments of other stores in `lost.rs`.

use std::sync::Arc;

use annals_core::{Code, DEFAULT_SCOPE, DEFAULT_TENANT, EventsHash, Store};
use annals_embedded::{EmbeddedStore, Options};

use super::lost::{Files, JOURNAL, LOG, MAP, STORE_FILE, TENANT, checked, file, records_are_refused, status_of};
use super::map_samples::fill_maps;
use super::samples::{commit, disk_with, fill, frames, hash_to, open_store, options};
use crate::faulty_disk::FaultyDisk;
use crate::stores::block_on;

const COMMITS: usize = 40;

/// The files of a store that was closed.
fn closed(seed: u64, commits: usize) -> Files {
    block_on(async {
        let disk = FaultyDisk::new(seed);
        let store = open_store(&disk, seed);
        fill(&store, 0..commits).await;
        fill_maps(&store, 0..20).await;
        store.close().await;
        disk.files()
    })
}

/// These files with one of them as others have it.
fn with(files: &Files, path: &str, others: &Files, theirs: &str) -> Files {
    let mut files = files.clone();
    *file(&mut files, path) = file(&mut others.clone(), theirs).clone();
    files
}

/// The head of the default log and the hash of all that it holds.
async fn content(store: &dyn Store) -> (u64, EventsHash) {
    let head = status_of(store).head;
    let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("it is declared");
    (head, hash_to(&log, head).await)
}

/// Opening finds this damage, as a check does; the log is read as far as it is whole, and takes no commit.
#[track_caller]
fn the_log_takes_no_commit(files: &Files, kind: &str, path: &str, says: &str) {
    let report = checked(files);
    let found = report.damage.iter().find(|it| it.kind == kind && it.file == path);
    assert!(found.is_some(), "{kind} of {path}: {report:#?}");
    block_on(async {
        let store = open_store(&disk_with(files), 2);
        let refusal = status_of(&store).refusing.expect("the log takes no commit").to_string();
        assert!(refusal.contains(path) && refusal.contains(says), "{refusal}");
        let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("it is declared");
        assert_eq!(log.commit(commit(1)).await.expect_err("it is refused").code(), Code::StoreDamaged);
        store.close().await;
    });
}

#[test]
fn a_checkpoint_of_another_store_or_scope_is_damage() {
    let ours = closed(1, COMMITS);
    assert!(checked(&ours).is_sound());
    let checkpoint = format!("{LOG}checkpoint.json");
    // It reaches less far, so its number alone would not tell.
    let others = with(&ours, &checkpoint, &closed(9, 3), &checkpoint);
    // The same number as ours.
    let of_scope = with(&ours, &checkpoint, &ours, "tenants/default/partner/checkpoint.json");
    for files in [others, of_scope] {
        the_log_takes_no_commit(&files, "checkpoint", &checkpoint, "of another store or another scope");
    }
}

/// The files of one store after each of these many closings, with one commit more each time.
fn lives(count: usize) -> Vec<Files> {
    block_on(async {
        let disk = FaultyDisk::new(1);
        let mut all = Vec::new();
        for life in 0..count {
            let store = open_store(&disk, life as u64 + 1);
            fill(&store, life..life + 1).await;
            store.close().await;
            all.push(disk.files());
        }
        all
    })
}

/// It says how far the log reached at least, which stays true.
#[test]
fn an_older_checkpoint_of_its_own_takes_nothing_away() {
    let lives = lives(4);
    let checkpoint = format!("{LOG}checkpoint.json");
    let older = with(&lives[3], &checkpoint, &lives[0], &checkpoint);
    assert_ne!(older, lives[3]);
    assert!(checked(&older).is_sound());
    block_on(async {
        let (ours, same) = (open_store(&disk_with(&lives[3]), 9), open_store(&disk_with(&older), 9));
        assert_eq!(content(&same).await, content(&ours).await);
        assert_eq!(status_of(&same).refusing, None);
        let log = same.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("it is declared");
        log.commit(commit(50)).await.expect("the log goes on");
    });
}

#[test]
fn an_older_copy_of_the_last_segment_of_a_closed_store_is_damage() {
    let lives = lives(12);
    let mut swapped = 0;
    for pair in lives.windows(2) {
        let (before, after) = (&pair[0], &pair[1]);
        let grew = |path: &str, bytes: &[u8]| {
            let older = before.iter().find(|(name, _)| name == path).map_or(0, |(_, older)| frames(older).len());
            older > 0 && older < frames(bytes).len()
        };
        let is_segment = |path: &str| path.starts_with(LOG) && path.ends_with(".segment");
        let last = after.iter().rfind(|(path, bytes)| is_segment(path) && grew(path, bytes));
        let Some((path, _)) = last else { continue };
        // A segment that was closed meanwhile is trusted to its index; what it lacks is found when it is read.
        let index = path.replace(".segment", ".index");
        if after.iter().any(|(name, _)| *name == index) {
            continue;
        }
        let older = with(after, path, before, path);
        let report = checked(&older);
        assert!(report.damage.iter().any(|it| it.kind == "end_missing"), "{path}: {report:#?}");
        block_on(async {
            let store = open_store(&disk_with(&older), 2);
            let refusal = status_of(&store).refusing.expect("the log takes no commit").to_string();
            assert!(refusal.contains("when it was closed"), "{refusal}");
            store.close().await;
        });
        swapped += 1;
    }
    assert!(swapped > 0, "no life ended in the segment in which the one before it ended");
}

/// An index says nothing that its segment does not say.
#[test]
fn an_index_of_another_store_is_made_again_and_that_is_reported() {
    let (ours, theirs) = (closed(1, COMMITS), closed(9, COMMITS));
    let is_index = |path: &str| path.starts_with(LOG) && path.ends_with(".index");
    let shared = ours.iter().find(|(path, _)| is_index(path) && theirs.iter().any(|(name, _)| name == path));
    let path = shared.expect("both have closed segments").0.clone();
    let files = with(&ours, &path, &theirs, &path);
    block_on(async {
        let due = content(&open_store(&disk_with(&ours), 3)).await;
        let disk = disk_with(&files);
        let store = open_store(&disk, 2);
        assert_eq!(content(&store).await, due);
        let status = status_of(&store);
        let told = status.recovery.iter().filter(|line| line.contains(&path) && line.contains("rebuilt")).count();
        assert_eq!((told, status.refusing), (1, None), "{:?}", status.recovery);
        store.close().await;
        drop(store);
        let again = open_store(&disk, 3);
        assert!(status_of(&again).recovery.is_empty(), "{:?}", status_of(&again).recovery);
        assert_eq!(content(&again).await, due);
    });
}

#[test]
fn a_tenant_file_of_another_store_or_tenant_is_damage_for_the_log_and_the_records() {
    let ours = closed(1, COMMITS);
    let others = with(&ours, TENANT, &closed(9, COMMITS), TENANT);
    let of_tenant = with(&ours, TENANT, &ours, "tenants/other/tenant.json");
    for files in [others, of_tenant] {
        let report = checked(&files);
        assert!(report.damage.iter().any(|it| it.kind == "segment_foreign"), "{report:#?}");
        let disk = disk_with(&files);
        block_on(async {
            let store = open_store(&disk, 2);
            let status = status_of(&store);
            let refusal = status.refusing.expect("the log is refused").to_string();
            assert!(refusal.contains(LOG) && refusal.contains("of another store or another scope"), "{refusal}");
            let refusal = status.records_refusing.expect("the records are refused").to_string();
            assert!(refusal.contains(MAP) && refusal.contains("of another store or of another tenant"), "{refusal}");
            let of_other = store.log("other", DEFAULT_SCOPE).expect("it is declared");
            of_other.commit(commit(50)).await.expect("the other tenant goes on");
            store.close().await;
        });
        let segments = |files: Files| -> Files {
            files.into_iter().filter(|(path, _)| path.starts_with(LOG) && path.ends_with(".segment")).collect()
        };
        assert!(segments(disk.files()) == segments(ours.clone()), "opening changed what was there");
    }
}

/// It holds nothing but names: what they name must be there.
#[test]
fn a_store_file_of_another_store_makes_tenants_missing_and_loses_none() {
    let ours = closed(1, COMMITS);
    let elsewhere = || Options { tenants: vec!["third".to_owned()], ..options(9) };
    let theirs = block_on(async {
        let disk = FaultyDisk::new(9);
        let store = EmbeddedStore::open(disk.clone(), elsewhere()).expect("it opens");
        store.close().await;
        disk.files()
    });
    let files = with(&ours, STORE_FILE, &theirs, STORE_FILE);
    let report = checked(&files);
    let missing: Vec<_> = report.damage.iter().map(|it| (it.kind, it.tenant.as_deref())).collect();
    assert_eq!(missing, [("tenant", Some("third"))], "{report:#?}");
    let error = EmbeddedStore::open(disk_with(&files), elsewhere()).err().expect("it is refused");
    assert!(error.code == Code::StoreDamaged && error.message.contains("tenants/third is missing"), "{error}");
    block_on(async {
        let due = content(&open_store(&disk_with(&ours), 3)).await;
        let disk = disk_with(&files);
        assert_eq!(content(&open_store(&disk, 2)).await, due);
        // The tenants that are there are named again.
        let without: Files = disk.files().into_iter().filter(|(path, _)| !path.starts_with("tenants/other/")).collect();
        let error = EmbeddedStore::open(disk_with(&without), options(4)).err().expect("it is refused");
        assert!(error.message.contains("tenants/other is missing"), "{error}");
    });
}

#[test]
fn a_journal_of_an_earlier_life_is_damage() {
    let killed = |disk: &Arc<FaultyDisk>, seed: u64, from: i32| {
        block_on(async {
            let store = open_store(disk, seed);
            fill_maps(&store, from..from + 30).await;
            disk.after_kill()
        })
    };
    let first = killed(&FaultyDisk::new(1), 1, 0);
    let earlier = first.files();
    let later = killed(&first, 2, 30).files();
    assert!(checked(&later).is_sound());
    let swapped = with(&later, JOURNAL[0], &earlier, JOURNAL[0]);
    records_are_refused("an earlier life's", &swapped, JOURNAL[0], "another journal");
}
