//! A check finds every kind of damage that is planted, says where, and calls nothing else damage.

use annals_core::{Code, DEFAULT_SCOPE, DEFAULT_TENANT};
use annals_embedded::operations::{CheckReport, Finding, check};

use super::samples::{LOGS, disk_with, filled, frames, hash_to, open_store};
use crate::faulty_disk::FaultyDisk;
use crate::stores::block_on;

const COMMITS: usize = 60;
const DIR: &str = "tenants/default/default";

fn checked(disk: &FaultyDisk) -> CheckReport {
    check(disk, &mut |done, total| assert!(done <= total, "{done} of {total}"))
        .unwrap_or_else(|error| panic!("{error}"))
}

/// The names and bytes of a sound store's files.
fn sound(closed: bool) -> Vec<(String, Vec<u8>)> {
    block_on(filled(COMMITS, closed)).files()
}

fn file<'a>(files: &'a mut [(String, Vec<u8>)], path: &str) -> &'a mut Vec<u8> {
    let found = files.iter_mut().find(|(name, _)| name == path);
    &mut found.unwrap_or_else(|| panic!("no {path}")).1
}

fn segment(number: usize) -> String {
    format!("{DIR}/{number:010}.segment")
}

/// Plants a damage and gives what is found; the first finding must be of this kind.
#[track_caller]
fn found(kind: &str, plant: impl FnOnce(&mut Vec<(String, Vec<u8>)>)) -> Finding {
    let mut files = sound(true);
    plant(&mut files);
    let disk = disk_with(&files);
    let report = checked(&disk);
    assert_eq!(disk.files(), files, "a check changes nothing");
    let first = report.damage.first().cloned().unwrap_or_else(|| panic!("{kind} was not found: {report:?}"));
    assert_eq!(first.kind, kind, "{report:#?}");
    assert!(!first.what.is_empty() && !first.advice.is_empty());
    first
}

/// A kill may leave a file of the keeper's that was being written.
fn is_left_by_the_keeper(note: &Finding) -> bool {
    note.kind == "unfinished_file"
}

#[test]
fn a_sound_store_has_no_damage_and_the_hashes_of_its_logs() {
    block_on(async {
        for closed in [true, false] {
            let disk = filled(COMMITS, closed).await;
            let report = checked(&disk);
            assert!(report.is_sound(), "{report:#?}");
            assert!(closed && report.notes.is_empty() || report.notes.iter().all(is_left_by_the_keeper), "{report:#?}");
            let store = open_store(&disk, 2);
            assert_eq!(report.logs.len(), LOGS.len());
            for log in &report.logs {
                use annals_core::Store;
                let open = store.log(&log.tenant, &log.scope).expect("it is there");
                let head = open.head().await.expect("a head");
                // Six of the commits are transactions of three.
                assert_eq!((log.head, log.events, log.commits, log.aggregates), (head, head, COMMITS as u64 + 12, 12));
                assert_eq!(log.events_hash, Some(hash_to(&open, head).await));
                // How far the keeper has come with its indexes when it is killed is its own affair.
                assert!(log.segments > 3 && (!closed || log.indexes >= log.segments - 2), "{log:?}");
            }
        }
    });
}

#[test]
fn every_byte_of_a_commit_counts() {
    let files = sound(true);
    let bytes = &files.iter().find(|(path, _)| *path == segment(2)).expect("it is there").1;
    let starts = frames(bytes);
    for place in (starts[1]..starts[2]).step_by(5) {
        let finding = found_any(|files| file(files, &segment(2))[place] ^= 4);
        let padding = finding.is_none();
        // Only the zeros behind a frame that fill it up to a multiple of 8 mean nothing.
        assert!(!padding || bytes[place] == 0, "byte {place} was flipped and nobody noticed");
        let Some(finding) = finding else { continue };
        assert!(["payload", "frame_header"].contains(&finding.kind), "{finding:?}");
        assert_eq!(finding.file, segment(2));
        assert_eq!(finding.offset, Some(starts[1] as u64), "{finding:?}");
        assert!(finding.sequence_number.is_some());
    }
}

fn found_any(plant: impl FnOnce(&mut Vec<(String, Vec<u8>)>)) -> Option<Finding> {
    let mut files = sound(true);
    plant(&mut files);
    checked(&disk_with(&files)).damage.first().cloned()
}

#[test]
fn damage_names_the_tenant_the_scope_and_what_it_costs() {
    let path = "tenants/other/partner/0000000002.segment";
    let mut at = 0;
    let finding = found("payload", |files| {
        let bytes = file(files, path);
        at = frames(bytes)[0];
        bytes[at + 50] ^= 1;
    });
    assert_eq!((finding.tenant.as_deref(), finding.scope.as_deref()), (Some("other"), Some("partner")));
    assert_eq!((finding.file.as_str(), finding.offset), (path, Some(at as u64)));
    assert!(finding.what.contains("sequence number") && finding.advice.contains("--cut-at"), "{finding:?}");
}

#[test]
fn damage_in_several_places_is_found_in_one_check() {
    let mut files = sound(true);
    for number in [2, 3, 4] {
        let bytes = file(&mut files, &segment(number));
        let start = frames(bytes)[1];
        bytes[start + 50] ^= 1;
    }
    let report = checked(&disk_with(&files));
    let places: Vec<_> = report.damage.iter().map(|finding| finding.file.clone()).collect();
    assert_eq!(places, [segment(2), segment(3), segment(4)], "{report:#?}");
}

#[test]
fn a_segment_that_is_gone_swapped_cut_or_headless_is_found() {
    let finding = found("segment_missing", |files| files.retain(|(path, _)| *path != segment(2)));
    assert_eq!(finding.file, segment(2));
    found("segment_missing", |files| files.retain(|(path, _)| *path != segment(1)));
    found("segment_header", |files| {
        let second = std::mem::take(file(files, &segment(2)));
        let third = std::mem::replace(file(files, &segment(3)), second);
        *file(files, &segment(2)) = third;
    });
    found("segment_header", |files| file(files, &segment(2))[20] ^= 1);
    found("segment_cut", |files| {
        let bytes = file(files, &segment(2));
        bytes.truncate(bytes.len() - 8);
    });
    // The last segment of a store that was closed in an orderly way.
    found("end_missing", |files| {
        let last = files
            .iter()
            .rposition(|(path, bytes)| path.starts_with(DIR) && path.ends_with(".segment") && bytes[64] != 0);
        let (path, _) = files.remove(last.expect("there are segments"));
        files.retain(|(other, _)| !other.starts_with(DIR) || !other.ends_with(".segment") || *other < path);
    });
}

#[test]
fn segments_of_another_log_are_told_apart() {
    // The same numbers and the same sequence numbers, and another owner and salt: the indexes do not fit either.
    let finding = found("segment_foreign", |files| {
        let others = std::mem::take(file(files, "tenants/default/partner/0000000002.segment"));
        *file(files, &segment(2)) = others.clone();
        *file(files, "tenants/default/partner/0000000002.segment") = others;
    });
    assert!(finding.what.contains("another scope"), "{finding:?}");
}

#[test]
fn a_repeated_segment_is_found_by_its_numbers_versions_and_requests() {
    let mut files = sound(true);
    let second = file(&mut files, &segment(2)).clone();
    // Its header says another number now, as only someone who makes files by hand could.
    let mut forged = second.clone();
    forged[16] = 3;
    let crc = crc32c::crc32c(&forged[..60]);
    forged[60..64].copy_from_slice(&crc.to_le_bytes());
    *file(&mut files, &segment(3)) = forged;
    let report = checked(&disk_with(&files));
    let kinds: std::collections::BTreeSet<_> = report.damage.iter().map(|finding| finding.kind).collect();
    for kind in ["sequence_number", "version", "request_id", "index"] {
        assert!(kinds.contains(kind), "{kind}: {report:#?}");
    }
}

#[test]
fn a_damaged_index_is_found_and_its_page_named() {
    let index = format!("{DIR}/0000000002.index");
    let pages = sound(true).iter().find(|(path, _)| *path == index).expect("it is there").1.len() / 4096;
    for page in 0..pages {
        let finding = found("index", |files| file(files, &index)[page * 4096 + 9] ^= 1);
        assert_eq!((&finding.file, finding.offset), (&index, Some(page as u64 * 4096)), "{finding:?}");
        assert!(finding.advice.contains("remove"), "{finding:?}");
    }
    found("index", |files| file(files, &index).truncate(4096));
    found("index", |files| file(files, &index).extend_from_slice(&[0; 4096]));
    let finding = found("index", |files| {
        let other = file(files, &format!("{DIR}/0000000003.index")).clone();
        *file(files, &index) = other;
    });
    assert!(finding.what.contains("another segment"), "{finding:?}");
}

#[test]
fn small_files_that_are_not_what_was_written_are_found() {
    found("store_file", |files| file(files, "store.json")[30] ^= 1);
    found("tenant_file", |files| file(files, "tenants/other/tenant.json")[30] ^= 1);
    found("tenant_file", |files| files.retain(|(path, _)| path != "tenants/other/tenant.json"));
    found("checkpoint", |files| file(files, &format!("{DIR}/checkpoint.json"))[30] ^= 1);
}

/// What a crash leaves behind is no damage, however it looks.
#[test]
fn a_torn_tail_is_a_note_and_no_damage() {
    block_on(async {
        let disk = filled(COMMITS, false).await;
        let files = disk.files();
        let written =
            |(path, bytes): &&(String, Vec<u8>)| path.starts_with(DIR) && path.ends_with(".segment") && bytes[64] != 0;
        let (path, bytes) = files.iter().rfind(written).expect("there are segments");
        let last = *frames(bytes).last().expect("frames");
        disk.damage(path, |bytes| bytes[last + 50] ^= 1);
        let report = checked(&disk);
        assert!(report.is_sound(), "{report:#?}");
        let notes: Vec<_> = report.notes.iter().filter(|note| !is_left_by_the_keeper(note)).collect();
        assert_eq!(notes.len(), 1, "{report:#?}");
        assert_eq!((notes[0].kind, notes[0].offset), ("torn_tail", Some(last as u64)));
        // The same in the middle is damage: what follows says that it had been synced.
        let before = frames(bytes)[0];
        disk.damage(path, |bytes| bytes[before + 50] ^= 1);
        if before != last {
            assert!(!checked(&disk).is_sound());
        }
    });
}

#[test]
fn files_that_do_not_belong_there_are_noted() {
    let mut files = sound(true);
    files.push((format!("{DIR}/notes.txt"), b"x".to_vec()));
    files.push((format!("{DIR}/0000000001.index.unfinished"), b"x".to_vec()));
    let report = checked(&disk_with(&files));
    assert!(report.is_sound());
    let kinds: Vec<_> = report.notes.iter().map(|note| note.kind).collect();
    assert_eq!(kinds, ["unfinished_file", "foreign_file"]);
}

#[test]
fn a_store_that_is_open_or_no_store_is_refused() {
    block_on(async {
        let disk = FaultyDisk::new(1);
        let quiet = &mut |_, _| {};
        assert_eq!(check(&*disk, quiet).expect_err("there is nothing").code, Code::NotAStore);
        let store = open_store(&disk, 1);
        assert_eq!(check(&*disk, quiet).expect_err("it is open").code, Code::StoreLocked);
        drop(store);
        assert!(checked(&disk).is_sound());
        disk.damage("store.json", |bytes| *bytes = b"{\"format\":999,\"content\":{},\"crc32c\":1}".to_vec());
        assert_eq!(check(&*disk, quiet).expect_err("it is newer").code, Code::NewerFormat);
        assert_eq!((DEFAULT_TENANT, DEFAULT_SCOPE), LOGS[0]);
    });
}

#[test]
fn what_a_cut_segment_lacks_is_not_called_a_torn_tail() {
    let mut files = sound(false);
    let ours = |(path, bytes): &&mut (String, Vec<u8>)| {
        path.starts_with(DIR) && path.ends_with(".segment") && !frames(bytes).is_empty()
    };
    let (path, bytes) = files.iter_mut().filter(ours).max_by_key(|(path, _)| path.clone()).expect("a segment");
    let starts = frames(bytes);
    bytes.truncate(starts[starts.len() / 2] + 20);
    let path = path.clone();
    let report = checked(&disk_with(&files));
    assert!(report.damage.iter().any(|it| it.kind == "segment_cut" && it.file == path), "{report:#?}");
    assert!(report.notes.iter().all(|note| note.kind != "torn_tail"), "{report:#?}");
}
