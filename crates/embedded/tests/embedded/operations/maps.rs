//! Records and streams in backups: of one moment, whole, and never ahead of the logs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use annals_core::bson::{Bson, doc};
use annals_core::{
    ChangeNumber, Code, Collection, DEFAULT_SCOPE, DEFAULT_TENANT, EventLog, Included, RecordChange, RecordError,
    Records, Store, Streams, Verdicts,
};
use annals_embedded::disk::Disk;
use annals_embedded::operations::{Receiver, Restore, Source, check, restore};
use annals_embedded::{EmbeddedStore, Options};

use super::backup::{back_up, into_folder, restored};
use super::map_samples::{all_entries, all_records, fill_maps, raw, records_of, things};
use super::repair::cut_at;
use super::samples::{commit, disk_with, fill, open_store, options};
use crate::faulty_disk::FaultyDisk;
use crate::stores::block_on;

const STREAMS: [(&str, &str); 4] =
    [(DEFAULT_SCOPE, "plain"), (DEFAULT_SCOPE, "parted"), ("partner", "plain"), ("partner", "parted")];

/// A store with events, records and streams.
async fn store() -> EmbeddedStore {
    let store = open_store(&FaultyDisk::new(1), 1);
    fill(&store, 0..30).await;
    fill_maps(&store, 0..40).await;
    store
}

fn restored_of(kept: &Arc<FaultyDisk>) -> Arc<FaultyDisk> {
    let source = Source::Folder(kept.clone());
    restored(&source, &Restore::default(), &options(4)).unwrap_or_else(|error| panic!("{error}")).0
}

#[test]
fn records_and_streams_come_back_as_they_were() {
    block_on(async {
        let store = store().await;
        let kept = FaultyDisk::new(3);
        let (manifest, _) = back_up(&store, into_folder(&kept)).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(manifest.left_out, Vec::<String>::new());
        assert!(manifest.tenants[0].map.is_some() && manifest.tenants[1].map.is_none(), "one has no records");
        let source = Source::Folder(kept);
        let (disk, made) = restored(&source, &Restore::default(), &options(4)).expect("it is restored");
        assert_eq!(made.maps.len(), 1);
        assert_eq!(made.maps[0].tenant, DEFAULT_TENANT);
        let files: Vec<_> =
            disk.files().into_iter().map(|(path, _)| path).filter(|it| it.contains("_engine")).collect();
        assert_eq!(files, ["tenants/default/_engine/map.redb"]);
        assert!(check(&*disk, &mut |_, _| {}).expect("it can be checked").is_sound());
        let again = open_store(&disk, 5);
        assert_eq!(all_records(&again).await, all_records(&store).await);
        for (scope, stream) in STREAMS {
            assert_eq!(all_entries(&again, scope, stream).await, all_entries(&store, scope, stream).await);
            assert_eq!(again.check_streams(DEFAULT_TENANT, scope), Ok(Vec::new()));
        }
        // Indexes, changes and their numbers are there too.
        let (here, there) =
            (store.records(DEFAULT_TENANT).expect("a tenant"), again.records(DEFAULT_TENANT).expect("a tenant"));
        let changes = |records: Arc<dyn Records>| async move {
            records.changes("things", 0, 1_000).await.expect("they are read")
        };
        assert_eq!(changes(there.clone()).await, changes(here).await);
        let second = doc! { "_id": "another", "name": "name-7" };
        let error = there.insert("things", raw(&second)).await.expect_err("the name is taken");
        assert_eq!(error.code(), Code::DuplicateKey);
        fill_maps(&again, 40..45).await;
        fill(&again, 100..103).await;
    });
}

#[test]
fn streams_are_cut_where_a_restore_cuts_the_log_and_records_stay() {
    block_on(async {
        let store = store().await;
        let kept = FaultyDisk::new(3);
        back_up(&store, into_folder(&kept)).expect("it is taken");
        let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("it is declared");
        let borders = super::samples::borders(&log).await;
        for at in [borders[0], borders[7], borders[borders.len() / 2], borders[borders.len() - 2]] {
            let cut = Restore { cut: Some((DEFAULT_TENANT.to_owned(), DEFAULT_SCOPE.to_owned(), at)) };
            let (disk, _) = restored(&Source::Folder(kept.clone()), &cut, &options(4)).expect("it is restored");
            assert!(check(&*disk, &mut |_, _| {}).expect("it can be checked").is_sound());
            let again = open_store(&disk, 5);
            assert_eq!(all_records(&again).await, all_records(&store).await);
            for (scope, stream) in STREAMS {
                let (progress, mut entries) = all_entries(&store, scope, stream).await;
                let cut = scope == DEFAULT_SCOPE;
                entries.retain(|entry| !cut || entry.sequence_number < at);
                let progress = if cut { progress.min(at) } else { progress };
                assert_eq!(all_entries(&again, scope, stream).await, (progress, entries), "{scope}/{stream} at {at}");
                assert_eq!(again.check_streams(DEFAULT_TENANT, scope), Ok(Vec::new()));
            }
            again.close().await;
            drop(again);
            assert!(check(&*disk, &mut |_, _| {}).expect("it can be checked").is_sound());
        }
    });
}

#[test]
fn a_cut_says_what_becomes_of_streams_and_opening_does_it() {
    block_on(async {
        let disk = FaultyDisk::new(1);
        let store = open_store(&disk, 1);
        fill(&store, 0..30).await;
        fill_maps(&store, 0..10).await;
        let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("it is declared");
        let at = super::samples::borders(&log).await[12];
        let records = all_records(&store).await;
        store.close().await;
        drop((store, log));
        let done = cut_at(&disk, at, &Options::default()).expect("it is cut");
        let again = open_store(&disk, 2);
        assert_eq!(done.streams.len(), 2);
        for stream in &done.streams {
            let (_, entries) = all_entries(&again, DEFAULT_SCOPE, &stream.name).await;
            assert_eq!(entries.len() as u64, stream.stay);
            assert!(stream.stay < stream.entries);
        }
        assert_eq!(all_records(&again).await, records);
    });
}

#[test]
fn a_later_backup_sends_a_map_again_only_if_it_has_changed() {
    block_on(async {
        let store = store().await;
        let kept = FaultyDisk::new(3);
        let names = || kept.files().into_iter().map(|(path, _)| path).filter(|it| it.contains("_engine")).collect();
        let (_, all) = back_up(&store, into_folder(&kept)).expect("it is taken");
        let first: Vec<String> = names();
        let (_, few) = back_up(&store, into_folder(&kept)).expect("it is taken again");
        assert!(few * 2 < all, "{few} of {all} bytes came again");
        assert_eq!(names(), first);
        fill_maps(&store, 40..41).await;
        back_up(&store, into_folder(&kept)).expect("it is taken again");
        let second = names();
        assert!(second.len() == 1 && second != first, "{second:?}: what only the earlier one needed is gone");
        let again = open_store(&restored_of(&kept), 5);
        assert_eq!(all_records(&again).await, all_records(&store).await);
    });
}

/// Versions before this one left maps out.
#[test]
fn a_backup_without_maps_is_restored_as_it_was() {
    block_on(async {
        let store = open_store(&FaultyDisk::new(1), 1);
        fill(&store, 0..10).await;
        let kept = FaultyDisk::new(3);
        let (manifest, _) = back_up(&store, into_folder(&kept)).expect("it is taken");
        assert!(manifest.tenants.iter().all(|tenant| tenant.map.is_none()));
        let text =
            String::from_utf8(kept.files().into_iter().find(|(path, _)| path == "manifest.json").expect("one").1);
        assert!(!text.expect("JSON").contains("\"map\""), "it is one of before");
        let disk = restored_of(&kept);
        assert!(disk.files().iter().all(|(path, _)| !path.contains("_engine")));
        fill_maps(&open_store(&disk, 5), 0..3).await;
    });
}

/// Whoever writes down how far they have read the log: with what comes after the backup began, a record would name events that the
/// backup does not have.
///
/// # Errors
/// What was not as it must be.
pub async fn of_one_moment(options: Options) -> Result<(), String> {
    let store = EmbeddedStore::open(FaultyDisk::new(1), options.clone()).expect("it opens");
    let (log, records, streams) = parts(&store);
    records.declare(Collection::new("positions")).await.expect("it is declared");
    let step = async |n: usize| {
        let number = log.commit(commit(n)).await.expect("it is accepted").first_sequence_number.expect("a number");
        follow(&records, &streams, number).await;
    };
    for n in [1, 2, 3] {
        step(n).await;
    }
    let mut backup = store.backup(None).expect("it begins");
    for n in [5, 6, 7] {
        step(n).await;
    }
    let kept = FaultyDisk::new(3);
    let mut to = into_folder(&kept);
    while let Some(piece) = backup.next().map_err(|error| error.to_string())? {
        to.push(&piece).map_err(|error| error.message)?;
    }
    to.finish().map_err(|error| error.message)?;
    let (disk, _) = restored(&Source::Folder(kept), &Restore::default(), &options).map_err(|error| error.message)?;
    let again = EmbeddedStore::open(disk, options).map_err(|error| error.message)?;
    not_ahead(&again).await
}

fn parts(store: &EmbeddedStore) -> (Arc<dyn EventLog>, Arc<dyn Records>, Arc<dyn Streams>) {
    (
        store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("it is declared"),
        store.records(DEFAULT_TENANT).expect("it is declared"),
        store.streams(DEFAULT_TENANT, DEFAULT_SCOPE).expect("it is declared"),
    )
}

/// What a handler does: writes two records at once with how far it has come, and judges for a stream.
async fn follow(records: &Arc<dyn Records>, streams: &Arc<dyn Streams>, number: u64) {
    let position = |id: &str| RecordChange::put("positions", raw(&doc! { "_id": id, "next": number as i64 + 1 }));
    records.write(vec![position("a"), position("b")]).await.expect("it is accepted");
    let from = streams.stream("followed").await.expect("it is looked up").progress;
    if from <= number {
        let verdicts = Verdicts::new("followed", from..number + 1).include(Included::new(number));
        streams.append(verdicts).await.expect("it is appended");
    }
}

async fn not_ahead(store: &EmbeddedStore) -> Result<(), String> {
    let (log, records, streams) = parts(store);
    let head = log.head().await.expect("a head");
    let next = async |id: &str| {
        let record = records.get("positions", &Bson::from(id)).await.expect("it is looked up");
        record.map_or(0, |record| record.document.get_i64("next").expect("a number") as u64)
    };
    let (a, b) = (next("a").await, next("b").await);
    let progress = streams.stream("followed").await.expect("it is looked up").progress;
    match a == b && a <= head && progress <= head {
        true => Ok(()),
        false => Err(format!("a log of {head} events, records that say {a} and {b}, a stream judged up to {progress}")),
    }
}

#[test]
fn nothing_in_a_backup_knows_of_an_event_that_it_does_not_have() {
    block_on(of_one_moment(options(1))).unwrap_or_else(|wrong| panic!("{wrong}"));
}

/// Makes a backup of records, restores it, and compares.
///
/// # Errors
/// What was not as it must be.
#[cfg(feature = "seeded-bugs")]
pub fn restores_all_records(options: &Options) -> Result<(), String> {
    block_on(async {
        let store = store().await;
        let kept = FaultyDisk::new(3);
        back_up(&store, into_folder(&kept)).map_err(|error| error.message)?;
        let (disk, _) = restored(&Source::Folder(kept), &Restore::default(), options).map_err(|error| error.message)?;
        let again = EmbeddedStore::open(disk, options.clone()).map_err(|error| error.message)?;
        if all_records(&again).await == all_records(&store).await {
            Ok(())
        } else {
            Err("records are missing".to_owned())
        }
    })
}

/// What was written to records, by the number of the change.
type Written = BTreeMap<ChangeNumber, (i32, Option<i32>)>;

/// The state of records after a change, as those who wrote them know it.
fn state_at(written: &Written, last: ChangeNumber) -> BTreeMap<i32, i32> {
    let mut state = BTreeMap::new();
    for (id, value) in written.range(..=last).map(|(_, change)| change) {
        match value {
            Some(value) => state.insert(*id, *value),
            None => state.remove(id),
        };
    }
    state
}

async fn write_on(records: Arc<dyn Records>, stop: Arc<AtomicBool>, writer: i32) -> Written {
    let mut written = Written::new();
    let mut n = 0;
    while !stop.load(Ordering::Relaxed) {
        n += 1;
        let id = writer * 10 + n % 7;
        let document = |id: i32| {
            let unique = format!("{id}-{n}");
            raw(&doc! { "_id": id, "value": n, "name": unique, "kind": "k", "rank": n % 9, "text": "x".repeat(300) })
        };
        let changes = match n % 5 {
            4 => vec![RecordChange::delete_if("things", id, annals_core::Expected::Present)],
            _ => {
                vec![RecordChange::put("things", document(id)), RecordChange::put("things", document(writer * 10 + 9))]
            }
        };
        let ids: Vec<_> = if n % 5 == 4 { vec![(id, None)] } else { vec![(id, Some(n)), (writer * 10 + 9, Some(n))] };
        match records.write(changes).await {
            Ok(numbers) => written.extend(numbers.into_iter().zip(ids)),
            // There is nothing to delete yet.
            Err(error) => assert!(matches!(error, RecordError::NotAsExpected { .. }), "{error}"),
        }
    }
    written
}

#[test]
fn a_backup_taken_under_load_has_the_records_of_one_moment_and_the_log_of_no_earlier_one() {
    block_on(async {
        let store = Arc::new(open_store(&FaultyDisk::new(1), 1));
        let (log, records, streams) = parts(&store);
        records.declare(Collection::new("positions")).await.expect("it is declared");
        records.declare(things()).await.expect("it is declared");
        let (stop, read) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let writers: Vec<_> =
            (0..3).map(|writer| tokio::spawn(write_on(records.clone(), stop.clone(), writer))).collect();
        let follower = tokio::spawn({
            let (stop, read) = (stop.clone(), read.clone());
            async move {
                let mut n = 0;
                while !stop.load(Ordering::Relaxed) {
                    let number =
                        log.commit(commit(n)).await.expect("it is accepted").first_sequence_number.expect("a number");
                    follow(&records, &streams, number).await;
                    read.store(number, Ordering::Relaxed);
                    n += 1;
                }
            }
        });
        let mut kept = Vec::new();
        for n in 0..6 {
            let before = read.load(Ordering::Relaxed);
            while read.load(Ordering::Relaxed) < before + 5 {
                tokio::task::yield_now().await;
            }
            let (store, disk) = (store.clone(), FaultyDisk::new(n));
            let taken = tokio::task::spawn_blocking(move || {
                let to = Receiver::into_folder(disk.clone()).expect("it is new");
                back_up(&*store, to).map(|_| disk).unwrap_or_else(|error| panic!("{error}"))
            });
            kept.push(taken.await.expect("it is taken"));
        }
        stop.store(true, Ordering::Relaxed);
        follower.await.expect("it ends");
        let mut written = Written::new();
        for writer in writers {
            written.extend(writer.await.expect("it ends"));
        }
        let mut moments = Vec::new();
        for disk in kept {
            let disk = restored_of(&disk);
            assert!(check(&*disk, &mut |_, _| {}).expect("it can be checked").is_sound());
            let again = open_store(&disk, 5);
            not_ahead(&again).await.unwrap_or_else(|wrong| panic!("{wrong}"));
            let records = again.records(DEFAULT_TENANT).expect("it is declared");
            let last = records.last_change("things").await.expect("a number");
            let found = records_of(&records, "things").await;
            let found = found.iter().map(|(_, document, _)| {
                (document.get_i32("_id").expect("an id"), document.get_i32("value").expect("a value"))
            });
            assert_eq!(found.collect::<BTreeMap<_, _>>(), state_at(&written, last), "after change {last}");
            moments.push(last);
        }
        assert!(moments.is_sorted() && moments[0] < moments[5], "{moments:?}: writes went on meanwhile");
    });
}

#[test]
fn a_map_in_an_archive_that_was_altered_is_refused_by_name() {
    block_on(async {
        let store = store().await;
        let kept = FaultyDisk::new(3);
        let (manifest, _) = back_up(&store, into_folder(&kept)).expect("it is taken");
        let name = manifest.tenants[0].map.clone().expect("there is one").name;
        let length = kept.files().iter().find(|(path, _)| *path == name).expect("it is there").1.len();
        let places = (0..length).step_by(length / 17);
        for place in places.clone().map(|at| (at, true)).chain(places.map(|at| (at, false))) {
            let altered = disk_with(&kept.files());
            altered.damage(&name, |bytes| if place.1 { bytes[place.0] ^= 4 } else { bytes.truncate(place.0) });
            let target: Arc<dyn Disk> = FaultyDisk::new(2);
            let source = Source::Folder(altered);
            let refused = restore(&source, &target, &Restore::default(), &options(4), &mut |_, _| {});
            let error = refused.map(|_| ()).expect_err("it was altered");
            assert_eq!(error.code, Code::InvalidBackup, "{error}");
            assert!(error.message.contains(&name), "{error}");
        }
    });
}

#[test]
fn a_damaged_map_is_not_backed_up() {
    block_on(async {
        let disk = FaultyDisk::new(1);
        let store = open_store(&disk, 1);
        fill_maps(&store, 0..40).await;
        store.close().await;
        drop(store);
        let path = "tenants/default/_engine/map.redb";
        disk.damage(path, |bytes| {
            // In pages that nothing refers to any more, too.
            let found = bytes.windows(7).enumerate().filter(|(_, window)| *window == b"name-17");
            let places: Vec<_> = found.map(|(at, _)| at).collect();
            places.into_iter().for_each(|at| bytes[at] ^= 1);
        });
        let error = back_up(&open_store(&disk, 1), into_folder(&FaultyDisk::new(1))).map(|_| ()).expect_err("damaged");
        assert_eq!(error.code, Code::StoreDamaged);
        assert!(error.message.contains(path), "{error}");
    });
}
