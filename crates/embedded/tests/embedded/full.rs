//! Records, streams and the log on a full disk, and where no more files can be opened: refused with what to do, readable, and taken again.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use annals_conformance::ManualClock;
use annals_conformance::history::read_all;
use annals_conformance::model::EPOCH;
use annals_core::bson::rawdoc;
use annals_core::{
    Code, Collection, Condition, Data, Included, NewCommit, NewEvent, RecordChange, Records, Store, Verdicts,
};
use annals_embedded::disk::{Disk, DiskFile, MemoryDisk, Open};
use annals_embedded::{EmbeddedStore, Options};

use crate::faulty_disk::FaultyDisk;
use crate::stores::{Opened, block_on, open, repeatable, tiny_segments};

fn records(opened: &Opened) -> Arc<dyn Records> {
    opened.store.records("default").expect("the tenant")
}

async fn insert(records: &dyn Records, id: i32) -> Result<(), Code> {
    let change = RecordChange::insert("things", rawdoc! { "_id": id, "text": "x".repeat(6_000) });
    records.write(vec![change]).await.map(drop).map_err(|error| error.code())
}

fn commit(n: usize) -> NewCommit {
    let data = Data::from_value(&serde_json::json!({ "n": n, "text": "x".repeat(100) })).expect("an object");
    NewCommit::new("order", format!("{}", n % 3)).event(NewEvent::new("placed", data))
}

/// Writes records until the disk is full, goes on for a while, makes room and goes on.
async fn through_a_full_disk(disk: &Arc<FaultyDisk>, options: Options, room: u64) -> usize {
    let opened = open(disk.clone(), options).expect("it opens");
    let records = records(&opened);
    records.declare(Collection::new("things")).await.expect("declared");
    disk.set_room(Some(disk.used() + room));
    let mut refused = 0;
    for id in 0..300 {
        while let Err(code) = insert(&*records, id).await {
            assert_eq!(code, Code::DiskFull);
            let counted = records.count("things", &Condition::All).await.expect("reads go on");
            assert_eq!(counted, id as u64, "what was refused is not there");
            refused += 1;
            if refused == 20 {
                disk.set_room(None);
            }
            // What waits for room looks for it every so often.
            assert!(refused < 100_000, "with room again every record is taken");
        }
    }
    assert!(refused >= 20, "the disk was never full");
    let accepted = 300;
    assert_eq!(opened.status().records_refusing, None);
    accepted
}

#[test]
fn records_on_a_full_disk_are_refused_stay_readable_and_are_taken_again_without_opening_anew() {
    block_on(async {
        for seed in 0..6 {
            let disk = FaultyDisk::new(seed);
            let accepted = through_a_full_disk(&disk, repeatable(seed), seed * 40_000).await;
            let disk = disk.after_power_loss();
            let opened = open(disk, repeatable(seed)).expect("it opens");
            let counted = records(&opened).count("things", &Condition::All).await.expect("counted");
            assert_eq!(counted, accepted as u64, "seed {seed}");
        }
    });
}

/// Appends to a stream until the disk is full, keeps trying for a while, then frees space and appends again.
async fn stream_through_a_full_disk(disk: &Arc<FaultyDisk>, options: Options, room: u64) -> u64 {
    const APPENDS: u64 = 200;
    const AT_ONCE: u64 = 50;
    let opened = open(disk.clone(), options).expect("it opens");
    for n in 0..APPENDS {
        let events = (0..AT_ONCE).map(|_| NewEvent::new("placed", Data::empty())).collect();
        let commit = NewCommit { events, ..NewCommit::new("order", n.to_string()) };
        opened.log.commit(commit).await.expect("committed");
    }
    let streams = opened.store.streams("default", "default").expect("the scope");
    let mut refused = 0;
    for n in 0..APPENDS {
        if n == 1 {
            disk.set_room(Some(disk.used() + room));
        }
        let judged = n * AT_ONCE..(n + 1) * AT_ONCE;
        // A partition of its own for each event, because an event of a partition that is there takes a few bytes.
        let included = judged.clone().map(|number| Included::of(number, format!("{number:0>250}")));
        let verdicts = Verdicts { included: included.collect(), ..Verdicts::new("filled", judged.clone()) };
        while let Err(error) = streams.append(verdicts.clone()).await {
            assert_eq!(error.code(), Code::DiskFull, "{error}");
            let info = streams.stream("filled").await.expect("reads still work");
            assert_eq!((info.head, info.progress), (judged.start, judged.start), "what was refused is not there");
            refused += 1;
            if refused == 20 {
                disk.set_room(None);
            }
            // What waits for room looks for it every so often.
            assert!(refused < 100_000, "with room again all verdicts are taken");
        }
    }
    assert!(refused >= 20, "the disk was never full");
    APPENDS * AT_ONCE
}

#[test]
fn streams_on_a_full_disk_are_refused_stay_readable_and_are_taken_again_without_opening_anew() {
    block_on(async {
        for seed in 0..3 {
            let options = || Options { segment_bytes_first: 1 << 20, segment_bytes_max: 1 << 20, ..repeatable(seed) };
            let disk = FaultyDisk::new(seed);
            let head = stream_through_a_full_disk(&disk, options(), seed * 40_000).await;
            let opened = open(disk.after_power_loss(), options()).expect("it opens");
            let streams = opened.store.streams("default", "default").expect("the scope");
            let info = streams.stream("filled").await.expect("it is read");
            assert_eq!((info.head, info.progress), (head, head), "seed {seed}");
        }
    });
}

/// The disk is asked every quarter of a second by the store's clock, so that moves on before each write. What a write takes once it is
/// admitted, and what moves into the map behind it, is far less than half the floor.
#[test]
fn records_leave_the_free_bytes_of_the_floor() {
    const FLOOR: u64 = 16_000_000;
    block_on(async {
        let disk = FaultyDisk::new(3);
        let clock = Arc::new(ManualClock::at(EPOCH));
        let options = Options { clock: clock.clone(), min_free_disk_bytes: FLOOR, ..repeatable(3) };
        let opened = open(disk.clone(), options).expect("it opens");
        let records = records(&opened);
        records.declare(Collection::new("things")).await.expect("declared");
        disk.set_room(Some(disk.used() + FLOOR + 300_000));
        let insert_later = async |id: i32| {
            clock.advance_millis(1_000);
            insert(&*records, id).await
        };
        let mut accepted = 0;
        while let Ok(()) = insert_later(accepted).await {
            accepted += 1;
            assert!(accepted < 2_000, "nothing was refused, and {:?} bytes are free", disk.free_bytes());
        }
        for _ in 0..20 {
            assert_eq!(insert_later(accepted).await, Err(Code::DiskFull));
            let free = disk.free_bytes().expect("it says");
            assert!(free >= FLOOR / 2, "{free} bytes are free");
        }
        let counted = records.count("things", &Condition::All).await.expect("reads go on");
        assert_eq!(counted, accepted as u64, "what was refused is not there");
        disk.set_room(None);
        insert_later(accepted).await.expect("there is room again");
    });
}

#[test]
fn a_store_that_was_killed_on_a_full_disk_is_opened_at_least_to_be_read() {
    block_on(async {
        for seed in 0..30 {
            let disk = FaultyDisk::new(seed);
            let opened = open(disk.clone(), repeatable(seed)).expect("it opens");
            let records = records(&opened);
            records.declare(Collection::new("things")).await.expect("declared");
            let count = 5 + seed as i32 * 4;
            for id in 0..count {
                insert(&*records, id).await.expect("inserted");
                opened.log.commit(commit(id as usize)).await.expect("committed");
            }
            let disk = disk.after_power_loss();
            drop((opened, records));
            disk.set_room(Some(disk.used()));
            let store = match EmbeddedStore::open(disk.clone(), repeatable(seed)) {
                Ok(store) => store,
                Err(error) => {
                    assert_eq!(error.code, Code::DiskFull, "{}", error.message);
                    EmbeddedStore::open_to_read(disk.clone(), repeatable(seed), "full").expect("it is read")
                }
            };
            let log = store.log("default", "default").expect("the log");
            assert_eq!(read_all(&log).await.expect("the log is read").len(), count as usize);
            let records = store.records("default").expect("the tenant");
            assert_eq!(records.count("things", &Condition::All).await.expect("counted"), count as u64);
            store.close().await;
            drop((store, log, records));
            disk.set_room(None);
            let opened = open(disk, repeatable(seed)).expect("with room it opens");
            opened.log.commit(commit(0)).await.expect("committed");
        }
    });
}

/// A disk in memory on which no file can be opened to be written, when told to, as when descriptors have run out.
#[derive(Default)]
struct Short {
    memory: MemoryDisk,
    out: AtomicBool,
}

impl Short {
    fn check(&self) -> io::Result<()> {
        const EMFILE: i32 = 24;
        if self.out.load(SeqCst) { Err(io::Error::from_raw_os_error(EMFILE)) } else { Ok(()) }
    }
}

impl Disk for Short {
    fn create_dir(&self, dir: &str) -> io::Result<()> {
        self.memory.create_dir(dir)
    }
    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.memory.list(dir)
    }
    fn open(&self, path: &str, open: Open) -> io::Result<Arc<dyn DiskFile>> {
        self.check()?;
        self.memory.open(path, open)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.memory.rename(from, to)
    }
    fn remove(&self, path: &str) -> io::Result<()> {
        self.memory.remove(path)
    }
    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.check()?;
        self.memory.sync_dir(dir)
    }
    fn lock(&self) -> io::Result<Box<dyn Send + Sync>> {
        self.memory.lock()
    }
}

#[test]
fn without_descriptors_writes_are_refused_as_that_and_taken_again_once_there_are_some() {
    block_on(async {
        let disk = Arc::new(Short::default());
        let opened = open(disk.clone(), tiny_segments()).expect("it opens");
        let records = records(&opened);
        disk.out.store(true, SeqCst);
        let declared = records.declare(Collection::new("things")).await.expect_err("no file for it");
        assert_eq!(declared.code(), Code::TooManyFiles, "{declared}");
        let mut accepted = 0;
        let refused = loop {
            match opened.log.commit(commit(accepted)).await {
                Ok(_) => accepted += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(refused.code(), Code::TooManyFiles, "{refused}");
        assert_eq!(opened.log.commit(commit(0)).await.expect_err("still").code(), Code::TooManyFiles);
        assert_eq!(read_all(&opened.log).await.expect("reads go on").len(), accepted);
        disk.out.store(false, SeqCst);
        opened.log.commit(commit(accepted)).await.expect("there are files again");
        records.declare(Collection::new("things")).await.expect("there are files again");
        insert(&*records, 1).await.expect("inserted");
    });
}
