//! Everything that can be wrong with a map whose pages are whole is planted, found, and named.

use std::sync::Arc;

use annals_core::bson::{Document, RawDocumentBuf, doc};
use annals_core::{
    Collection, DEFAULT_SCOPE, DEFAULT_TENANT, Data, Included, Index, NewCommit, NewEvent, RecordChange, Store,
    StoreError, Verdicts,
};

use super::super::{CheckReport, Finding};
use crate::disk::{Disk, MemoryDisk, Open};
use crate::engine::{Change, Engine, Known, Range, View};
use crate::operations::check;
use crate::{EmbeddedStore, Options};

const DIR: &str = "tenants/default/_engine";
const EVENTS: u64 = 600;

fn raw(document: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).expect("a document")
}

fn options() -> Options {
    Options { min_free_disk_bytes: 0, segment_bytes_first: 100_000, ..Options::default() }
}

/// A closed store with events, records under indexes, and a stream in partitions.
fn sample() -> Arc<MemoryDisk> {
    let disk = Arc::new(MemoryDisk::default());
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let store = EmbeddedStore::open(disk.clone(), options()).expect("it opens");
        let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("it is declared");
        let events = (0..EVENTS).map(|_| NewEvent::new("t", Data::empty())).collect();
        log.commit(NewCommit { events, ..NewCommit::new("order", "a") }).await.expect("it is committed");
        let records = store.records(DEFAULT_TENANT).expect("it is declared");
        let things = Collection::new("things").with_feed().index(Index::on("name").unique()).index(Index::on("tags"));
        records.declare(things).await.expect("it is declared");
        records.declare(Collection::new("notes").with_feed()).await.expect("it is declared");
        for n in 0..30 {
            let thing = doc! { "_id": n, "name": format!("name-{n}"), "tags": [n, n + 1] };
            let note = RecordChange::put("notes", raw(&doc! { "_id": n }));
            records.write(vec![RecordChange::put("things", raw(&thing)), note]).await.expect("it is accepted");
        }
        let streams = store.streams(DEFAULT_TENANT, DEFAULT_SCOPE).expect("it is declared");
        let all = (0..EVENTS).map(|n| Included::of(n, format!("p-{}", n % 3)));
        let all = all.fold(Verdicts::new("s", 0..EVENTS), Verdicts::include);
        streams.append(all).await.expect("it is appended");
        store.close().await;
    });
    disk
}

fn checked(disk: &MemoryDisk) -> CheckReport {
    check(disk, &mut |done, total| assert!(done <= total)).unwrap_or_else(|error| panic!("{error}"))
}

/// Changes the map of the sample, and gives what a check finds: everything is of this kind.
#[track_caller]
fn found(kind: &str, says: &str, plant: impl FnOnce(&mut Change) + Send + 'static) -> Finding {
    let disk = sample();
    let engine = Engine::open(disk.clone(), DIR.to_owned(), Known::default(), &options()).expect("it opens");
    let planted = engine.write_blocking(|map| {
        plant(map);
        Ok::<_, StoreError>(())
    });
    planted.expect("it is planted");
    engine.close();
    let report = checked(&disk);
    let first = report.damage.first().cloned().unwrap_or_else(|| panic!("{kind} was not found: {report:?}"));
    assert_eq!(first.kind, kind, "{report:#?}");
    assert!(report.damage.iter().any(|it| it.kind == kind && it.what.contains(says)), "{report:#?}");
    assert!(first.what.contains(DIR) && !first.advice.is_empty());
    assert_eq!((first.tenant.as_deref(), first.file.as_str()), (Some("default"), "tenants/default/_engine/map.redb"));
    first
}

/// The n-th entry of those whose keys begin so.
fn nth(map: &Change, prefix: &[u8], n: usize) -> (Vec<u8>, Vec<u8>) {
    map.ascending(&Range::prefix(prefix)).expect("it is read").nth(n).expect("it is there").expect("it is read")
}

#[test]
fn a_sound_map_has_no_damage_and_its_numbers() {
    let report = checked(&sample());
    assert!(report.is_sound() && report.notes.is_empty(), "{report:#?}");
    let map = &report.maps[0];
    assert_eq!((map.collections, map.records, map.index_entries, map.changes), (2, 60, 90, 60));
    assert_eq!((map.streams, map.stream_entries), (1, EVENTS));
}

#[test]
fn a_record_that_is_not_what_was_written_or_stands_elsewhere_is_found() {
    found("record", "is damaged", |map| {
        let (key, mut value) = nth(map, &[1, 1], 3);
        *value.last_mut().expect("bytes") ^= 1;
        map.put(&key, &value)
    });
    found("record", "collection 77", |map| map.put(&[1, 1, 0, 0, 0, 77, 1], b"x"));
}

#[test]
fn index_entries_that_are_missing_or_too_many_are_found() {
    let finding = found("index_entry", "its entry is missing", |map| {
        let (key, _) = nth(map, &[1, 2], 5);
        map.remove(&key)
    });
    assert!(finding.what.contains("of things") && finding.advice.contains("--indexes"), "{finding:?}");
    found("index_entry", "no record has", |map| {
        let (mut key, value) = nth(map, &[1, 2], 5);
        let at = key.len() - 1 - u32::from_be_bytes(value[..].try_into().expect("four bytes")) as usize;
        key[at] ^= 1;
        map.put(&key, &value)
    });
    // The same entry with the id of another record.
    found("index_entry", "two records", |map| {
        let ((mut key, value), (other, _)) = (nth(map, &[1, 2], 5), nth(map, &[1, 2], 6));
        let id = u32::from_be_bytes(value[..].try_into().expect("four bytes")) as usize;
        let at = key.len() - id;
        key.splice(at.., other[other.len() - id..].iter().copied());
        map.put(&key, &value)
    });
    found("index_entry", "index 99", |map| map.put(&[1, 2, 0, 0, 0, 99, 1], b"x"));
    found("index_entry", "its entry is missing", |map| {
        let (key, _) = nth(map, &[1, 2], 5);
        map.put(&key, &[0, 0, 0, 1])
    });
}

#[test]
fn a_catalog_that_is_not_what_was_written_is_found() {
    found("catalog", "is damaged", |map| map.put(&[1, 0, b'c'], b"{"));
    found("catalog", "a different version is stored", |map| map.put(&[1, 0, b'v'], &99u64.to_be_bytes()));
    found("catalog", "assigned twice", |map| {
        let text = String::from_utf8(map.get(&[1, 0, b'c']).expect("it is read").expect("a catalog")).expect("JSON");
        let at = text.find("\"next_id\":").expect("it is there") + 10;
        map.put(&[1, 0, b'c'], format!("{}1{}", &text[..at], &text[at + 1..]).as_bytes())
    });
}

#[test]
fn notes_of_changes_that_are_missing_or_unreadable_are_found() {
    found("change", "is missing", |map| {
        let (key, _) = nth(map, &[1, 3], 7);
        map.remove(&key)
    });
    found("change", "note of a change", |map| {
        let (key, _) = nth(map, &[1, 3], 7);
        map.put(&key, b"x")
    });
    found("change", "is missing", |map| {
        let (key, _) = nth(map, &[1, 3], 59);
        map.remove(&key)
    });
    found("change", "of no collection with a feed", |map| map.put(&[1, 4, 0], b"x"));
    found("change", "of no collection with a feed", |map| map.put(&[1, 4, 0, 0, 0, 99], &[0; 24]));
    // Without the newest revision the next changes would get revisions that were given already.
    found("record", "after the newest", |map| map.remove(&[1, 0, b'r']));
}

#[test]
fn keys_of_nobody_are_found() {
    for key in [&[0u8][..], &[0, b'g'], &[1, 0, b'd'], &[1, 5, 0], &[3, 1], &[255]] {
        let key = key.to_vec();
        found("map_key", "key", move |map| map.put(&key, b"x"));
    }
    for key in [&[2u8, 0, 0][..], &[2, 6, 0]] {
        let key = key.to_vec();
        found("stream", "belongs to no stream", move |map| map.put(&key, b"x"));
    }
}

#[test]
fn streams_that_are_not_as_they_must_be_are_found() {
    let finding = found("stream", "block of entries", |map| {
        let (key, _) = nth(map, &[2, 2], 1);
        map.remove(&key)
    });
    assert_eq!(finding.scope.as_deref(), Some(DEFAULT_SCOPE));
    found("stream", "block of positions", |map| {
        let (key, mut value) = nth(map, &[2, 5], 1);
        value[0] ^= 1;
        map.put(&key, &value)
    });
    found("stream", "partition", |map| {
        let (key, _) = nth(map, &[2, 3], 1);
        map.remove(&key)
    });
    found("stream", "belongs to a missing stream", |map| {
        let (key, _) = nth(map, &[2, 1], 0);
        map.remove(&key)
    });
    found("stream", "already assigned", |map| map.remove(&[2, 0]));
}

/// A stream that was judged further than its log reaches.
#[test]
fn a_stream_that_is_ahead_of_its_log_is_found() {
    let disk = sample();
    for name in disk.list("tenants/default/default").expect("it is listed") {
        disk.remove(&format!("tenants/default/default/{name}")).expect("it is removed");
    }
    let report = checked(&disk);
    let kinds: Vec<_> = report.damage.iter().map(|finding| finding.kind).collect();
    assert_eq!(kinds, ["segment_missing", "stream"], "{report:#?}");
    assert!(report.damage[1].what.contains("evaluated up to 600, but the log has 0"), "{report:#?}");
}

/// A byte that is changed anywhere in the file is found, unless nothing refers to it; and nothing is ever read otherwise.
#[test]
fn a_changed_byte_of_the_file_is_found_or_means_nothing() {
    let disk = sample();
    let file = disk.open(&format!("{DIR}/map.redb"), Open::Write).expect("it is there");
    let mut bytes = vec![0; file.length().expect("a length") as usize];
    file.read_at(&mut bytes, 0).expect("it is read");
    let sound = checked(&disk);
    let mut noticed = 0;
    for at in (0..bytes.len()).step_by(97).filter(|at| bytes[*at] != 0) {
        file.write_at(&[bytes[at] ^ 0x10], at as u64).expect("it is changed");
        let report = check(&*disk, &mut |_, _| {});
        file.write_at(&bytes[at..=at], at as u64).expect("it is changed back");
        // A format that nobody has written yet is an error, and no report.
        let Ok(report) = report else { continue };
        noticed += usize::from(!report.is_sound());
        if report.is_sound() {
            assert_eq!(format!("{:?}", report.maps), format!("{:?}", sound.maps), "byte {at}");
        }
    }
    assert!(noticed > 50, "{noticed}");
}

#[test]
fn a_check_of_a_store_that_was_killed_changes_nothing() {
    let disk = sample();
    let engine = Engine::open(disk.clone(), DIR.to_owned(), Known::default(), &options()).expect("it opens");
    engine.write_blocking::<_, StoreError>(|map| map.get(&[1, 0, b'v'])).expect("it is read");
    // It is not closed, as if the process had been killed.
    let file = disk.open(&format!("{DIR}/map.redb"), Open::Read).expect("it is there");
    let content = || {
        let mut bytes = vec![0; file.length().expect("a length") as usize];
        file.read_at(&mut bytes, 0).expect("it is read");
        bytes
    };
    let before = content();
    assert!(checked(&disk).is_sound());
    assert!(content() == before, "the file was changed");
    engine.close();
}
