//! What cannot be opened or written says so with its own code and a sentence that helps, and loses nothing.

use std::io;
use std::sync::Arc;

use annals_conformance::history::read_all;
use annals_core::bson::rawdoc;
use annals_core::{Code, Collection, Condition, Data, EventLog, NewCommit, NewEvent, OpenError, RecordChange, Store};
use annals_embedded::disk::{Disk, DiskFile, MemoryDisk, Open, RealDisk};
use annals_embedded::{EmbeddedStore, FORMAT, Options};

use crate::faulty_disk::FaultyDisk;
use crate::stores::{block_on, open, repeatable, tiny_segments};

fn refusal(disk: Arc<dyn Disk>, options: Options) -> OpenError {
    let Err(error) = EmbeddedStore::open(disk, options) else { panic!("it must not open") };
    assert!(error.message.len() > 30, "{:?} is no sentence that helps", error.message);
    error
}

fn commit(n: usize) -> NewCommit {
    let data = Data::from_value(&serde_json::json!({ "n": n, "text": "x".repeat(100) })).expect("an object");
    NewCommit::new("order", format!("{}", n % 3)).event(NewEvent::new("placed", data)).request_id(format!("r-{n}"))
}

async fn commit_some(log: &Arc<dyn EventLog>, count: usize) {
    for n in 0..count {
        log.commit(commit(n)).await.expect("it is accepted");
    }
}

fn write_file(disk: &dyn Disk, path: &str, bytes: &[u8]) {
    let file = disk.open(path, Open::Write).or_else(|_| disk.open(path, Open::Create)).expect("it opens");
    file.truncate(0).expect("it is cut");
    file.write_at(bytes, 0).expect("it is written");
}

#[test]
fn a_store_that_is_open_is_locked_until_it_is_closed_or_dropped() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let disks: [Box<dyn Fn() -> Arc<dyn Disk>>; 2] = [
        Box::new({
            let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
            move || disk.clone()
        }),
        Box::new({
            let path = folder.path().to_owned();
            move || Arc::new(RealDisk::new(&path))
        }),
    ];
    for disk in disks {
        let first = open(disk(), tiny_segments()).expect("it opens");
        assert_eq!(refusal(disk(), tiny_segments()).code, Code::StoreLocked);
        block_on(first.store.close());
        let second = open(disk(), tiny_segments()).expect("it opens once the first is closed, though handles are left");
        assert_eq!(refusal(disk(), tiny_segments()).code, Code::StoreLocked);
        drop(second);
        open(disk(), tiny_segments()).expect("it opens once the second is dropped");
    }
}

#[test]
fn a_newer_format_is_refused_and_left_alone() {
    let disk = FaultyDisk::new(1);
    let opened = open(disk.clone(), tiny_segments()).expect("it opens");
    block_on(async {
        commit_some(&opened.log, 20).await;
        opened.store.close().await;
    });
    drop(opened);
    let segment = disk.files().into_iter().map(|(path, _)| path).filter(|path| path.ends_with(".segment")).min();
    let segment = segment.expect("there is a segment");
    for path in ["store.json", "tenants/default/tenant.json", &*segment] {
        let kept = disk.files();
        disk.damage(path, |bytes| {
            if path.ends_with(".json") {
                let newer = format!("\"format\":{}", FORMAT + 1);
                let text = String::from_utf8(bytes.clone()).expect("it is text");
                *bytes = text.replace(&format!("\"format\":{FORMAT}"), &newer).into_bytes();
            } else {
                // The next format is that of packed segments.
                bytes[8..12].copy_from_slice(&(FORMAT + 2).to_le_bytes());
                let crc = crc32c::crc32c(&bytes[..60]);
                bytes[60..64].copy_from_slice(&crc.to_le_bytes());
            }
        });
        let changed = disk.files();
        assert_ne!(changed, kept, "{path} is changed");
        // What is read only when there is no index for it must be looked at then.
        if path == segment {
            disk.remove(&segment.replace(".segment", ".index")).expect("there is an index");
        }
        assert_eq!(refusal(disk.clone(), tiny_segments()).code, Code::NewerFormat, "{path}");
        for (path, bytes) in changed {
            if disk.files().iter().any(|(name, _)| *name == path) {
                assert!(disk.files().contains(&(path, bytes)), "nothing was changed");
            }
        }
        let original = kept.iter().find(|(name, _)| name == path).expect("it was there");
        disk.damage(path, |bytes| bytes.clone_from(&original.1));
    }
    let opened = open(disk, tiny_segments()).expect("with the old format it opens");
    assert_eq!(block_on(read_all(&opened.log)).expect("the log is read").len(), 20);
}

#[test]
fn a_folder_of_something_else_is_not_taken_over() {
    let disk = MemoryDisk::default();
    write_file(&disk, "notes.txt", b"mine");
    let disk: Arc<dyn Disk> = Arc::new(disk);
    assert_eq!(refusal(disk.clone(), tiny_segments()).code, Code::NotAStore);
    assert_eq!(disk.list("").expect("it is listed"), ["notes.txt"]);
    let folder = tempfile::tempdir().expect("a folder can be made");
    let file = folder.path().join("file");
    std::fs::write(&file, "mine").expect("it is written");
    assert_eq!(refusal(Arc::new(RealDisk::new(&file)), tiny_segments()).code, Code::NotAStore);
    assert_eq!(std::fs::read(&file).expect("it is there"), b"mine");
}

#[test]
fn tenants_that_cannot_be_are_refused() {
    for name in ["", "a/b", "..", "-a", "ü", &"n".repeat(101)] {
        let options = Options { tenants: vec![name.to_owned()], ..tiny_segments() };
        assert_eq!(refusal(Arc::new(MemoryDisk::default()), options).code, Code::InvalidConfig, "{name:?}");
    }
    let options = Options { tenants: Vec::new(), ..tiny_segments() };
    assert_eq!(refusal(Arc::new(MemoryDisk::default()), options).code, Code::InvalidConfig);
}

/// A disk that may be read only.
struct ReadOnly(Arc<dyn Disk>);

fn denied<T>() -> io::Result<T> {
    Err(io::ErrorKind::PermissionDenied.into())
}

impl Disk for ReadOnly {
    fn create_dir(&self, dir: &str) -> io::Result<()> {
        // As with a real folder: what is there need not be made.
        if self.0.list(dir)?.is_empty() { denied() } else { Ok(()) }
    }
    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.0.list(dir)
    }
    fn open(&self, path: &str, open: Open) -> io::Result<Arc<dyn DiskFile>> {
        if open == Open::Read { self.0.open(path, open) } else { denied() }
    }
    fn rename(&self, _: &str, _: &str) -> io::Result<()> {
        denied()
    }
    fn remove(&self, _: &str) -> io::Result<()> {
        denied()
    }
    fn sync_dir(&self, _: &str) -> io::Result<()> {
        denied()
    }
    fn lock(&self) -> io::Result<Box<dyn Send + Sync>> {
        denied()
    }
    fn lock_to_read(&self) -> io::Result<Box<dyn Send + Sync>> {
        Ok(Box::new(()))
    }
}

#[test]
fn a_folder_that_may_not_be_written_is_refused_and_left_alone() {
    assert_eq!(refusal(Arc::new(ReadOnly(FaultyDisk::new(1))), tiny_segments()).code, Code::StoreReadOnly);
    let disk = FaultyDisk::new(1);
    let opened = open(disk.clone(), tiny_segments()).expect("it opens");
    block_on(commit_some(&opened.log, 20));
    drop(opened);
    let kept = disk.files();
    assert_eq!(refusal(Arc::new(ReadOnly(disk.clone())), tiny_segments()).code, Code::StoreReadOnly);
    assert_eq!(disk.files(), kept);
    let opened = open(disk, tiny_segments()).expect("with the right to write it opens");
    assert_eq!(block_on(read_all(&opened.log)).expect("the log is read").len(), 20);
}

#[test]
fn a_folder_that_may_not_be_written_is_read_whatever_state_a_killed_process_left_it_in() {
    block_on(async {
        for seed in 0..40 {
            let disk = FaultyDisk::new(seed);
            let opened = open(disk.clone(), repeatable(seed)).expect("it opens");
            commit_some(&opened.log, 10 + seed as usize).await;
            let records = opened.store.records("default").expect("the tenant");
            records.declare(Collection::new("things")).await.expect("declared");
            for n in 0..seed as i32 {
                let change = RecordChange::insert("things", rawdoc! { "_id": n });
                records.write(vec![change]).await.expect("written");
            }
            let disk = disk.after_power_loss();
            drop((opened, records));
            let kept = disk.files();
            let read_only = Arc::new(ReadOnly(disk.clone()));
            let store = EmbeddedStore::open_to_read(read_only, repeatable(seed), "it may not").expect("it opens");
            let log = store.log("default", "default").expect("the log");
            assert_eq!(read_all(&log).await.expect("the log is read").len(), 10 + seed as usize);
            let records = store.records("default").expect("the tenant");
            if seed > 0 {
                let counted = records.count("things", &Condition::All).await.expect("counted");
                assert_eq!(counted, seed);
            }
            assert_eq!(log.commit(commit(0)).await.expect_err("read-only").code(), Code::StoreReadOnly);
            let put = vec![RecordChange::insert("things", rawdoc! { "_id": -1 })];
            assert_eq!(records.write(put).await.expect_err("read-only").code(), Code::StoreReadOnly);
            let mut backup = store.backup(None).expect("a backup begins");
            while backup.next().expect("it is read").is_some() {}
            store.close().await;
            assert_eq!(disk.files(), kept, "nothing was written");
        }
    });
}

#[test]
fn where_no_store_is_none_is_made_to_be_read() {
    let nothing = Arc::new(ReadOnly(FaultyDisk::new(1)));
    let Err(error) = EmbeddedStore::open_to_read(nothing, tiny_segments(), "it may not") else { panic!("it opens") };
    assert_eq!(error.code, Code::NotAStore);
}

/// A full disk refuses commits with `disk_full`, each at once; reads go on; with room again commits go on; nothing is lost, before and
/// after power loss.
#[test]
fn a_full_disk_refuses_commits_until_there_is_room() {
    block_on(async {
        for seed in 0..20 {
            let disk = FaultyDisk::new(seed);
            let opened = open(disk.clone(), repeatable(seed)).expect("it opens");
            disk.set_room(Some(disk.used() + seed * 700));
            let (mut accepted, mut refused) = (Vec::new(), 0);
            for n in 0..200 {
                match opened.log.commit(commit(n)).await {
                    Ok(_) => accepted.push(n),
                    Err(error) => {
                        assert_eq!(error.code(), Code::DiskFull, "{error}");
                        assert_eq!(read_all(&opened.log).await.expect("reads go on").len(), accepted.len());
                        refused += 1;
                    }
                }
                if refused == 5 {
                    disk.set_room(None);
                }
            }
            assert_eq!((refused, accepted.len()), (5, 195), "with room again every commit is taken");
            let disk = disk.after_power_loss();
            drop(opened);
            let opened = open(disk.clone(), repeatable(seed)).expect("it opens");
            assert_eq!(read_all(&opened.log).await.expect("the log is read").len(), 195);
            for n in accepted {
                assert!(opened.log.commit(commit(n)).await.expect("it is a repeat").duplicate);
            }
        }
    });
}

#[test]
fn a_full_disk_has_no_room_for_a_new_store_but_opens_an_old_one() {
    block_on(async {
        let disk = FaultyDisk::new(1);
        disk.set_room(Some(10));
        assert_eq!(refusal(disk.clone(), tiny_segments()).code, Code::DiskFull);
        disk.set_room(None);
        let opened = open(disk.clone(), tiny_segments()).expect("with room it opens");
        commit_some(&opened.log, 50).await;
        let disk = disk.after_kill();
        drop(opened);
        disk.set_room(Some(disk.used()));
        let opened = open(disk.clone(), tiny_segments()).expect("it opens without room");
        assert_eq!(read_all(&opened.log).await.expect("the log is read").len(), 50);
        let mut n = 50;
        while opened.log.commit(commit(n)).await.is_ok() {
            n += 1;
            assert!(n < 1_000, "the disk is full some time");
        }
        disk.set_room(None);
        opened.log.commit(commit(n)).await.expect("with room commits go on");
    });
}

#[test]
fn a_clock_past_the_year_9999_makes_times_that_can_be_read() {
    block_on(async {
        let clock = annals_conformance::ManualClock::at(annals_core::Timestamp::from_millis(i64::MAX - 1));
        let options = Options { clock: Arc::new(clock), ..tiny_segments() };
        let opened = open(FaultyDisk::new(1), options).expect("it opens");
        commit_some(&opened.log, 3).await;
        for event in read_all(&opened.log).await.expect("the log is read") {
            assert_eq!(event.time, annals_core::Timestamp::LAST_WRITABLE);
        }
        let records = opened.store.records("default").expect("the tenant");
        records.declare(Collection::new("things")).await.expect("declared");
        records.write(vec![RecordChange::insert("things", rawdoc! { "_id": 1 })]).await.expect("written");
        assert_eq!(records.count("things", &Condition::All).await.expect("counted"), 1);
    });
}

/// A store on the disk of this machine that holds these many commits and was closed.
fn closed_in(folder: &std::path::Path, commits: usize) {
    let opened = open(Arc::new(RealDisk::new(folder)), tiny_segments()).expect("it opens");
    block_on(async {
        commit_some(&opened.log, commits).await;
        opened.store.close().await;
    });
}

#[test]
fn an_identity_whose_link_leads_nowhere_is_not_replaced_by_a_new_one() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let store = folder.path().join("store");
    closed_in(&store, 20);
    for name in ["store.json", "tenants/default/tenant.json"] {
        let (place, elsewhere) = (store.join(name), folder.path().join("elsewhere"));
        std::fs::rename(&place, folder.path().join("away")).expect("it is moved");
        std::os::unix::fs::symlink(&elsewhere, &place).expect("it is linked");
        let refused = refusal(Arc::new(RealDisk::new(&store)), tiny_segments());
        assert_eq!(refused.code, Code::ReadFailed, "{refused}");
        assert!(refused.message.contains(name), "{refused}");
        std::fs::rename(folder.path().join("away"), &elsewhere).expect("it is back");
        let opened = open(Arc::new(RealDisk::new(&store)), tiny_segments()).expect("it opens");
        assert_eq!(opened.status().refusing, None);
        assert_eq!(block_on(read_all(&opened.log)).expect("the log is read").len(), 20);
        block_on(opened.store.close());
        std::fs::remove_file(&elsewhere).expect("the store has a file of its own again");
    }
}

/// Such a file may be the result of a copy that failed; it has no bytes on the disk, and must not be given memory either.
#[test]
fn an_identity_of_enormous_length_is_damage() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    closed_in(folder.path(), 3);
    let path = folder.path().join("tenants/default/tenant.json");
    let kept = std::fs::read(&path).expect("it is there");
    std::fs::OpenOptions::new().write(true).open(&path).expect("it opens").set_len(1 << 40).expect("it grows");
    let refused = refusal(Arc::new(RealDisk::new(folder.path())), tiny_segments());
    assert_eq!(refused.code, Code::StoreDamaged, "{refused}");
    std::fs::write(&path, kept).expect("it is restored");
    open(Arc::new(RealDisk::new(folder.path())), tiny_segments()).expect("it opens");
}
