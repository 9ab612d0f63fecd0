//! One process has a store: what happens when its lock, or its whole folder, is taken away beneath it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use annals_conformance::history::read_all;
use annals_core::bson::rawdoc;
use annals_core::{Code, Collection, Condition, Data, EventLog, NewCommit, NewEvent, RecordChange, Records, Store};
use annals_embedded::disk::RealDisk;
use annals_embedded::operations::check;

use crate::stores::{Opened, block_on, open, roomy_segments, tiny_segments};

fn commit(n: usize) -> NewCommit {
    let data = Data::from_value(&serde_json::json!({ "n": n, "text": "x".repeat(100) })).expect("an object");
    NewCommit::new("order", format!("o-{}", n % 7)).event(NewEvent::new("placed", data))
}

async fn commit_some(log: &Arc<dyn EventLog>, count: usize) {
    for n in 0..count {
        log.commit(commit(n)).await.expect("it is committed");
    }
}

fn open_at(folder: &Path) -> Result<Opened, Code> {
    open(Arc::new(RealDisk::new(folder)), tiny_segments()).map_err(|error| error.code)
}

fn records(opened: &Opened) -> Arc<dyn Records> {
    opened.store.records("default").expect("the tenant")
}

async fn insert(records: &dyn Records, id: i32) -> Result<(), Code> {
    records
        .write(vec![RecordChange::insert("things", rawdoc! { "_id": id })])
        .await
        .map(drop)
        .map_err(|error| error.code())
}

/// The names and the bytes of all files below a folder.
fn contents(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
        if entry.is_dir() {
            found.extend(contents(&entry));
        } else {
            found.push((entry.display().to_string(), fs::read(&entry).expect("a file")));
        }
    }
    found.sort();
    found
}

#[test]
fn without_its_lock_file_a_store_takes_no_commits_and_nobody_else_gets_in() {
    block_on(async {
        let folder = tempfile::tempdir().expect("a folder");
        let first = open_at(folder.path()).expect("it opens");
        commit_some(&first.log, 10).await;
        fs::remove_file(folder.path().join("lock")).expect("removed");
        assert_eq!(open_at(folder.path()).err(), Some(Code::StoreLocked), "the folder itself is locked");
        let refused = first.log.commit(commit(10)).await.expect_err("its lock is gone");
        assert_eq!(refused.code(), Code::StoreFailed, "{refused}");
        assert!(refused.to_string().contains("another process"), "{refused}");
        assert!(first.status().refusing.is_some());
        assert_eq!(read_all(&first.log).await.expect("the log can still be read").len(), 10);
        drop(first);
        let again = open_at(folder.path()).expect("it opens");
        let kept = read_all(&again.log).await.expect("it is read").len();
        assert!(kept >= 10, "{kept} of 10 acknowledged commits");
    });
}

#[test]
fn without_its_lock_file_a_store_takes_no_records() {
    block_on(async {
        let folder = tempfile::tempdir().expect("a folder");
        let first = open_at(folder.path()).expect("it opens");
        let records = records(&first);
        records.declare(Collection::new("things")).await.expect("declared");
        insert(&*records, 1).await.expect("inserted");
        fs::remove_file(folder.path().join("lock")).expect("removed");
        assert_eq!(insert(&*records, 2).await, Err(Code::StoreFailed));
    });
}

/// Files of a folder with this ending.
fn files_of(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let found: Vec<_> = contents(folder).into_iter().map(|(path, _)| PathBuf::from(path)).collect();
    let found: Vec<_> = found.into_iter().filter(|path| path.to_string_lossy().ends_with(ending)).collect();
    assert!(!found.is_empty(), "no {ending}");
    found
}

/// As a tool does that restores or mirrors a folder without looking whether it is in use.
fn replace_by_a_copy(path: &Path) {
    let copy = path.with_extension("copy");
    fs::copy(path, &copy).expect("copied");
    fs::rename(&copy, path).expect("replaced");
}

#[test]
fn a_commit_to_a_segment_that_was_removed_replaced_or_moved_is_not_acknowledged() {
    for change in ["removed", "moved", "replaced", "moved and copied back"] {
        block_on(async {
            let (folder, away) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
            let open_here = || open(Arc::new(RealDisk::new(folder.path())), roomy_segments());
            let first = open_here().expect("it opens");
            commit_some(&first.log, 10).await;
            for (n, path) in files_of(folder.path(), ".segment").iter().enumerate() {
                let there = away.path().join(n.to_string());
                match change {
                    "removed" => fs::remove_file(path).expect("removed"),
                    "replaced" => replace_by_a_copy(path),
                    _ => fs::rename(path, &there).expect("moved"),
                }
                if change == "moved and copied back" {
                    fs::copy(&there, path).expect("copied");
                }
            }
            let refused = first.log.commit(commit(10)).await.expect_err("nobody would find it again");
            assert_eq!(refused.code(), Code::StoreFailed, "{change}: {refused}");
            assert!(refused.to_string().contains("was removed or replaced"), "{change}: {refused}");
            assert_eq!(read_all(&first.log).await.expect("the log can still be read").len(), 10);
            drop(first);
            let again = open_here().expect("it opens");
            match change {
                "removed" | "moved" => assert!(again.status().refusing.is_some(), "what is missing is damage"),
                _ => assert_eq!(read_all(&again.log).await.expect("it is read").len(), 10, "{change}"),
            }
        });
    }
}

#[test]
fn a_change_of_records_in_a_journal_that_was_removed_is_not_acknowledged() {
    block_on(async {
        let folder = tempfile::tempdir().expect("a folder");
        let first = open(Arc::new(RealDisk::new(folder.path())), roomy_segments()).expect("it opens");
        let records = records(&first);
        records.declare(Collection::new("things")).await.expect("declared");
        insert(&*records, 1).await.expect("inserted");
        let mut refused = None;
        // After seconds without a write, which a busy machine may take here, the next one begins another file.
        for id in 2..12 {
            for name in ["journal.0", "journal.1"] {
                let _ = fs::remove_file(folder.path().join("tenants/default/_engine").join(name));
            }
            refused = insert(&*records, id).await.err();
            if refused.is_some() {
                break;
            }
        }
        assert_eq!(refused, Some(Code::StoreFailed));
    });
}

#[test]
fn a_folder_that_was_replaced_is_not_touched_by_the_process_that_had_the_old_one() {
    block_on(async {
        let folder = tempfile::tempdir().expect("a folder");
        let (here, away) = (folder.path().join("data"), folder.path().join("away"));
        let first = open_at(&here).expect("it opens");
        commit_some(&first.log, 10).await;
        let records = records(&first);
        records.declare(Collection::new("things")).await.expect("declared");
        fs::rename(&here, &away).expect("moved");
        let second = open_at(&here).expect("a new store");
        commit_some(&second.log, 3).await;
        drop(second);
        let before = contents(&here);
        // Enough to need new segments, which are made by their names.
        for n in 10..200 {
            assert_eq!(first.log.commit(commit(n)).await.expect_err("its folder is gone").code(), Code::StoreFailed);
        }
        assert_eq!(insert(&*records, 2).await, Err(Code::StoreFailed));
        first.store.close().await;
        drop(first);
        assert!(contents(&here) == before, "the other store is what it was");
    });
}

#[test]
fn folders_that_two_stores_share_by_a_link_are_opened_by_one_of_them() {
    for shared in ["tenants", "tenants/default/default"] {
        block_on(async {
            let folder = tempfile::tempdir().expect("a folder");
            let (here, there) = (folder.path().join("here"), folder.path().join("there"));
            open_at(&there).expect("it opens").store.close().await;
            let first = open_at(&here).expect("it opens");
            commit_some(&first.log, 3).await;
            fs::copy(here.join("tenants/default/tenant.json"), there.join("tenants/default/tenant.json"))
                .expect("copied");
            fs::remove_dir_all(there.join(shared)).expect("removed");
            std::os::unix::fs::symlink(here.join(shared), there.join(shared)).expect("linked");
            assert_eq!(open_at(&there).err(), Some(Code::StoreLocked), "{shared}");
            let checked = check(&RealDisk::new(&there), &mut |_, _| {});
            assert_eq!(checked.err().map(|error| error.code), Some(Code::StoreLocked), "{shared}");
            commit_some(&first.log, 3).await;
            first.store.close().await;
            let second = open_at(&there).expect("it opens once the first is closed");
            assert_eq!(read_all(&second.log).await.expect("it is read").len(), 6, "{shared}");
        });
    }
}

/// As `cp -al` does.
fn link_all(from: &Path, to: &Path) {
    fs::create_dir(to).expect("made");
    for entry in fs::read_dir(from).expect("a folder").map(|entry| entry.expect("an entry")) {
        let there = to.join(entry.file_name());
        if entry.path().is_dir() {
            link_all(&entry.path(), &there);
        } else {
            fs::hard_link(entry.path(), there).expect("linked");
        }
    }
}

/// How many events and records a store has once it is opened again.
async fn kept(folder: &Path) -> (usize, u64) {
    let opened = open_at(folder).expect("it opens again");
    let events = read_all(&opened.log).await.expect("it is read").len();
    let found = records(&opened).count("things", &Condition::All).await.expect("counted");
    opened.store.close().await;
    (events, found)
}

#[test]
fn a_copy_made_of_hard_links_is_a_store_of_its_own() {
    block_on(async {
        let folder = tempfile::tempdir().expect("a folder");
        let (here, there) = (folder.path().join("here"), folder.path().join("there"));
        let first = open_at(&here).expect("it opens");
        commit_some(&first.log, 30).await;
        records(&first).declare(Collection::new("things")).await.expect("declared");
        insert(&*records(&first), 1).await.expect("inserted");
        first.store.close().await;
        drop(first);
        link_all(&here, &there);
        let first = open_at(&here).expect("it opens");
        let second = open_at(&there).expect("it opens beside the other one");
        for n in 0..5 {
            for (opened, first_id) in [(&first, 10), (&second, 100)] {
                opened.log.commit(commit(n)).await.expect("it is committed");
                insert(&*records(opened), first_id + n as i32).await.expect("inserted");
            }
        }
        commit_some(&second.log, 2).await;
        first.store.close().await;
        second.store.close().await;
        drop((first, second));
        assert_eq!((kept(&here).await, kept(&there).await), ((35, 6), (37, 6)));
        // What is written no more is not copied.
        let oldest = fs::metadata(here.join("tenants/default/default/0000000001.segment")).expect("it is there");
        assert_eq!(oldest.nlink(), 2);
    });
}

#[test]
fn a_copy_made_of_the_hard_links_of_an_open_store_takes_nothing_from_it() {
    block_on(async {
        let folder = tempfile::tempdir().expect("a folder");
        let (here, there) = (folder.path().join("here"), folder.path().join("there"));
        let first = open_at(&here).expect("it opens");
        records(&first).declare(Collection::new("things")).await.expect("declared");
        commit_some(&first.log, 10).await;
        link_all(&here, &there);
        assert_eq!(open_at(&there).err(), Some(Code::StoreLocked), "its lock is that of the open store");
        fs::remove_file(there.join("lock")).expect("removed");
        let second = open_at(&there).expect("it opens");
        commit_some(&second.log, 3).await;
        commit_some(&first.log, 5).await;
        insert(&*records(&first), 1).await.expect("inserted");
        second.store.close().await;
        first.store.close().await;
        drop((first, second));
        assert_eq!(kept(&here).await, (15, 1));
        assert_eq!(kept(&there).await.0, 13);
    });
}
