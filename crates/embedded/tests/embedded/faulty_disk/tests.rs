use std::sync::Arc;

use annals_embedded::disk::{Disk, DiskFile, Open};

use super::{Fault, FaultyDisk};

fn read(disk: &FaultyDisk, path: &str) -> Option<Vec<u8>> {
    disk.files().into_iter().find(|(name, _)| name == path).map(|(_, bytes)| bytes)
}

fn synced_file(disk: &FaultyDisk, path: &str, bytes: &[u8]) -> Arc<dyn DiskFile> {
    let file = disk.open(path, Open::Create).expect("it is created");
    file.write_at(bytes, 0).expect("it is written");
    file.sync().expect("it is synced");
    disk.sync_dir("").expect("the folder is synced");
    file
}

#[test]
fn what_was_synced_survives_power_loss_and_the_rest_may_not() {
    let mut lost = 0;
    let mut torn = 0;
    for seed in 0..200 {
        let disk = FaultyDisk::new(seed);
        let file = synced_file(&disk, "a", b"synced");
        file.write_at(&[7; 2000], 6).expect("it is written");
        let bytes = read(&disk.after_power_loss(), "a").expect("its name was synced");
        assert_eq!(bytes[..6], *b"synced");
        assert!(bytes[6..].iter().all(|byte| [0, 7].contains(byte)));
        let kept = bytes[6..].iter().filter(|byte| **byte == 7).count();
        lost += usize::from(kept == 0);
        torn += usize::from(kept > 0 && kept < 2000);
        assert!(file.write_at(b"x", 0).is_err(), "the process has ended");
    }
    assert!(lost > 20 && torn > 20, "lost {lost}, torn {torn}");
}

#[test]
fn a_name_that_was_not_synced_may_be_gone_and_a_removed_one_may_be_back() {
    let (mut there, mut back, mut renamed) = (0, 0, 0);
    for seed in 0..100 {
        let disk = FaultyDisk::new(seed);
        synced_file(&disk, "removed", b"1");
        synced_file(&disk, "old", b"2");
        disk.open("new", Open::Create).expect("it is created").sync().expect("it is synced");
        disk.remove("removed").expect("it is removed");
        disk.rename("old", "other").expect("it is renamed");
        let after = disk.after_power_loss();
        there += usize::from(read(&after, "new").is_some());
        back += usize::from(read(&after, "removed").is_some());
        renamed += usize::from(read(&after, "other").is_some());
        assert!(read(&after, "other").is_some() != read(&after, "old").is_some(), "one of both is there");
    }
    for count in [there, back, renamed] {
        assert!((20..80).contains(&count), "{there} {back} {renamed}");
    }
}

#[test]
fn a_killed_process_leaves_everything_it_wrote_to_the_next_one_but_not_to_the_disk() {
    let mut lost = 0;
    for seed in 0..50 {
        let disk = FaultyDisk::new(seed);
        let file = synced_file(&disk, "a", b"1");
        file.write_at(b"2", 0).expect("it is written");
        let next = disk.after_kill();
        assert_eq!(read(&next, "a").expect("it is there"), b"2");
        lost += usize::from(read(&next.after_power_loss(), "a").expect("it is there") == b"1");
    }
    assert!(lost > 5, "lost {lost} times");
}

#[test]
fn a_failed_sync_loses_what_reads_still_show_and_a_later_one_does_not_help() {
    let mut lost = 0;
    for seed in 0..100 {
        let disk = FaultyDisk::new(seed);
        let file = synced_file(&disk, "a", b"1");
        file.write_at(b"2", 0).expect("it is written");
        disk.plan(0, Fault::Error);
        assert!(file.sync().is_err());
        assert_eq!(read(&disk, "a").expect("it is there"), b"2", "reads still show it");
        file.sync().expect("a later sync succeeds");
        lost += usize::from(read(&disk.after_kill().after_power_loss(), "a").expect("it is there") == b"1");
    }
    assert!(lost > 20, "lost {lost} times");
}

#[test]
fn a_failed_write_may_have_written_its_first_bytes() {
    let lengths: std::collections::BTreeSet<usize> = (0..50)
        .map(|seed| {
            let disk = FaultyDisk::new(seed);
            let file = disk.open("a", Open::Create).expect("it is created");
            disk.plan(0, Fault::Error);
            assert!(file.write_at(&[1; 10], 0).is_err());
            read(&disk, "a").expect("it is there").len()
        })
        .collect();
    assert!(lengths.len() > 5, "{lengths:?}");
}

#[test]
fn a_full_disk_takes_what_fits_and_more_once_there_is_room() {
    let disk = FaultyDisk::new(1);
    let file = synced_file(&disk, "a", b"12345");
    disk.set_room(Some(8));
    file.write_at(b"xxxxx", 0).expect("what is there may be overwritten");
    let error = file.write_at(b"yyyyyy", 4).expect_err("it does not fit");
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    assert_eq!(disk.used(), 8);
    disk.set_room(None);
    file.write_at(b"yyyyyy", 4).expect("there is room");
}

#[test]
fn a_process_that_ends_can_do_nothing_more() {
    let disk = FaultyDisk::new(1);
    let file = synced_file(&disk, "a", b"1");
    let _lock = disk.lock().expect("it is free");
    assert!(disk.lock().is_err(), "it is taken");
    disk.plan(1, Fault::End);
    file.write_at(b"2", 0).expect("it is written");
    assert!(file.sync().is_err());
    assert!(file.read_at(&mut [0], 0).is_err() && disk.list("").is_err() && disk.remove("a").is_err());
    let next = disk.after_kill();
    next.lock().expect("the dead process does not hold it");
    assert_eq!(next.list("").expect("it lives"), ["a"]);
}

#[test]
fn a_held_sync_returns_when_it_is_released_or_the_process_ends() {
    for released in [true, false] {
        let disk = FaultyDisk::new(1);
        let file = synced_file(&disk, "a", b"1");
        disk.plan(0, Fault::Hold);
        let sync = std::thread::spawn(move || {
            file.write_at(b"2", 0)?;
            file.sync()
        });
        while !disk.holds() {
            std::thread::yield_now();
        }
        let next = if released {
            disk.release();
            None
        } else {
            Some(disk.after_kill())
        };
        assert_eq!(sync.join().expect("it ends").is_ok(), released);
        assert_eq!(read(next.as_ref().unwrap_or(&disk), "a").expect("it is there"), b"2");
    }
}
