//! Stores that earlier versions wrote, one folder for each format and each form of its segments: they are checked, opened, read and
//! written to.
//!
//! `ANNALS_WRITE_FIXTURES=1` writes those of the current format anew, which is only right before that format is released. Records and
//! streams have folders of their own, `format-N-maps` from before there was a journal and `format-N-journal-maps`; and so have prepare keys
//! that changed without a commit, `format-N-keys`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use annals_core::{
    AggregateQuery, ChangesError, Code, DEFAULT_SCOPE, DEFAULT_TENANT, EventLog, EventsHash, Expected, KeyValue,
    LogQuery, Records, Store, Timestamp,
};
use annals_embedded::disk::{Disk, RealDisk};
use annals_embedded::operations::{check, pack};
use annals_embedded::{EmbeddedStore, FORMAT, Options};
use serde_json::{Value, json};

use crate::faulty_disk::{Fault, FaultyDisk};
use crate::operations::map_samples::{all_entries, all_records, fill_maps, things};
use crate::operations::samples::{commit, fill, hash_to, options, transfer};
use crate::prepare::{held, order, user};
use crate::stores::{PACK_ALWAYS, block_on};

const COMMITS: usize = 30;
/// Beside the folders of a fixture's store: what it holds.
const EXPECTED: &str = "expected.json";

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn open(folder: &Path) -> EmbeddedStore {
    EmbeddedStore::open(Arc::new(RealDisk::new(folder)), options(1)).unwrap_or_else(|error| panic!("{error}"))
}

/// What a check says of the logs in a folder.
fn logs(folder: &Path) -> Value {
    let report = check(&RealDisk::new(folder), &mut |_, _| {}).unwrap_or_else(|error| panic!("{error}"));
    assert!(report.is_sound() && report.notes.is_empty(), "{report:#?}");
    let logs = report.logs.iter().map(|log| {
        json!({ "tenant": log.tenant, "scope": log.scope, "head": log.head, "commits": log.commits,
                "indexes": log.indexes, "events_hash": log.events_hash })
    });
    logs.collect()
}

fn write(folder: &Path) {
    let _ = fs::remove_dir_all(folder);
    let store = folder.join("store");
    block_on(async {
        let open = open(&store);
        fill(&open, 0..COMMITS).await;
        open.close().await;
    });
    // A lock is made by whoever opens the store.
    fs::remove_file(store.join("lock")).expect("it was made");
    let expected = serde_json::to_vec_pretty(&logs(&store)).expect("JSON");
    fs::remove_file(store.join("lock")).expect("it was made");
    fs::write(folder.join(EXPECTED), expected).expect("written");
}

/// The same with its closed segments packed.
fn write_packed(from: &Path, folder: &Path) {
    let _ = fs::remove_dir_all(folder);
    let store = folder.join("store");
    copy(&from.join("store"), &store);
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::new(&store));
    pack(&disk, &Options { packing: PACK_ALWAYS, ..options(1) }, &mut |_, _| {}).expect("it is packed");
    fs::remove_file(store.join("lock")).expect("it was made");
    let expected = serde_json::to_vec_pretty(&logs(&store)).expect("JSON");
    fs::remove_file(store.join("lock")).expect("it was made");
    fs::write(folder.join(EXPECTED), expected).expect("written");
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("made");
    for entry in fs::read_dir(from).expect("a folder").map(|entry| entry.expect("an entry")) {
        let target = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).expect("copied")),
        }
    }
}

/// Earlier versions stored which place a commit has in its transaction, and not which transaction that is.
async fn assert_transactions_have_names(log: &Arc<dyn EventLog>) {
    let all = log.read(LogQuery { limit: 1_000, ..LogQuery::default() }).await.expect("it is read").events;
    let mut named = None;
    for event in all.iter().filter(|event| event.ordinal == 0) {
        let Some(place) = event.commit.transaction else { continue };
        let first = named.filter(|_| place.place > 0).unwrap_or(event.commit.commit_id);
        assert_eq!((place.id, place.count), (first, 3), "{event:?}");
        named = Some(first);
        let alone = LogQuery { from: Some(event.sequence_number), limit: 1, ..LogQuery::default() };
        assert_eq!(log.read(alone).await.expect("it is read").events, std::slice::from_ref(event));
        let of_aggregate = log.read_aggregate(AggregateQuery::new(event.commit.aggregate.clone())).await;
        let commits = of_aggregate.expect("it is read").commits;
        assert!(commits.iter().any(|commit| commit.info == event.commit));
    }
    assert!(named.is_some(), "there are transactions");
}

#[test]
fn stores_of_every_format_are_checked_opened_read_and_written_to() {
    let current = fixtures().join(format!("format-{FORMAT}"));
    if std::env::var_os("ANNALS_WRITE_FIXTURES").is_some() {
        write(&current);
        write_packed(&current, &fixtures().join(format!("format-{FORMAT}-packed")));
    }
    assert!(current.is_dir(), "there is a fixture of the current format");
    let of_logs = |path: &PathBuf| !["-maps", "-keys"].iter().any(|kind| path.to_string_lossy().ends_with(kind));
    let all = fs::read_dir(fixtures()).expect("fixtures").map(|entry| entry.expect("an entry").path());
    for fixture in all.filter(of_logs) {
        let folder = tempfile::tempdir().expect("a folder");
        copy(&fixture.join("store"), folder.path());
        let expected: Value =
            serde_json::from_slice(&fs::read(fixture.join(EXPECTED)).expect("expected.json")).expect("JSON");
        assert_eq!(logs(folder.path()), expected, "{}", fixture.display());
        block_on(async {
            let store = open(folder.path());
            for log in expected.as_array().expect("a list") {
                let text = |key: &str| log[key].as_str().expect("text");
                let open = store.log(text("tenant"), text("scope")).expect("it is declared");
                let head = open.head().await.expect("a head");
                assert_eq!(json!(head), log["head"]);
                assert_eq!(hash_to(&open, head).await, text("events_hash").parse::<EventsHash>().expect("a hash"));
                assert_transactions_have_names(&open).await;
            }
            let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("it is declared");
            let head = log.head().await.expect("a head");
            assert!(log.commit(commit(3)).await.expect("a repeat").duplicate);
            assert!(log.transact(transfer(5)).await.expect("a repeat").iter().all(|outcome| outcome.duplicate));
            let taken = log.transact(transfer(5).request_id("another")).await.expect_err("its key is held");
            assert_eq!(taken.error.code(), Code::KeyTaken);
            assert_eq!(log.commit(commit(100)).await.expect("it is accepted").first_sequence_number, Some(head));
            store.close().await;
        });
        assert_ne!(logs(folder.path()), expected);
    }
}

const MAPS: &str = "default";

/// What a store holds of records and streams, as text.
async fn maps(store: &EmbeddedStore) -> Value {
    let records = all_records(store).await.into_iter();
    let records =
        records.map(|(collection, document, revision)| json!([collection, format!("{document:?}"), revision]));
    let mut streams = Vec::new();
    for (scope, stream) in
        [(DEFAULT_SCOPE, "plain"), (DEFAULT_SCOPE, "parted"), ("partner", "plain"), ("partner", "parted")]
    {
        let (progress, entries) = all_entries(store, scope, stream).await;
        streams.push(json!([scope, stream, progress, entries]));
    }
    json!({ "records": records.collect::<Vec<_>>(), "streams": streams })
}

fn checked_maps(folder: &Path) -> Value {
    let report = check(&RealDisk::new(folder), &mut |_, _| {}).unwrap_or_else(|error| panic!("{error}"));
    assert!(report.is_sound() && report.notes.is_empty(), "{report:#?}");
    let map = &report.maps[0];
    assert_eq!((report.maps.len(), map.tenant.as_str()), (1, MAPS));
    json!({ "collections": map.collections, "records": map.records, "index_entries": map.index_entries,
            "changes": map.changes, "streams": map.streams, "stream_entries": map.stream_entries })
}

/// With a journal that is moved into the map when the store is closed, and not before.
fn open_for_writing(disk: &Arc<FaultyDisk>) -> EmbeddedStore {
    let options = Options { journal_bytes_max: usize::MAX, ..options(1) };
    EmbeddedStore::open(disk.clone(), options).unwrap_or_else(|error| panic!("{error}"))
}

/// A store of which the first half was moved into the map, and the second stands in the journal: a sync failed, and then it was closed.
/// Closing makes the map's file small, and leaves the journal, because it may hold what nothing else does.
fn write_maps(folder: &Path) {
    let _ = fs::remove_dir_all(folder);
    let store = folder.join("store");
    let held = block_on(async {
        let disk = FaultyDisk::new(1);
        let first = open_for_writing(&disk);
        fill(&first, 0..COMMITS).await;
        fill_maps(&first, 0..15).await;
        first.close().await;
        drop(first);
        let second = open_for_writing(&disk);
        fill_maps(&second, 15..30).await;
        let before = maps(&second).await;
        // The write of its batch, and the sync.
        disk.plan(1, Fault::Error);
        let records = second.records(MAPS).expect("it is declared");
        records.delete_if("notes", 29.into(), Expected::Present).await.expect_err("its sync fails");
        second.close().await;
        for (path, bytes) in disk.files() {
            let path = store.join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, bytes).expect("written");
        }
        drop(second);
        let third = open_for_writing(&disk);
        let held = maps(&third).await;
        let records = |of: &Value| of["records"].as_array().expect("a list").clone();
        let gone = records(&before).into_iter().filter(|record| !records(&held).contains(record)).count();
        assert!(gone <= 1 && held["streams"] == before["streams"], "what was answered is there");
        held
    });
    let expected = serde_json::to_vec_pretty(&json!({ "checked": checked_maps(&store), "held": held }));
    fs::remove_file(store.join("lock")).expect("it was made");
    fs::write(folder.join(EXPECTED), expected.expect("JSON")).expect("written");
}

/// Stores of every format that there is had one feed of all collections when they were written.
async fn assert_positions_of_the_former_feed_are_refused(records: &Arc<dyn Records>, held: &Value) {
    let held = held.as_array().expect("records");
    let newest = held.iter().filter_map(|record| record[2].as_u64()).max().expect("a revision");
    let last = records.last_change("things").await.expect("it has a feed");
    assert!(last > newest, "{last} {newest}");
    for former in [0, 1, newest] {
        let gone = records.changes("things", former, 10).await.expect_err("they are of another feed");
        assert_eq!(gone, ChangesError::Gone { after: former, oldest: last + 1 });
    }
    assert_eq!(records.changes("things", last, 10).await, Ok(Vec::new()));
}

#[test]
fn records_and_streams_of_every_format_are_checked_read_and_written_to() {
    let current = fixtures().join(format!("format-{FORMAT}-journal-maps"));
    if std::env::var_os("ANNALS_WRITE_FIXTURES").is_some() {
        write_maps(&current);
    }
    assert!(current.is_dir(), "there is a fixture of the current format");
    let all = fs::read_dir(fixtures()).expect("fixtures").map(|entry| entry.expect("an entry").path());
    for fixture in all.filter(|path| path.to_string_lossy().ends_with("-maps")) {
        let folder = tempfile::tempdir().expect("a folder");
        copy(&fixture.join("store"), folder.path());
        let expected: Value =
            serde_json::from_slice(&fs::read(fixture.join(EXPECTED)).expect("expected.json")).expect("JSON");
        assert_eq!(checked_maps(folder.path()), expected["checked"], "{}", fixture.display());
        block_on(async {
            let store = open(folder.path());
            assert_eq!(maps(&store).await, expected["held"], "{}", fixture.display());
            let records = store.records(DEFAULT_TENANT).expect("it is declared");
            records.declare(things()).await.expect("every index is what it was");
            assert_positions_of_the_former_feed_are_refused(&records, &expected["held"]["records"]).await;
            fill(&store, 100..103).await;
            fill_maps(&store, 30..33).await;
            assert_ne!(maps(&store).await, expected["held"]);
            store.close().await;
        });
        assert_ne!(checked_maps(folder.path()), expected["checked"]);
    }
}

/// Who holds the keys of the fixture, as text.
async fn keys(store: &EmbeddedStore) -> Value {
    let keys = store.prepare_keys(DEFAULT_TENANT).expect("it is declared");
    let mut found = serde_json::Map::new();
    for n in 0..KEYS {
        for key in [format!("k-{n}"), format!("moved-{n}")] {
            let there = keys.look("user", &key).await.expect("it is read");
            found.insert(key, json!(there.map(|it| (it.holder.value, it.holder.ttl_at))));
        }
    }
    Value::Object(found)
}

const KEYS: u64 = 40;

/// Keys that are taken, changed, moved and given back, between commits, in segments of both forms.
fn write_keys(folder: &Path) {
    let _ = fs::remove_dir_all(folder);
    let path = folder.join("store");
    let expected = block_on(async {
        let store = open(&path);
        let (keys_of, log) = (store.prepare_keys(DEFAULT_TENANT), store.log(DEFAULT_TENANT, DEFAULT_SCOPE));
        let (service, log) = (keys_of.expect("it is declared"), log.expect("it is declared"));
        for n in 0..KEYS {
            let key = format!("k-{n}");
            let timed = user(&key, n).until(Timestamp::from_millis(5_000_000_000_000));
            assert_eq!(service.prepare(if n % 5 == 0 { timed } else { user(&key, n) }).await, Ok(true));
            let done = match n % 4 {
                0 => service.reprepare(None, user(&key, n + 100)).await,
                1 => service.rollback(held(&key)).await,
                2 => {
                    let old = held(&key).of_value(KeyValue::new(n).expect("a value"));
                    service.reprepare_as(old, user(&format!("moved-{n}"), n)).await
                }
                _ => log.commit(order(n)).await.map(|_| true).map_err(|error| panic!("{error}")),
            };
            assert_eq!(done, Ok(true));
        }
        let expected = keys(&store).await;
        store.close().await;
        expected
    });
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::new(&path));
    pack(&disk, &Options { packing: PACK_ALWAYS, ..options(1) }, &mut |_, _| {}).expect("it is packed");
    block_on(async {
        let store = open(&path);
        let service = store.prepare_keys(DEFAULT_TENANT).expect("it is declared");
        assert_eq!(service.reprepare(None, user("k-0", 100)).await, Ok(true), "a frame behind packed ones");
        store.close().await;
    });
    fs::remove_file(path.join("lock")).expect("it was made");
    fs::write(folder.join(EXPECTED), serde_json::to_vec_pretty(&expected).expect("JSON")).expect("written");
}

#[test]
fn keys_that_changed_without_a_commit_are_read_in_every_format() {
    let current = fixtures().join(format!("format-{FORMAT}-keys"));
    if std::env::var_os("ANNALS_WRITE_FIXTURES").is_some() {
        write_keys(&current);
    }
    assert!(current.is_dir(), "there is a fixture of the current format");
    let all = fs::read_dir(fixtures()).expect("fixtures").map(|entry| entry.expect("an entry").path());
    for fixture in all.filter(|path| path.to_string_lossy().ends_with("-keys")) {
        let folder = tempfile::tempdir().expect("a folder");
        copy(&fixture.join("store"), folder.path());
        let expected: Value =
            serde_json::from_slice(&fs::read(fixture.join(EXPECTED)).expect("expected.json")).expect("JSON");
        assert_eq!(logs(folder.path())[0]["head"], json!(KEYS / 4));
        block_on(async {
            let store = open(folder.path());
            assert_eq!(keys(&store).await, expected, "{}", fixture.display());
            let service = store.prepare_keys(DEFAULT_TENANT).expect("it is declared");
            assert_eq!(service.prepare(user("k-3", 7)).await, Ok(false));
            assert_eq!(service.prepare(user("k-1", 7)).await, Ok(true));
            store.close().await;
        });
    }
}
