//! An earlier copy of a map is refused wherever a process ends, and a map that is where it belongs never is.

use std::sync::Arc;

use annals_core::bson::{RawDocumentBuf, doc};
use annals_core::{Code, Collection, Condition, DEFAULT_TENANT, RecordChange, Store, StoreError};
use annals_embedded::disk::{Disk, Open};
use annals_embedded::operations::{Restore, Source, check, reindex};
use annals_embedded::{EmbeddedStore, Options};

use super::backup::{back_up, into_folder, restored};
use super::lost::{ENGINE, Files, MAP, file, records_are_refused};
use super::map_samples::records_of;
use super::samples::{disk_with, options};
use crate::faulty_disk::{Fault, FaultyDisk};
use crate::stores::block_on;

const TENANT: &str = "tenants/default/tenant.json";
const NOTES: &str = "notes";
/// More operations than opening, three writes and closing take.
const OPERATIONS: u64 = 140;

/// Opens the store, writes these records one after another and closes it. Answers which of them were answered.
async fn live(disk: &Arc<FaultyDisk>, options: Options, ids: &[i32]) -> Vec<i32> {
    let mut answered = Vec::new();
    let Ok(store) = EmbeddedStore::open(disk.clone(), options) else { return answered };
    let records = store.records(DEFAULT_TENANT).expect("it is declared");
    let declared = records.declare(Collection::new(NOTES)).await;
    for id in ids.iter().filter(|_| declared.is_ok()) {
        let note = RawDocumentBuf::try_from(&doc! { "_id": *id }).expect("a document");
        if records.write(vec![RecordChange::put(NOTES, note)]).await.is_ok() {
            answered.push(*id);
        }
    }
    store.close().await;
    answered
}

/// The ids of the records of a store with these files, or why they are refused.
async fn ids(files: &Files, options: Options) -> Result<Vec<i32>, StoreError> {
    let store = EmbeddedStore::open(disk_with(files), options).unwrap_or_else(|error| panic!("{error}"));
    let refusing = store.status().into_iter().find_map(|log| log.records_refusing);
    if let Some(why) = refusing {
        return Err(why);
    }
    let records = store.records(DEFAULT_TENANT).expect("it is declared");
    if records.count(NOTES, &Condition::All).await.is_err_and(|error| error.code() == Code::UnknownCollection) {
        return Ok(Vec::new());
    }
    let found = records_of(&records, NOTES).await;
    store.close().await;
    Ok(found.into_iter().map(|(_, document, _)| document.get_i32("_id").expect("a number")).collect())
}

/// The files of one store with those of another below a path in their place.
fn with_part(files: &Files, part: &Files, below: &str) -> Files {
    let ours = files.iter().filter(|(path, _)| !path.starts_with(below));
    let mut all: Files = ours.chain(part.iter().filter(|(path, _)| path.starts_with(below))).cloned().collect();
    all.sort();
    all
}

/// A disk on which these files would survive a loss of power.
fn durable(files: &Files) -> Arc<FaultyDisk> {
    let disk = disk_with(files);
    for (path, _) in files {
        let dir = path.rsplit_once('/').map_or("", |(dir, _)| dir);
        disk.open(path, Open::Write).and_then(|file| file.sync()).expect("it is synced");
        disk.sync_dir(dir).expect("it is synced");
    }
    disk
}

/// Lets a process end at each operation, and puts each earlier map, and each earlier folder of the engine, in the place of what it left.
/// What was answered is there, or the records are refused; with its own map the store is never refused.
pub fn holds_at_every_operation(change: impl Fn(&mut Options)) -> Result<(), String> {
    let with = |seed| {
        let mut options = options(seed);
        change(&mut options);
        options
    };
    block_on(async {
        let disk = FaultyDisk::new(1);
        let mut earlier = Vec::new();
        for life in 0..3 {
            live(&disk, with(life), &[life as i32]).await;
            earlier.push((disk.files(), life as i32));
        }
        let before = disk.files();
        for operation in 0..OPERATIONS {
            let disk = durable(&before);
            disk.plan(operation, Fault::End);
            let new = live(&disk, with(operation), &[10, 11]).await;
            let left = if operation % 2 == 0 { disk.after_kill() } else { disk.after_power_loss() }.files();
            let due: Vec<i32> = [0, 1, 2].into_iter().chain(new).collect();
            let is_lost = |found: &[i32]| due.iter().any(|id| !found.contains(id));
            match ids(&left, with(7)).await {
                Err(why) => return Err(format!("ended at {operation}: a good store is refused: {why}")),
                Ok(found) if is_lost(&found) => return Err(format!("ended at {operation}: {due:?} became {found:?}")),
                Ok(_) => {}
            }
            for (files, life) in &earlier {
                for below in [MAP, ENGINE] {
                    match ids(&with_part(&left, files, below), with(8)).await {
                        Err(why) if why.code() == Code::StoreDamaged && why.to_string().contains(ENGINE) => {}
                        Err(why) => return Err(format!("ended at {operation}: {why}")),
                        Ok(found) if is_lost(&found) => {
                            return Err(format!(
                                "ended at {operation}: {below} of life {life} was taken: {found:?} of {due:?}"
                            ));
                        }
                        Ok(_) => {}
                    }
                }
            }
        }
        Ok(())
    })
}

#[test]
fn wherever_a_process_ends_its_own_map_is_taken_and_no_earlier_one() {
    holds_at_every_operation(|_| {}).unwrap_or_else(|broken| panic!("{broken}"));
}

/// The files of a store after each of these many closings.
fn closed_after_each(lives: i32) -> Vec<Files> {
    block_on(async {
        let disk = FaultyDisk::new(1);
        let mut all = Vec::new();
        for life in 0..lives {
            assert_eq!(live(&disk, options(life as u64), &[life]).await, [life]);
            all.push(disk.files());
        }
        all
    })
}

#[test]
fn an_earlier_copy_of_a_map_is_damage_that_names_the_file_and_both_generations() {
    let all = closed_after_each(3);
    let swapped = with_part(&all[2], &all[0], MAP);
    let finding = records_are_refused(
        "an earlier map",
        &swapped,
        MAP,
        "it is an earlier copy: its generation is 2, and tenant.json names 6",
    );
    assert_eq!((finding.kind, finding.file.as_str()), ("map", MAP));
    // The whole folder, so that map and journal fit.
    records_are_refused("an earlier folder", &with_part(&all[2], &all[1], ENGINE), MAP, "it is an earlier copy");
    let older = with_part(&all[2], &all[0], TENANT);
    records_are_refused("an earlier tenant.json", &older, MAP, "its generation is 6, and tenant.json names 2");
    assert_eq!(block_on(ids(&all[2], options(9))), Ok(vec![0, 1, 2]));
}

#[test]
fn an_earlier_copy_of_a_map_is_damage_over_a_killed_store_whose_journal_holds_answered_writes() {
    let closed = closed_after_each(2);
    let killed = block_on(async {
        let disk = disk_with(&closed[1]);
        let store = EmbeddedStore::open(disk.clone(), options(5)).expect("it opens");
        let records = store.records(DEFAULT_TENANT).expect("it is declared");
        let note = RawDocumentBuf::try_from(&doc! { "_id": 5 }).expect("a document");
        records.write(vec![RecordChange::put(NOTES, note)]).await.expect("it is answered");
        disk.after_kill().files()
    });
    for earlier in &closed {
        for below in [MAP, ENGINE] {
            records_are_refused("an earlier map", &with_part(&killed, earlier, below), MAP, "it is an earlier copy");
        }
    }
    assert_eq!(block_on(ids(&killed, options(6))), Ok(vec![0, 1, 5]));
}

#[test]
fn a_store_whose_tenant_file_names_no_generation_opens_and_gets_it() {
    let closed = closed_after_each(2);
    let mut unnoted = closed[1].clone();
    *file(&mut unnoted, TENANT) = without_generation(file(&mut closed[1].clone(), TENANT));
    block_on(async {
        let disk = disk_with(&unnoted);
        live(&disk, options(3), &[]).await;
        let noted = disk.files();
        records_are_refused_in(&with_part(&noted, &closed[0], MAP));
        assert_eq!(ids(&noted, options(4)).await, Ok(vec![0, 1]));
    });
}

fn records_are_refused_in(files: &Files) {
    let report = check(&*disk_with(files), &mut |_, _| {}).unwrap_or_else(|error| panic!("{error}"));
    assert!(report.damage.iter().any(|it| it.file == MAP && it.what.contains("earlier copy")), "{report:#?}");
}

/// As a version wrote it that knew of no generation.
fn without_generation(bytes: &[u8]) -> Vec<u8> {
    let text = std::str::from_utf8(bytes).expect("JSON");
    let from = text.find(r#","map_generation":"#).expect("it is noted");
    let content = text.find(r#""content":"#).expect("it is sealed") + 10;
    let end = text.rfind(r#","crc32c":"#).expect("it is sealed");
    let to = from + 1 + text[from + 1..].find([',', '}']).expect("it ends");
    let kept = format!("{}{}", &text[content..from], &text[to..end]);
    let crc = crc32c::crc32c(kept.as_bytes());
    format!("{}{kept},\"crc32c\":{crc}}}", &text[..content]).into_bytes()
}

#[test]
fn a_restored_map_says_whose_it_is_before_anything_is_written_to_it() {
    let closed = closed_after_each(1);
    let restore = |seed: u64| {
        block_on(async {
            let disk = FaultyDisk::new(seed);
            live(&disk, options(seed), &[seed as i32]).await;
            let store = EmbeddedStore::open(disk, options(seed)).expect("it opens");
            let kept = FaultyDisk::new(3);
            back_up(&store, into_folder(&kept)).expect("it is backed up");
            restored(&Source::Folder(kept), &Restore::default(), &options(4)).expect("it is restored").0.files()
        })
    };
    let (ours, theirs) = (restore(21), restore(22));
    for place in [&ours, &closed[0]] {
        let swapped = with_part(place, &theirs, MAP);
        records_are_refused("another store's", &swapped, MAP, "the map of another store or of another tenant");
    }
    assert_eq!(block_on(ids(&ours, options(9))), Ok(vec![21]));
}

#[test]
fn a_map_whose_indexes_were_made_again_is_taken() {
    let closed = closed_after_each(2);
    block_on(async {
        let disk = disk_with(&closed[1]);
        for _ in 0..3 {
            let on: Arc<dyn Disk> = disk.clone();
            reindex(&on, DEFAULT_TENANT, true, &options(4)).expect("they are made again");
        }
        let store = EmbeddedStore::open(disk.clone(), options(5)).expect("it opens");
        assert!(store.status().iter().all(|log| log.records_refusing.is_none()), "{:?}", store.status());
        let records = store.records(DEFAULT_TENANT).expect("it is declared");
        assert_eq!(records_of(&records, NOTES).await.len(), 2);
    });
}
