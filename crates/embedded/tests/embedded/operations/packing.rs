//! Packed segments: they hold what was there, whatever ends or fails the packing, and every operation works on them as on others.

use std::sync::Arc;

use annals_conformance::history::read_all;
use annals_core::{
    Code, DEFAULT_SCOPE, DEFAULT_TENANT, Data, Included, NewCommit, NewEvent, RecordedEvent, Store, StreamQuery,
    Verdicts, limits,
};
use annals_embedded::disk::Disk;
use annals_embedded::operations::{PackReport, Restore, Source, check, pack, restore};
use annals_embedded::{EmbeddedStore, Options, Packing};

use super::backup::{back_up, into_folder};
use super::repair::{cut_at, events};
use super::samples::{LOGS, borders, commit, disk_with, fill, filled, hash_to, open_store, options};
use crate::faulty_disk::{Fault, FaultyDisk};
use crate::stores::{PACK_ALWAYS, PACK_NEVER, block_on};

const COMMITS: usize = 60;
const DIR: &str = "tenants/default/default";

fn always() -> Options {
    Options { packing: PACK_ALWAYS, ..options(7) }
}

pub fn pack_now(
    disk: &Arc<FaultyDisk>,
    options: &Options,
) -> Result<PackReport, annals_embedded::operations::OperationError> {
    let disk: Arc<dyn Disk> = disk.clone();
    pack(&disk, options, &mut |done, total| assert!(done <= total, "{done} of {total}"))
}

/// A filled disk all of whose closed segments are packed.
pub async fn packed(commits: usize) -> Arc<FaultyDisk> {
    let disk = filled(commits, true).await;
    let report = pack_now(&disk, &always()).unwrap_or_else(|error| panic!("{error}"));
    assert!(report.logs.iter().all(|log| log.segments >= 2 && log.left == 0), "{report:?}");
    disk
}

/// Whether a file is a packed segment: its header says format 2.
pub fn is_packed((path, bytes): &(String, Vec<u8>)) -> bool {
    path.ends_with(".segment") && bytes.get(8..12) == Some(&[2, 0, 0, 0])
}

fn packed_segments(disk: &FaultyDisk) -> usize {
    disk.files().iter().filter(|file| is_packed(file)).count()
}

async fn borders_of(disk: &Arc<FaultyDisk>) -> Vec<u64> {
    let store = open_store(disk, 9);
    let borders = borders(&store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("it is declared")).await;
    store.close().await;
    borders
}

async fn all_events(disk: &Arc<FaultyDisk>) -> Vec<Vec<RecordedEvent>> {
    let mut all = Vec::new();
    for (tenant, scope) in LOGS {
        all.push(events(disk, tenant, scope).await);
    }
    all
}

#[track_caller]
fn is_sound(disk: &FaultyDisk) {
    let report = check(disk, &mut |_, _| {}).unwrap_or_else(|error| panic!("{error}"));
    assert!(report.is_sound(), "{report:#?}");
}

#[test]
fn packed_segments_hold_what_was_there_and_take_its_place() {
    block_on(async {
        let before = filled(COMMITS, true).await;
        let due = all_events(&disk_with(&before.files())).await;
        let disk = disk_with(&before.files());
        pack_now(&disk, &always()).expect("it is packed");
        is_sound(&disk);
        let (was, is) = (before.files(), disk.files());
        let known = |path: &String| was.iter().any(|(before, _)| before == path);
        assert!(is.iter().all(|(path, _)| known(path)), "nothing is left beside the log's files");
        let changed = is.iter().zip(&was).filter(|(now, before)| is_packed(now) && !is_packed(before)).count();
        assert!(changed >= 8, "{changed} segments were packed");
        assert_eq!(all_events(&disk).await, due);
        let store = open_store(&disk, 2);
        for (tenant, scope) in LOGS {
            let log = store.log(tenant, scope).expect("it is declared");
            assert!(log.commit(commit(3)).await.expect("a repeat").duplicate);
            assert!(!log.commit(commit(500)).await.expect("it is accepted").duplicate);
        }
        store.close().await;
        assert_eq!(pack_now(&disk, &always()).expect("there is nothing to do").logs[0].segments, 0);
    });
}

#[test]
fn an_index_of_a_packed_segment_is_made_again() {
    block_on(async {
        let disk = packed(COMMITS).await;
        let due = all_events(&disk_with(&disk.files())).await;
        let kept: Vec<_> = disk.files().into_iter().filter(|(path, _)| !path.ends_with(".index")).collect();
        let without = disk_with(&kept);
        is_sound(&without);
        assert_eq!(all_events(&without).await, due);
        let indexes = |disk: &FaultyDisk| -> Vec<_> {
            disk.files().into_iter().filter(|(path, _)| path.ends_with(".index")).collect()
        };
        assert_eq!(indexes(&without), indexes(&disk), "the same as the packer wrote");
        is_sound(&without);
    });
}

#[test]
fn segments_that_would_save_too_little_stay_as_they_are() {
    block_on(async {
        let disk = filled(COMMITS, true).await;
        let before = disk.files();
        let options = Options { packing: Packing { least_saving_percent: 95, ..PACK_ALWAYS }, ..always() };
        let report = pack_now(&disk, &options).expect("it is looked at");
        assert!(report.logs.iter().all(|log| log.segments == 0 && log.left >= 2), "{report:?}");
        assert_eq!(packed_segments(&disk), 0);
        let known = |path: &String| before.iter().any(|(before, _)| before == path);
        assert!(disk.files().iter().all(|(path, _)| known(path)), "nothing is left of the try");
        is_sound(&disk);
    });
}

#[test]
fn a_page_of_a_stream_ends_by_what_its_events_hold_however_little_their_packed_segments_store() {
    const TIMES: u64 = 16;
    const EVENTS: u64 = 20 * TIMES;
    block_on(async {
        let size = 4 << 20;
        let plain = Options { segment_bytes_first: size, segment_bytes_max: size, packing: PACK_NEVER, ..options(1) };
        let disk = FaultyDisk::new(1);
        let store = EmbeddedStore::open(disk.clone(), plain.clone()).unwrap_or_else(|error| panic!("{error}"));
        let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("it is declared");
        let fields: serde_json::Map<String, serde_json::Value> =
            (0..600).map(|n| (format!("{n:x}"), "x".repeat(127).into())).collect();
        let data = Data::from_value(&fields).expect("an object");
        for _ in 0..TIMES {
            let commit = (0..EVENTS / TIMES)
                .fold(NewCommit::new("order", "o"), |commit, _| commit.event(NewEvent::new("placed", data.clone())));
            log.commit(commit).await.expect("it is accepted");
        }
        let streams = store.streams(DEFAULT_TENANT, DEFAULT_SCOPE).expect("it is declared");
        let included = (0..EVENTS).map(Included::new).collect();
        streams.append(Verdicts { included, ..Verdicts::new("all", 0..EVENTS) }).await.expect("they are stored");
        store.close().await;
        let report = pack_now(&disk, &Options { packing: PACK_ALWAYS, ..plain.clone() }).expect("it is packed");
        let is_packed = report.logs.iter().any(|log| log.segments >= 4 && log.bytes_after < log.bytes_before / 4);
        assert!(is_packed, "{report:?}");

        let store = EmbeddedStore::open(disk, plain).unwrap_or_else(|error| panic!("{error}"));
        let streams = store.streams(DEFAULT_TENANT, DEFAULT_SCOPE).expect("it is declared");
        let mut from = 0;
        while from < EVENTS {
            let query = StreamQuery { from, limit: limits::PAGE_MAX, ..StreamQuery::new("all") };
            let page = streams.read_events(query).await.expect("they are read");
            let bytes: usize = page.events.iter().map(|entry| entry.event.data.as_bytes().len()).sum();
            assert!(bytes < limits::PAGE_BYTES_MAX + data.as_bytes().len(), "{bytes} bytes from {from}");
            assert!(page.next > from, "at least one event");
            from = page.next;
        }
        store.close().await;
    });
}

/// Packs in the background until all that is closed is packed, while commits come.
#[test]
fn a_store_packs_while_it_is_read_and_written() {
    block_on(async {
        let disk = FaultyDisk::new(1);
        let store = EmbeddedStore::open(disk.clone(), always()).unwrap_or_else(|error| panic!("{error}"));
        fill(&store, 0..COMMITS).await;
        let mut number = 1_000;
        while packed_segments(&disk) < 12 {
            fill(&store, number..number + 10).await;
            number += 10;
            assert!(number < 20_000, "nothing is packed");
        }
        for (tenant, scope) in LOGS {
            let log = store.log(tenant, scope).expect("it is declared");
            let events = read_all(&log).await.expect("it is read");
            assert_eq!(events.len() as u64, log.head().await.expect("a head"));
        }
        store.close().await;
        is_sound(&disk);
    });
}

/// A process that ends at any operation leaves a store that holds everything; one that goes on after a failure does so too.
pub fn survives_every_operation(fault: Fault, power_stays: bool, options: &Options) -> Result<usize, String> {
    block_on(async {
        let original = filled(20, true).await;
        let due = all_events(&disk_with(&original.files())).await;
        for operation in 0..2_000 {
            let disk = original.after_kill().after_kill();
            for (path, _) in disk.files() {
                use annals_embedded::disk::Open;
                disk.open(&path, Open::Read).expect("it is there").sync().expect("it is synced");
                disk.sync_dir(path.rsplit_once('/').map_or("", |(dir, _)| dir)).expect("it is synced");
            }
            disk.plan(operation, fault);
            let ended = pack_now(&disk, options);
            let fired = !disk.fired().is_empty();
            let next = if power_stays { disk.after_kill() } else { disk.after_power_loss() };
            let what = format!("operation {operation}: {:?}, {:?}", disk.fired(), ended.as_ref().err());
            let report = check(&*next, &mut |_, _| {}).map_err(|error| error.to_string())?;
            if !report.is_sound() {
                return Err(format!("{what}: as it was left: {report:#?}"));
            }
            for ((tenant, scope), due) in LOGS.into_iter().zip(&due) {
                let store =
                    EmbeddedStore::open(next.clone(), options.clone()).map_err(|error| format!("{what}: {error}"))?;
                if let Some(refusing) = store.status().into_iter().find_map(|log| log.refusing) {
                    return Err(format!("{what}: {refusing}"));
                }
                let log = store.log(tenant, scope).expect("it is declared");
                let found = read_all(&log).await.map_err(|error| format!("{what}: {error}"))?;
                if found != *due {
                    return Err(format!("{what}: {} of {} events of {tenant}/{scope}", found.len(), due.len()));
                }
                store.close().await;
            }
            let report = check(&*next, &mut |_, _| {}).map_err(|error| error.to_string())?;
            if !report.is_sound() {
                return Err(format!("{what}: {report:#?}"));
            }
            if !fired {
                return Ok(operation as usize);
            }
        }
        Err("packing has more than 2,000 operations".to_owned())
    })
}

#[test]
fn packing_may_end_at_any_operation_by_power_loss() {
    let operations = survives_every_operation(Fault::End, false, &always()).unwrap_or_else(|wrong| panic!("{wrong}"));
    assert!(operations > 60, "{operations} operations");
}

#[test]
fn packing_may_end_at_any_operation_by_kill() {
    survives_every_operation(Fault::End, true, &always()).unwrap_or_else(|wrong| panic!("{wrong}"));
}

#[test]
fn any_operation_of_packing_may_fail() {
    survives_every_operation(Fault::Error, false, &always()).unwrap_or_else(|wrong| panic!("{wrong}"));
}

#[test]
fn a_full_disk_leaves_segments_as_they_are_and_commits_go_on() {
    block_on(async {
        let disk = filled(COMMITS, true).await;
        disk.set_room(Some(disk.used() + 200));
        let error = pack_now(&disk, &always()).expect_err("there is no room");
        assert_eq!(error.code, Code::DiskFull, "{error}");
        assert!(packed_segments(&disk) < 8);
        is_sound(&disk);
        disk.set_room(None);
        pack_now(&disk, &always()).expect("there is room again");
        assert!(packed_segments(&disk) >= 8);
    });
}

#[test]
fn a_damaged_segment_is_not_packed() {
    block_on(async {
        let disk = filled(COMMITS, true).await;
        disk.damage(&format!("{DIR}/0000000002.segment"), |bytes| bytes[300] ^= 1);
        let error = pack_now(&disk, &always()).expect_err("it is damaged");
        assert!(error.message.contains("0000000002.segment"), "{error}");
        let files = disk.files();
        assert!(files.iter().any(|file| file.0.ends_with("default/default/0000000001.segment") && is_packed(file)));
        assert!(files.iter().any(|file| file.0.ends_with("default/default/0000000002.segment") && !is_packed(file)));
        assert!(!check(&*disk, &mut |_, _| {}).expect("it can be checked").is_sound());
    });
}

#[test]
fn a_check_names_what_is_damaged_in_a_packed_segment_and_goes_on_behind_it() {
    block_on(async {
        let original = packed(COMMITS).await.files();
        let segment = format!("{DIR}/0000000002.segment");
        let bytes = &original.iter().find(|(path, _)| *path == segment).expect("it is there").1;
        let mut later = 0;
        for at in (0..bytes.len()).step_by(7) {
            let disk = disk_with(&original);
            disk.damage(&segment, |bytes| bytes[at] ^= 0x10);
            let report = check(&*disk, &mut |_, _| {}).expect("it can be checked");
            assert!(!report.is_sound(), "byte {at}");
            assert_eq!(report.damage[0].file, segment, "byte {at}: {report:#?}");
            later += usize::from(report.logs[0].commits > 40);
        }
        assert!(later > bytes.len() / 7 / 3, "the commits behind the damage were found {later} times");
    });
}

#[test]
fn a_packed_log_is_cut_at_any_border() {
    block_on(async {
        let original = packed(COMMITS).await;
        let all = events(&disk_with(&original.files()), LOGS[0].0, LOGS[0].1).await;
        for at in borders_of(&disk_with(&original.files())).await {
            let disk = disk_with(&original.files());
            cut_at(&disk, at, &Options::default()).unwrap_or_else(|error| panic!("{at}: {error}"));
            is_sound(&disk);
            let store = open_store(&disk, 3);
            let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("it is there");
            assert_eq!(read_all(&log).await.expect("it is read"), all[..at as usize], "{at}");
            assert_eq!(log.commit(commit(1)).await.expect("it takes commits").first_sequence_number, Some(at));
            store.close().await;
            is_sound(&disk);
        }
    });
}

fn restored(kept: &Arc<FaultyDisk>, cut: Option<u64>) -> Arc<FaultyDisk> {
    let disk = FaultyDisk::new(2);
    let target: Arc<dyn Disk> = disk.clone();
    let what = Restore { cut: cut.map(|at| (DEFAULT_TENANT.to_owned(), DEFAULT_SCOPE.to_owned(), at)) };
    restore(&Source::Folder(kept.clone()), &target, &what, &options(4), &mut |_, _| {})
        .unwrap_or_else(|error| panic!("{error}"));
    is_sound(&disk);
    disk
}

#[test]
fn a_backup_of_packed_segments_is_restored_whole_and_in_part() {
    block_on(async {
        let disk = packed(COMMITS).await;
        let all = all_events(&disk_with(&disk.files())).await;
        let kept = FaultyDisk::new(3);
        back_up(&open_store(&disk, 1), into_folder(&kept)).unwrap_or_else(|error| panic!("{error}"));
        let whole = restored(&kept, None);
        assert!(packed_segments(&whole) >= 8);
        assert_eq!(all_events(&whole).await, all);
        for at in borders_of(&disk_with(&whole.files())).await.into_iter().step_by(5) {
            let part = restored(&kept, Some(at));
            assert_eq!(events(&part, DEFAULT_TENANT, DEFAULT_SCOPE).await, all[0][..at as usize]);
        }
    });
}

#[test]
fn a_segment_may_be_packed_between_two_backups_and_during_one() {
    block_on(async {
        let disk = filled(COMMITS, true).await;
        let kept = FaultyDisk::new(3);
        let store = open_store(&disk, 1);
        back_up(&store, into_folder(&kept)).expect("it is taken");
        store.close().await;
        drop(store);
        let store = EmbeddedStore::open(disk.clone(), always()).unwrap_or_else(|error| panic!("{error}"));
        let mut receiver = into_folder(&kept);
        let mut backup = store.backup(receiver.earlier()).expect("it is begun");
        let mut seen = 0;
        while let Some(piece) = backup.next().unwrap_or_else(|error| panic!("{error}")) {
            receiver.push(&piece).unwrap_or_else(|error| panic!("{error}"));
            seen += 1;
            if seen == 2 {
                let mut number = 1_000;
                while packed_segments(&disk) < 8 {
                    fill(&store, number..number + 1).await;
                    number += 1;
                }
            }
        }
        let manifest = receiver.finish().unwrap_or_else(|error| panic!("{error}"));
        let first = restored(&kept, None);
        let head = manifest.tenants[0].logs[0].head;
        let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("it is declared");
        assert_eq!(hash_to(&log, head).await, manifest.tenants[0].logs[0].events_hash);
        assert_eq!(events(&first, DEFAULT_TENANT, DEFAULT_SCOPE).await.len() as u64, head);
        back_up(&store, into_folder(&kept)).expect("it is taken again");
        let second = restored(&kept, None);
        assert!(packed_segments(&second) >= 8);
        let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("it is declared");
        assert_eq!(events(&second, DEFAULT_TENANT, DEFAULT_SCOPE).await, read_all(&log).await.expect("it is read"));
    });
}

#[test]
fn a_folder_without_a_store_and_a_damaged_store_are_refused() {
    block_on(async {
        let nothing = pack_now(&FaultyDisk::new(1), &always()).expect_err("there is no store");
        assert_eq!(nothing.code, Code::NotAStore, "{nothing}");
        let disk = filled(COMMITS, true).await;
        let segment = format!("{DIR}/0000000001.segment");
        disk.damage(&segment, |bytes| bytes[70] ^= 1);
        disk.damage(&format!("{DIR}/0000000001.index"), |bytes| bytes[70] ^= 1);
        let damaged = pack_now(&disk, &always()).expect_err("it is damaged");
        assert_eq!(damaged.code, Code::StoreDamaged, "{damaged}");
    });
}
