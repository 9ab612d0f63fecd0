//! The floor of free disk: commits are refused below it, reads go on, and commits are taken again when there is room.

use std::time::Duration;

use annals_conformance::history::read_all;
use annals_core::{Code, EventLog};
use annals_embedded::Options;

use super::samples::commit;
use crate::faulty_disk::FaultyDisk;
use crate::stores::{block_on, open, tiny_segments};

const FLOOR: u64 = 100_000;
const DEADLINE: Duration = Duration::from_secs(30);

/// Commits until one is refused.
async fn refused(log: &std::sync::Arc<dyn EventLog>) -> Result<annals_core::CommitError, String> {
    let committing = async {
        for n in 0.. {
            match log.commit(commit(n)).await {
                Ok(_) => tokio::task::yield_now().await,
                Err(error) => return error,
            }
        }
        unreachable!("it ends with a refusal")
    };
    tokio::time::timeout(DEADLINE, committing).await.map_err(|_| "no commit was refused".to_owned())
}

/// Fills a disk down to the floor and frees it again; says what was not as it must be.
pub async fn passes_the_floor(options: Options) -> Result<(), String> {
    let disk = FaultyDisk::new(1);
    let opened = open(disk.clone(), Options { min_free_disk_bytes: FLOOR, ..options }).expect("it opens");
    for n in 0..5 {
        opened.log.commit(commit(n)).await.expect("there is room");
    }
    disk.set_room(Some(disk.used() + FLOOR / 2));
    let error = refused(&opened.log).await?;
    if error.code() != Code::DiskFull || !error.to_string().contains(&FLOOR.to_string()) {
        return Err(format!("{error}"));
    }
    assert!(!read_all(&opened.log).await.expect("reads go on").is_empty());
    // A segment that could not be made may have been the reason; then a smaller commit still finds a place.
    let head = loop {
        let head = opened.log.head().await.expect("a head");
        if let Err(error) = opened.log.commit(commit(1)).await {
            assert_eq!(error.code(), Code::DiskFull);
            break head;
        }
    };
    assert_eq!(opened.log.head().await.expect("a head"), head, "nothing of a refused commit is stored");
    disk.set_room(None);
    let outcome = opened.log.commit(commit(1)).await.map_err(|error| error.to_string())?;
    assert_eq!(outcome.first_sequence_number, Some(head));
    Ok(())
}

#[test]
fn below_the_floor_commits_are_refused_reads_go_on_and_room_ends_it() {
    block_on(passes_the_floor(tiny_segments())).unwrap_or_else(|wrong| panic!("{wrong}"));
}

/// Segments are made ahead; making one does not take what the floor keeps.
#[test]
fn a_new_segment_does_not_take_what_the_floor_keeps() {
    block_on(async {
        let disk = FaultyDisk::new(1);
        let options = Options { min_free_disk_bytes: FLOOR, ..tiny_segments() };
        let opened = open(disk.clone(), options).expect("it opens");
        let segments = || disk.files().iter().filter(|(path, _)| path.ends_with(".segment")).count();
        let before = segments();
        disk.set_room(Some(disk.used() + FLOOR + 1_000));
        let error = refused(&opened.log).await.unwrap_or_else(|wrong| panic!("{wrong}"));
        assert_eq!(error.code(), Code::DiskFull, "{error}");
        assert!(error.to_string().contains("min_free_disk_bytes"), "{error}");
        assert_eq!(segments(), before);
        disk.set_room(None);
        for n in 0..10 {
            opened.log.commit(commit(n)).await.expect("there is room");
        }
        assert!(segments() > before);
    });
}
