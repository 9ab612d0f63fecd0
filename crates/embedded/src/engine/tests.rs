use std::ops::Bound;
use std::sync::Arc;

use annals_core::{Code, StoreError};

use super::{Change, Engine, Known, Range, View};
use crate::Options;
use crate::disk::{Disk, MemoryDisk, Open};

const FILE: &str = "e/map.redb";

fn open(disk: &Arc<MemoryDisk>) -> Engine {
    Engine::open(disk.clone(), "e".to_owned(), Known::default(), &Options::default()).expect("the engine opens")
}

fn set(map: &mut Change, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
    map.put(key, value);
    Ok(())
}

async fn put(engine: &Engine, key: &'static str, value: &'static str) {
    let written = engine.write(move |map| set(map, key.as_bytes(), value.as_bytes())).await;
    written.expect("the value is written");
}

fn value_of(engine: &Engine, key: &str) -> Option<Vec<u8>> {
    engine.read::<_, StoreError>(|map| map.get(key.as_bytes())).expect("the value is read")
}

/// The keys of a range, in both directions.
fn keys(engine: &Engine, range: &Range) -> Vec<String> {
    let read = |map: &dyn View| {
        let up: Vec<_> = map.ascending(range)?.collect::<Result<_, _>>()?;
        let mut down: Vec<_> = map.descending(range)?.collect::<Result<_, _>>()?;
        down.reverse();
        assert_eq!(up, down);
        Ok::<_, StoreError>(up.into_iter().map(|(key, _)| String::from_utf8_lossy(&key).into_owned()).collect())
    };
    engine.read(read).expect("the range is read")
}

#[tokio::test]
async fn nothing_is_made_before_the_first_write() {
    let disk = Arc::new(MemoryDisk::default());
    let engine = open(&disk);
    assert_eq!(value_of(&engine, "a"), None);
    assert!(keys(&engine, &Range::prefix(b"a")).is_empty());
    engine.close();
    assert!(disk.list("e").expect("it is listed").is_empty());
    put(&open(&disk), "a", "1").await;
    assert_eq!(disk.list("e").expect("it is listed"), ["map.redb"]);
}

#[tokio::test]
async fn what_was_written_is_there_after_reopening() {
    let disk = Arc::new(MemoryDisk::default());
    for round in ["1", "2", "3"] {
        let engine = open(&disk);
        put(&engine, round, round).await;
        engine.close();
        let refused = engine.write::<(), StoreError>(|_| Ok(())).await;
        assert_eq!(refused, Err(StoreError::Closed));
    }
    let engine = open(&disk);
    let all = Range { from: Bound::Included(b"1".to_vec()), to: Bound::Unbounded };
    assert_eq!(keys(&engine, &all), ["1", "2", "3"]);
    let between = Range { from: Bound::Excluded(b"1".to_vec()), to: Bound::Excluded(b"3".to_vec()) };
    assert_eq!(keys(&engine, &between), ["2"]);
    let none = Range { from: Bound::Excluded(b"3".to_vec()), to: Bound::Included(b"1".to_vec()) };
    assert!(keys(&engine, &none).is_empty());
}

#[tokio::test]
async fn a_refused_write_leaves_nothing_and_harms_nobody() {
    let engine = open(&Arc::new(MemoryDisk::default()));
    put(&engine, "a", "1").await;
    let refused = engine.write(|map| {
        map.put(b"a", b"2");
        map.put(b"b", b"2");
        map.remove(b"a");
        Err::<(), _>(StoreError::Overloaded)
    });
    let (refused, ()) = tokio::join!(refused, put(&engine, "c", "3"));
    assert_eq!(refused, Err(StoreError::Overloaded));
    assert_eq!(value_of(&engine, "a").as_deref(), Some(&b"1"[..]));
    assert_eq!((value_of(&engine, "b"), value_of(&engine, "c").as_deref()), (None, Some(&b"3"[..])));
}

#[tokio::test]
async fn many_writers_share_batches_and_see_each_other() {
    let engine = Arc::new(open(&Arc::new(MemoryDisk::default())));
    let add_one = |engine: Arc<Engine>| async move {
        let work = |map: &mut Change| {
            let count = map.get(b"n")?.map_or(0, |bytes| bytes[0]) + 1;
            map.put(b"n", &[count]);
            Ok::<_, StoreError>(count)
        };
        engine.write(work).await.expect("it counts")
    };
    let tasks: Vec<_> = (0..100).map(|_| tokio::spawn(add_one(engine.clone()))).collect();
    let mut counts = Vec::new();
    for task in tasks {
        counts.push(task.await.expect("the task ends well"));
    }
    counts.sort_unstable();
    assert_eq!(counts, (1..=100).collect::<Vec<u8>>());
    let batches = engine.batches().borrow().durable;
    assert!(batches < 100, "{batches} batches");
}

#[tokio::test]
async fn a_write_that_panics_refuses_all_others() {
    let engine = open(&Arc::new(MemoryDisk::default()));
    put(&engine, "a", "1").await;
    let panicked = engine.write::<(), StoreError>(|_| panic!("on purpose")).await;
    assert_eq!(panicked.expect_err("it is refused").code(), Code::StoreFailed);
    let next = engine.write(|map| set(map, b"b", b"2")).await;
    assert_eq!(next.expect_err("it is refused").code(), Code::StoreFailed);
    assert_eq!(value_of(&engine, "a").as_deref(), Some(&b"1"[..]));
}

#[tokio::test]
async fn a_changed_byte_is_damage_and_a_newer_format_is_said() {
    let disk = Arc::new(MemoryDisk::default());
    let engine = open(&disk);
    put(&engine, "a", "the value that will be damaged").await;
    engine.close();
    let file = disk.open(FILE, Open::Write).expect("the file is there");
    let mut bytes = vec![0; file.length().expect("its length") as usize];
    file.read_at(&mut bytes, 0).expect("it is read");
    let at = bytes.windows(9).position(|window| window == b"the value").expect("the value is in the file");
    file.write_at(b"X", at as u64).expect("it is changed");
    let engine = open(&disk);
    let read = engine.read::<_, StoreError>(|map| map.get(b"a")).expect_err("it is damaged");
    assert_eq!(read.code(), Code::StoreDamaged);
    let write = engine.write(|map| set(map, b"b", b"2")).await.expect_err("it is damaged");
    assert_eq!(write.code(), Code::StoreDamaged);
    engine.close();

    file.write_at(b"t", at as u64).expect("it is changed back");
    let engine = open(&disk);
    assert!(value_of(&engine, "a").is_some());
    engine.write(|map| set(map, super::open::FORMAT_KEY, &9u32.to_be_bytes())).await.expect("it is written");
    engine.close();
    let refused =
        Engine::open(disk, "e".to_owned(), Known::default(), &Options::default()).err().expect("it is refused");
    assert_eq!(refused.code, Code::NewerFormat);
}

/// The files of a folder, by their names.
fn files(disk: &MemoryDisk) -> Vec<(String, Vec<u8>)> {
    let names = disk.list("e").expect("it is listed");
    let read = |name: &String| {
        let file = disk.open(&format!("e/{name}"), Open::Read).expect("it is there");
        let mut bytes = vec![0; file.length().expect("its length") as usize];
        file.read_at(&mut bytes, 0).expect("it is read");
        bytes
    };
    names.iter().map(|name| (name.clone(), read(name))).collect()
}

/// What a disk holds when the process that wrote these keys is killed.
fn killed(disk: &Arc<MemoryDisk>, keys: &[&'static str]) -> Arc<MemoryDisk> {
    let engine = open(disk);
    for &key in keys {
        engine.write_blocking(move |map| set(map, key.as_bytes(), b"1")).expect("it is written");
    }
    let after = MemoryDisk::default();
    for (name, bytes) in files(disk) {
        let file = after.open(&format!("e/{name}"), Open::Create).expect("it is made");
        file.write_at(&bytes, 0).expect("it is written");
    }
    Arc::new(after)
}

#[test]
fn what_was_answered_before_a_kill_is_there_and_a_look_shows_it_without_changing_a_byte() {
    let disk = killed(&killed(&Arc::default(), &["a", "b"]), &["c"]);
    let before = files(&disk);
    let Ok(super::Looked::Open(map)) = super::look(&*disk, "e", &super::Marks::default()) else {
        panic!("it can be looked at")
    };
    for key in ["a", "b", "c"] {
        assert_eq!(map.view.get(key.as_bytes()).expect("it is read").as_deref(), Some(&b"1"[..]));
    }
    assert!(files(&disk) == before, "looking changed a file");
    let engine = open(&disk);
    assert_eq!(keys(&engine, &Range::beyond(b"a")), ["a", "b", "c"]);
}

#[test]
fn a_journal_without_its_map_is_damage() {
    let disk = killed(&Arc::default(), &["a"]);
    disk.remove(FILE).expect("it is removed");
    let refused = open(&disk).write_blocking(|map| set(map, b"b", b"1")).expect_err("it is damaged");
    assert!(refused.code() == Code::StoreDamaged && refused.to_string().contains("its journal is there"), "{refused}");
}

/// It was left by a process that ended between making it and naming it, or between the end of a journal and its removal.
#[test]
fn a_journal_that_the_map_does_not_name_is_removed() {
    let disk = killed(&Arc::default(), &["a"]);
    let left: Vec<_> = files(&disk).into_iter().filter(|(name, _)| name.starts_with("journal")).collect();
    open(&disk).close();
    for (name, bytes) in left {
        let file = disk.open(&format!("e/{name}"), Open::Create).expect("it is made");
        file.write_at(&bytes, 0).expect("it is written");
    }
    let Ok(super::Looked::Open(map)) = super::look(&*disk, "e", &super::Marks::default()) else {
        panic!("it can be looked at")
    };
    assert!(map.view.get(b"a").expect("it is read").is_some());
    let engine = open(&disk);
    assert_eq!(disk.list("e").expect("it is listed"), ["map.redb"]);
    assert_eq!(keys(&engine, &Range::beyond(b"a")), ["a"]);
}

#[test]
fn a_map_of_the_format_without_a_journal_is_taken_over_by_the_first_write() {
    let disk = Arc::new(MemoryDisk::default());
    let engine = open(&disk);
    engine.write_blocking(|map| set(map, super::open::FORMAT_KEY, &1u32.to_be_bytes())).expect("it is written");
    engine.close();
    let format = |engine: &Engine| engine.read::<_, StoreError>(|map| map.get(super::open::FORMAT_KEY)).expect("read");
    let engine = open(&disk);
    assert_eq!(format(&engine), Some(1u32.to_be_bytes().to_vec()));
    engine.write_blocking(|map| set(map, b"a", b"1")).expect("it is written");
    assert_eq!(format(&engine), Some(2u32.to_be_bytes().to_vec()));
}
