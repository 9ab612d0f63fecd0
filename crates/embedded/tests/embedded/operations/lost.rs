//! Files that are gone, emptied, cut or of another store: never taken for a store in which nothing was written.

use annals_core::{Code, Collection, DEFAULT_SCOPE, DEFAULT_TENANT, LogStatus, Store};
use annals_embedded::operations::{CheckReport, Finding, Receiver, Restore, Source, check};
use annals_embedded::{EmbeddedStore, Options};

use super::backup::{back_up, into_folder, restored};
use super::map_samples::{all_records, fill_maps};
use super::samples::{LOGS, commit, disk_with, fill, open_store, options};
use crate::faulty_disk::FaultyDisk;
use crate::stores::block_on;

pub const ENGINE: &str = "tenants/default/_engine/";
pub const MAP: &str = "tenants/default/_engine/map.redb";
pub const JOURNAL: [&str; 2] = ["tenants/default/_engine/journal.0", "tenants/default/_engine/journal.1"];
pub const TENANT: &str = "tenants/default/tenant.json";
pub const LOG: &str = "tenants/default/default/";

pub type Files = Vec<(String, Vec<u8>)>;

/// The files of a store with events, records and streams that was closed, or whose process was killed.
fn files(closed: bool) -> Files {
    block_on(async {
        let disk = FaultyDisk::new(1);
        let store = open_store(&disk, 1);
        fill(&store, 0..10).await;
        fill_maps(&store, 0..60).await;
        if closed {
            store.close().await;
            return disk.files();
        }
        disk.after_kill().files()
    })
}

/// The files of a store that was killed before a log had a second segment.
fn of_one_segment() -> Files {
    block_on(async {
        let disk = FaultyDisk::new(1);
        let store = open_store(&disk, 1);
        for (tenant, scope) in LOGS {
            store.log(tenant, scope).expect("it is declared").commit(commit(1)).await.expect("it is accepted");
        }
        disk.after_kill().files()
    })
}

pub fn file<'f>(files: &'f mut Files, path: &str) -> &'f mut Vec<u8> {
    let found = files.iter_mut().find(|(name, _)| name == path);
    &mut found.unwrap_or_else(|| panic!("no {path}")).1
}

pub fn checked(files: &Files) -> CheckReport {
    let disk = disk_with(files);
    let report = check(&*disk, &mut |_, _| {}).unwrap_or_else(|error| panic!("{error}"));
    assert!(disk.files() == *files, "a check changed something");
    report
}

pub fn status_of(store: &dyn Store) -> LogStatus {
    let found = store.status().into_iter().find(|log| (&*log.tenant, &*log.scope) == (DEFAULT_TENANT, DEFAULT_SCOPE));
    found.expect("it is declared")
}

/// Records are refused for this reason, nothing of them is changed, and the log goes on.
#[track_caller]
pub fn records_are_refused(what: &str, files: &Files, names: &str, says: &str) -> Finding {
    let report = checked(files);
    assert_eq!(report.damage.len(), 1, "{what}: {report:#?}");
    let finding = report.damage[0].clone();
    assert!(finding.what.contains(names) && finding.what.contains(says), "{what}: {finding:?}");
    assert!(finding.advice.contains("restore a backup") && finding.advice.contains("--without-records"), "{finding:?}");
    let disk = disk_with(files);
    block_on(async {
        let store = open_store(&disk, 2);
        let status = status_of(&store);
        let refusal = status.records_refusing.expect("records are refused");
        assert_eq!((refusal.code(), status.refusing), (Code::StoreDamaged, None), "{what}");
        let refusal = refusal.to_string();
        assert!(refusal.contains(names) && !refusal.contains("cut the log"), "{what}: {refusal}");
        let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("it is declared");
        log.commit(commit(100)).await.expect("the log goes on");
        let records = store.records(DEFAULT_TENANT).expect("it is declared");
        assert_eq!(records.collections().await.expect_err("it is refused").code(), Code::StoreDamaged);
        store.close().await;
    });
    // Opening may have completed what a kill interrupted in the map; the journal is as it was.
    let journal = |files: Files| files.into_iter().filter(|(path, _)| JOURNAL.contains(&&**path)).collect::<Files>();
    assert!(journal(disk.files()) == journal(files.clone()), "{what}: opening changed what was there");
    let map = |files: &Files| files.iter().any(|(path, _)| path == MAP);
    assert_eq!(map(&disk.files()), map(files), "{what}");
    finding
}

#[test]
fn a_journal_that_lost_a_file_or_a_part_of_one_is_damage_and_nothing_of_it_is_removed() {
    let killed = files(false);
    assert!(checked(&killed).is_sound());
    for path in JOURNAL {
        let mut gone = killed.clone();
        gone.retain(|(name, _)| name != path);
        let finding = records_are_refused("gone", &gone, path, "it is missing");
        assert_eq!((finding.kind, finding.file.as_str(), finding.offset), ("journal", path, None));
        let other = JOURNAL[usize::from(path == JOURNAL[0])];
        let of_other = file(&mut killed.clone(), other).clone();
        let length = file(&mut killed.clone(), path).len();
        let planted = [
            ("emptied", Vec::new(), "it was truncated"),
            ("cut", file(&mut killed.clone(), path)[..1_000].to_vec(), "it was truncated"),
            ("zeroed", vec![0; length], "its header is damaged"),
            ("made up", vec![0x5a; length], "its header is damaged"),
            ("its other file", of_other, "another journal"),
        ];
        for (what, bytes, says) in planted {
            let mut files = killed.clone();
            *file(&mut files, path) = bytes;
            let finding = records_are_refused(what, &files, path, says);
            assert_eq!((finding.kind, finding.file.as_str()), ("journal", path));
            assert!(finding.offset.is_some(), "{finding:?}");
        }
    }
}

#[test]
fn a_journal_of_another_store_is_damage() {
    let (mut ours, mut others) = (
        files(false),
        block_on(async {
            let disk = FaultyDisk::new(7);
            let store = open_store(&disk, 7);
            fill_maps(&store, 0..60).await;
            disk.after_kill().files()
        }),
    );
    file(&mut ours, JOURNAL[0]).clone_from(file(&mut others, JOURNAL[0]));
    records_are_refused("another store's", &ours, JOURNAL[0], "another journal");
}

#[test]
fn an_earlier_map_beside_a_later_journal_is_damage() {
    let earlier = files(true);
    let mut later = block_on(async {
        let disk = disk_with(&earlier);
        let store = open_store(&disk, 2);
        fill_maps(&store, 60..90).await;
        disk.after_kill().files()
    });
    assert!(checked(&later).is_sound());
    file(&mut later, MAP).clone_from(file(&mut earlier.clone(), MAP));
    let finding = records_are_refused("an earlier map", &later, MAP, "it is an earlier copy");
    assert_eq!((finding.kind, finding.file.as_str()), ("map", MAP));
    // Beside a tenant.json of the same time, the journal alone tells.
    file(&mut later, TENANT).clone_from(file(&mut earlier.clone(), TENANT));
    let finding = records_are_refused("an earlier map", &later, JOURNAL[0], "an earlier copy");
    assert_eq!((finding.kind, finding.file.as_str()), ("journal", JOURNAL[0]));
}

#[test]
fn what_a_restored_store_loses_before_it_is_opened_is_damage() {
    let closed = files(true);
    let restored = block_on(async {
        let store = open_store(&disk_with(&closed), 2);
        let kept = FaultyDisk::new(3);
        back_up(&store, into_folder(&kept)).expect("it is backed up");
        restored(&Source::Folder(kept), &Restore::default(), &options(4)).expect("it is restored").0.files()
    });
    assert!(checked(&restored).is_sound());
    let mut gone = restored.clone();
    gone.retain(|(path, _)| !(path.starts_with(LOG) && path.ends_with(".segment")));
    the_log_is_refused(&gone, "segment_missing", "are missing");
    let mut gone = restored;
    gone.retain(|(path, _)| !path.starts_with(ENGINE));
    records_are_refused("the folder", &gone, MAP, "tenant.json says");
}

#[test]
fn a_map_that_is_gone_is_damage_with_and_without_its_journal() {
    for closed in [false, true] {
        let all = files(closed);
        let mut gone = all.clone();
        gone.retain(|(name, _)| name != MAP);
        let says = if closed { "tenant.json says" } else { "its journal is there" };
        let finding = records_are_refused("the map", &gone, MAP, says);
        assert_eq!((finding.kind, finding.file.as_str()), ("map", MAP));
        gone.retain(|(name, _)| !name.starts_with(ENGINE));
        records_are_refused("the folder", &gone, MAP, "tenant.json says");
    }
}

/// After a failed sync nobody knows what is in the map; what was answered is in the journal, whatever becomes of it.
#[test]
fn a_journal_stays_when_a_store_is_closed_that_could_not_move_it() {
    use crate::faulty_disk::Fault;
    block_on(async {
        let disk = FaultyDisk::new(1);
        let never_moved = || Options { journal_bytes_max: usize::MAX, ..options(1) };
        let store = EmbeddedStore::open(disk.clone(), never_moved()).expect("it opens");
        fill_maps(&store, 0..5).await;
        let answered = all_records(&store).await;
        // The write of its batch, and the sync.
        disk.plan(1, Fault::Error);
        let records = store.records(DEFAULT_TENANT).expect("it is declared");
        records.declare(Collection::new("more")).await.expect_err("its sync fails");
        store.close().await;
        drop(store);
        assert!(disk.files().iter().any(|(path, _)| path == JOURNAL[0]));
        let again = EmbeddedStore::open(disk.clone(), never_moved()).expect("it opens");
        assert_eq!(all_records(&again).await, answered);
        again.close().await;
        assert!(disk.files().iter().all(|(path, _)| !JOURNAL.contains(&&**path)), "all of it was moved");
    });
}

#[test]
fn a_torn_last_batch_of_records_is_passed_over_and_told() {
    let killed = block_on(async {
        let disk = FaultyDisk::new(1);
        let store = open_store(&disk, 1);
        fill_maps(&store, 0..2).await;
        disk.after_kill().files()
    });
    let mut torn = killed.clone();
    let bytes = file(&mut torn, JOURNAL[0]);
    let last = bytes.iter().rposition(|byte| *byte != 0).expect("batches");
    bytes[last] ^= 1;
    let report = checked(&torn);
    assert!(report.is_sound(), "{report:#?}");
    let note = report.notes.iter().find(|note| note.file == JOURNAL[0]).unwrap_or_else(|| panic!("{report:#?}"));
    let offset = note.offset.expect("it is said where");
    assert!(note.kind == "torn_tail" && offset % 512 == 0 && offset <= last as u64, "{note:?}");
    assert!(note.what.contains("unless the disk lost"), "{note:?}");
    block_on(async {
        let disk = disk_with(&torn);
        let store = open_store(&disk, 2);
        let recovery = status_of(&store).recovery;
        let told = |line: &&String| line.contains(JOURNAL[0]) && line.contains(&format!("offset {offset}"));
        assert_eq!(recovery.iter().filter(told).count(), 1, "{recovery:?}");
        assert!(!all_records(&store).await.is_empty());
        store.close().await;
        drop(store);
        let again = open_store(&disk, 3);
        assert!(status_of(&again).recovery.is_empty() && status_of(&again).records_refusing.is_none());
    });
}

#[test]
fn a_store_whose_records_are_lost_is_backed_up_and_restored_without_them() {
    let mut lost = files(true);
    lost.retain(|(name, _)| !name.starts_with(ENGINE));
    block_on(async {
        let store = open_store(&disk_with(&lost), 2);
        assert_eq!(store.backup(None).err().expect("it would miss the records").code(), Code::StoreDamaged);
        let kept = FaultyDisk::new(3);
        let mut to = Receiver::into_folder(kept.clone()).expect("it is new");
        let mut backup = store.backup_without_records().expect("it begins");
        while let Some(piece) = backup.next().expect("it goes on") {
            to.push(&piece).expect("it is kept");
        }
        let manifest = to.finish().expect("it is whole");
        assert_eq!(manifest.left_out, ["tenants/default/_engine", "tenants/other/_engine"]);
        let (disk, _) = restored(&Source::Folder(kept), &Restore::default(), &options(4)).expect("it is restored");
        let again = open_store(&disk, 5);
        let status = status_of(&again);
        assert_eq!((status.head, status.records_refusing), (status_of(&store).head, None));
        fill_maps(&again, 0..3).await;
        back_up(&again, into_folder(&FaultyDisk::new(6))).expect("it has records again");
    });
}

/// The log is refused with this reason, and a check finds it.
#[track_caller]
fn the_log_is_refused(files: &Files, kind: &str, says: &str) {
    let report = checked(files);
    let found = report.damage.iter().find(|finding| finding.kind == kind);
    assert!(found.is_some_and(|finding| finding.file.starts_with(LOG)), "{kind}: {report:#?}");
    let disk = disk_with(files);
    block_on(async {
        let store = open_store(&disk, 2);
        let status = status_of(&store);
        let refusal = status.refusing.expect("the log is refused").to_string();
        assert!(status.head == 0 && refusal.contains(says), "{refusal}");
        let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("it is declared");
        assert_eq!(log.commit(commit(1)).await.expect_err("it is refused").code(), Code::StoreDamaged);
        store.log(DEFAULT_TENANT, "partner").expect("it is declared").commit(commit(5)).await.expect("it goes on");
        store.close().await;
    });
    let of_log = |files: Files| files.into_iter().filter(|(path, _)| path.starts_with(LOG)).collect::<Files>();
    assert!(of_log(disk.files()) == of_log(files.clone()), "opening changed what was there");
}

#[test]
fn a_log_whose_only_segments_are_gone_or_emptied_is_damage() {
    let killed = of_one_segment();
    assert!(checked(&killed).is_sound());
    let is_segment = |path: &str| path.starts_with(LOG) && path.ends_with(".segment");
    let mut gone = killed.clone();
    gone.retain(|(path, _)| !is_segment(path));
    the_log_is_refused(&gone, "segment_missing", "are missing");
    gone.retain(|(path, _)| !path.starts_with(LOG));
    the_log_is_refused(&gone, "segment_missing", "are missing");
    for emptied in [0, 4_000] {
        let mut files = killed.clone();
        files.retain(|(path, _)| !is_segment(path) || path.ends_with("0000000001.segment"));
        *file(&mut files, &format!("{LOG}0000000001.segment")) = vec![0; emptied];
        the_log_is_refused(&files, "segment_header", "is damaged");
    }
}

#[test]
fn a_segment_of_another_store_or_scope_is_damage() {
    let ours = of_one_segment();
    let mut other_store = block_on(async {
        let disk = FaultyDisk::new(9);
        let store = open_store(&disk, 9);
        fill(&store, 0..2).await;
        disk.after_kill().files()
    });
    let first = format!("{LOG}0000000001.segment");
    let theirs = file(&mut other_store, &first).clone();
    let other_scope = file(&mut ours.clone(), "tenants/default/partner/0000000001.segment").clone();
    for foreign in [theirs, other_scope] {
        let mut files = ours.clone();
        *file(&mut files, &first) = foreign;
        the_log_is_refused(&files, "segment_foreign", "of another store or another scope");
    }
}

/// An opening that makes the first segment of an empty log anew may end anywhere: it never leaves a log that looks as if it had lost one.
#[test]
fn an_empty_log_that_is_opened_again_and_again_never_looks_damaged() {
    use crate::faulty_disk::Fault;
    for seed in 0..10 {
        let mut disk = FaultyDisk::new(seed);
        drop(open_store(&disk, seed));
        for operation in 0..60 {
            disk.plan(operation, Fault::End);
            let opened = EmbeddedStore::open(disk.clone(), options(seed + operation));
            if let Ok(store) = &opened {
                assert_eq!(status_of(store).refusing, None, "seed {seed}, ended at {operation}");
            }
            disk = if (operation + seed) % 2 == 0 { disk.after_kill() } else { disk.after_power_loss() };
        }
        let store = open_store(&disk, seed);
        assert!(store.status().iter().all(|log| log.refusing.is_none()), "seed {seed}: {:?}", store.status());
    }
}

pub const STORE_FILE: &str = "store.json";

/// Without the list of tenants, as an older version wrote it.
fn without_list(mut files: Files) -> Files {
    *file(&mut files, STORE_FILE) = include_bytes!("../../fixtures/format-1/store/store.json").to_vec();
    files
}

fn without(mut files: Files, folder: &str) -> Files {
    files.retain(|(path, _)| !path.starts_with(folder));
    files
}

#[test]
fn a_tenant_whose_whole_folder_is_gone_is_damage_and_never_an_empty_store() {
    let whole = files(true);
    assert!(checked(&whole).is_sound());
    for (folder, lost) in
        [("tenants/default/", &["default"][..]), ("tenants/other/", &["other"]), ("tenants/", &["default", "other"])]
    {
        let files = without(whole.clone(), folder);
        let report = checked(&files);
        let found: Vec<_> = report.damage.iter().map(|it| (it.kind, it.tenant.as_deref(), it.file.clone())).collect();
        let due: Vec<_> = lost.iter().map(|it| ("tenant", Some(*it), format!("tenants/{it}"))).collect();
        assert_eq!(found, due, "{folder}");
        assert!(report.damage.iter().all(|it| it.what.contains("store.json says that the tenant was begun")));
        let disk = disk_with(&files);
        let error = EmbeddedStore::open(disk.clone(), options(2)).err().expect("it is refused");
        assert_eq!(error.code, Code::StoreDamaged);
        assert!(error.message.contains(&format!("tenants/{} is missing", lost[0])), "{error}");
        assert!(disk.files().into_iter().all(|(path, _)| path == "lock" || !path.starts_with(folder)), "{folder}");
        // Tenants that are not lost can be opened without it.
        let kept = Options { tenants: vec!["other".to_owned()], ..options(2) };
        assert_eq!(EmbeddedStore::open(disk, kept).is_ok(), lost == ["default"], "{folder}");
    }
}

#[test]
fn a_store_without_the_list_of_tenants_gets_it_when_it_is_opened() {
    let older = without_list(files(true));
    assert!(checked(&older).is_sound());
    // Nothing says that the tenant was there.
    assert!(checked(&without(older.clone(), "tenants/other/")).is_sound());
    let disk = disk_with(&older);
    let one = Options { tenants: vec![DEFAULT_TENANT.to_owned()], ..options(2) };
    drop(EmbeddedStore::open(disk.clone(), one).expect("it opens"));
    let mut listed = disk.files();
    let text = String::from_utf8(file(&mut listed, STORE_FILE).clone()).expect("JSON");
    assert!(text.contains(r#""tenants":["default","other"]"#), "the one that is not declared too: {text}");
    let report = checked(&without(disk.files(), "tenants/other/"));
    assert_eq!(report.damage.iter().map(|it| it.kind).collect::<Vec<_>>(), ["tenant"]);
    drop(open_store(&disk, 3));
}

#[test]
fn a_restored_store_names_its_tenants() {
    let whole = files(true);
    block_on(async {
        let store = open_store(&disk_with(&whole), 2);
        let kept = FaultyDisk::new(3);
        back_up(&store, into_folder(&kept)).expect("it is backed up");
        let (disk, _) = restored(&Source::Folder(kept), &Restore::default(), &options(4)).expect("it is restored");
        let report = checked(&without(disk.files(), "tenants/default/"));
        assert_eq!(report.damage.iter().map(|it| it.kind).collect::<Vec<_>>(), ["tenant"]);
    });
}

/// The folder is made before the list names it, so neither end leaves a tenant that looks lost.
#[test]
fn a_first_opening_that_ends_anywhere_is_begun_again() {
    use crate::faulty_disk::Fault;
    for operation in 0..120 {
        for power in [false, true] {
            let disk = FaultyDisk::new(operation);
            disk.plan(operation, Fault::End);
            drop(EmbeddedStore::open(disk.clone(), options(operation)));
            let disk = if power { disk.after_power_loss() } else { disk.after_kill() };
            let store = EmbeddedStore::open(disk.clone(), options(operation + 1));
            let store = store.unwrap_or_else(|error| panic!("ended at {operation}, power lost {power}: {error}"));
            assert!(store.status().iter().all(|log| log.refusing.is_none()), "{operation}: {:?}", store.status());
            drop(store);
            // What was open is named: it can be missed from now on.
            let lost = disk_with(&without(disk.files(), "tenants/other/"));
            let error = EmbeddedStore::open(lost, options(operation + 2)).err().expect("it is refused");
            assert_eq!(error.code, Code::StoreDamaged, "{operation}");
        }
    }
}

#[test]
fn a_map_of_another_store_is_damage() {
    let ours = files(true);
    let mut others = block_on(async {
        let disk = FaultyDisk::new(7);
        let store = open_store(&disk, 7);
        fill_maps(&store, 0..60).await;
        store.close().await;
        disk.files()
    });
    let of_other_store = file(&mut others, MAP).clone();
    let mut files = ours;
    *file(&mut files, MAP) = of_other_store;
    let finding = records_are_refused("another store's", &files, MAP, "the map of another store or of another tenant");
    assert_eq!((finding.kind, finding.file.as_str()), ("map", MAP));
}
