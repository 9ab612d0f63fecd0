//! Backups that somebody else wrote: their checksums are right, and what they name or state is not theirs to name.

use std::fs;
use std::sync::Arc;

use annals_core::Code;
use annals_embedded::disk::{Disk, RealDisk};
use annals_embedded::operations::{OperationError, Receiver, Restore, Source, restore};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::backup::{ARCHIVE, back_up, folder, restored, sample};
use super::samples::{disk_with, filled, open_store, options};
use crate::faulty_disk::FaultyDisk;
use crate::stores::block_on;

const MANIFEST: &str = "manifest.json";

/// Changes the content of a sealed file, and seals it again.
fn reseal(disk: &FaultyDisk, path: &str, change: impl FnOnce(&mut Value)) {
    disk.damage(path, |bytes| {
        let mut sealed: Value = serde_json::from_slice(bytes).expect("it is JSON");
        change(&mut sealed["content"]);
        let (format, content) = (&sealed["format"], sealed["content"].to_string());
        let crc = crc32c::crc32c(content.as_bytes());
        *bytes = format!(r#"{{"format":{format},"content":{content},"crc32c":{crc}}}"#).into_bytes();
    });
}

#[track_caller]
fn refused(error: Option<OperationError>, says: &str) {
    let error = error.expect("it is refused");
    assert_eq!(error.code, Code::InvalidBackup, "{error}");
    assert!(error.message.contains(says), "{error}");
}

/// Restores into a folder of the disk of this machine, where `..` leads out.
fn restored_on(root: &std::path::Path, backup: &Arc<FaultyDisk>) -> Option<OperationError> {
    let target: Arc<dyn Disk> = Arc::new(RealDisk::new(root.join("new")));
    restore(&folder(backup), &target, &Restore::default(), &options(4), &mut |_, _| {}).err()
}

#[test]
fn a_manifest_reaches_no_folder_outside_of_the_new_store() {
    let (backup, manifest) = sample();
    let root = tempfile::tempdir().expect("a folder");
    let victim = root.path().join("victim");
    fs::create_dir(&victim).expect("made");
    let files = backup.files();
    let (_, identity) = files.iter().find(|(path, _)| *path == manifest.tenants[0].file.name).expect("it is there");
    fs::write(victim.join("tenant.json"), identity).expect("written");

    let as_a_tenant = disk_with(&files);
    reseal(&as_a_tenant, MANIFEST, |content| {
        let mut tenant = content["tenants"][0].clone();
        tenant["tenant"] = json!("../../victim");
        tenant["logs"] = json!([]);
        tenant.as_object_mut().expect("an object").remove("map");
        content["tenants"].as_array_mut().expect("a list").push(tenant);
    });
    refused(restored_on(root.path(), &as_a_tenant), "../../victim");
    assert_eq!(&fs::read(victim.join("tenant.json")).expect("read"), identity);

    let as_a_scope = disk_with(&files);
    reseal(&as_a_scope, MANIFEST, |content| {
        let mut log = content["tenants"][0]["logs"][0].clone();
        (log["scope"], log["head"], log["segments"]) = (json!("../../../made"), json!(0), json!([]));
        log["events_hash"] = json!(annals_core::EventsHash::default());
        content["tenants"][0]["logs"].as_array_mut().expect("a list").push(log);
    });
    refused(restored_on(root.path(), &as_a_scope), "../../../made");
    assert!(!root.path().join("made").exists(), "no folder was created");
}

#[test]
fn a_file_in_the_folder_of_another_tenant_is_refused() {
    let (backup, manifest) = sample();
    let theirs = manifest.tenants[1].file.name.clone();
    reseal(&backup, MANIFEST, |content| {
        content["tenants"][0]["file"] = content["tenants"][1]["file"].clone();
    });
    refused(restored(&folder(&backup), &Restore::default(), &options(4)).err(), &theirs);
}

/// The archive of a filled store.
fn archive() -> Vec<u8> {
    let store = block_on(async { open_store(&filled(20, true).await, 1) });
    let kept = FaultyDisk::new(3);
    back_up(&store, Receiver::into_file(kept.clone(), ARCHIVE).expect("it is new")).expect("it is taken");
    kept.files()[0].1.clone()
}

fn restored_from(archive: Vec<u8>) -> Option<OperationError> {
    let source = Source::File(disk_with(&[(ARCHIVE.to_owned(), archive)]), ARCHIVE.to_owned());
    restored(&source, &Restore::default(), &options(4)).err()
}

/// Writes a name and a length into the header of an archive's file.
fn relabel(header: &mut [u8], name: &str, bytes: u64) {
    header[..100].fill(0);
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[124..136].copy_from_slice(format!("{bytes:011o}\0").as_bytes());
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

#[test]
fn a_file_that_the_manifest_does_not_list_is_refused() {
    let mut archive = archive();
    let planted = "tenants/default/default/0000000009-0-5.index";
    let mut file = archive[..512].to_vec();
    relabel(&mut file, planted, 5);
    file.extend_from_slice(b"index");
    file.resize(1_024, 0);
    file.append(&mut archive);
    refused(restored_from(file), planted);
}

#[test]
fn a_manifest_larger_than_any_is_refused_before_it_is_read() {
    let mut archive = archive();
    archive.truncate(512);
    relabel(&mut archive, MANIFEST, 2 << 30);
    refused(restored_from(archive), "larger than any manifest");
}

/// The zeros after a segment are not part of a backup; its header states how many there were.
#[test]
fn a_segment_that_states_an_impossible_size_does_not_fill_the_disk() {
    let (backup, manifest) = sample();
    let segment = &manifest.tenants[0].logs[0].segments[0].file.name;
    let mut sha256 = String::new();
    backup.damage(segment, |bytes| {
        bytes[32..40].copy_from_slice(&(1_u64 << 50).to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..60]);
        bytes[60..64].copy_from_slice(&crc.to_le_bytes());
        sha256 = Sha256::digest(&bytes[..]).iter().map(|byte| format!("{byte:02x}")).collect();
    });
    reseal(&backup, MANIFEST, |content| {
        content["tenants"][0]["logs"][0]["segments"][0]["file"]["sha256"] = json!(sha256);
    });
    let disk = FaultyDisk::new(2);
    disk.set_room(Some(4 * 1024 * 1024));
    let target: Arc<dyn Disk> = disk.clone();
    refused(restore(&folder(&backup), &target, &Restore::default(), &options(4), &mut |_, _| {}).err(), segment);
    assert_eq!(disk.files(), [], "nothing is left of it");
}
