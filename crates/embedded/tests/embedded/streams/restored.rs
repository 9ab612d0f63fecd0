//! What a restore makes of streams: nothing of an earlier incarnation is taken for the present.

use std::sync::Arc;

use annals_core::{
    Code, DEFAULT_SCOPE, DEFAULT_TENANT, Data, Included, NewCommit, NewEvent, Partitions, ReadError, Store,
    StreamError, StreamInfo, StreamQuery, Streams, Verdicts,
};
use annals_embedded::Options;
use annals_embedded::disk::{Disk, Open};

use crate::faulty_disk::FaultyDisk;
use crate::stores::{Opened, block_on, open, repeatable};

const TENANT_FILE: &str = "tenants/default/tenant.json";

/// Writes into the tenant's file what a restore writes.
fn begin_incarnation(disk: &FaultyDisk, incarnation: u32, start: u64) {
    disk.damage(TENANT_FILE, |bytes| {
        let text = String::from_utf8(bytes.clone()).expect("it is text");
        let document: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
        let mut content = document["content"].clone();
        content["incarnation"] = incarnation.into();
        content["incarnation_start"] = start.into();
        let content = content.to_string();
        let (format, crc) = (&document["format"], crc32c::crc32c(content.as_bytes()));
        *bytes = format!(r#"{{"format":{format},"content":{content},"crc32c":{crc}}}"#).into_bytes();
    });
}

fn streams_of(opened: &Opened) -> Arc<dyn Streams> {
    opened.store.streams(DEFAULT_TENANT, DEFAULT_SCOPE).expect("the default scope exists")
}

/// A store of a thousand events, and a stream that holds every other one, in three partitions.
async fn store_of_a_thousand(disk: &Arc<FaultyDisk>, options: Options) -> Opened {
    let opened = open(disk.clone(), options).expect("it opens");
    let events = (0..1_000).map(|_| NewEvent::new("t", Data::empty())).collect();
    opened.log.commit(NewCommit { events, ..NewCommit::new("order", "a") }).await.expect("it is committed");
    for stream in ["s", "t"] {
        let all = (0..1_000).step_by(2).fold(Verdicts::new(stream, 0..1_000), |all, n| all.include(in_turn(n)));
        streams_of(&opened).append(all).await.expect("they are appended");
    }
    opened
}

fn in_turn(number: u64) -> Included {
    match number / 2 % 3 {
        0 => Included::new(number),
        1 => Included::of(number, "a"),
        _ => Included::of(number, "b"),
    }
}

async fn numbers(opened: &Opened, partitions: Partitions) -> Result<Vec<u64>, ReadError> {
    let query = StreamQuery { limit: 1_000, partitions, ..StreamQuery::new("s") };
    Ok(streams_of(opened).read(query).await?.entries.iter().map(|entry| entry.sequence_number).collect())
}

/// # Errors
/// What a stream holds that it must not.
pub async fn a_stream_is_cut_where_the_log_was(change: impl Fn(&mut Options)) -> Result<(), String> {
    for start in [0, 1, 500, 511, 512, 513, 514, 998, 999] {
        let disk = FaultyDisk::new(start);
        let options = || {
            let mut options = Options { segment_bytes_first: 100_000, ..repeatable(start) };
            change(&mut options);
            options
        };
        store_of_a_thousand(&disk, options()).await.store.close().await;
        begin_incarnation(&disk, 1, start);
        // It is cut when it is opened, and durably so.
        drop(open(disk.clone(), options()).expect("it opens"));
        let opened = open(disk.after_power_loss(), options()).expect("it opens again");
        let kept = start.div_ceil(2);
        let expected = StreamInfo { name: "s".into(), head: kept, progress: start, incarnation_start: kept };
        let found = streams_of(&opened).stream("s").await.expect("it is looked up");
        if found != expected {
            return Err(format!("{found:?}, not {expected:?}"));
        }
        let all: Vec<u64> = (0..start).step_by(2).collect();
        assert_eq!(numbers(&opened, Partitions::All).await, Ok(all.clone()));
        for (turn, partition) in [(0, Partitions::Without), (1, Partitions::One("a".into()))] {
            let expected: Vec<u64> = all.iter().copied().filter(|number| number / 2 % 3 == turn).collect();
            assert_eq!(numbers(&opened, partition).await, Ok(expected));
        }
        // The filter goes on from the fork, and may judge otherwise now.
        let again = Verdicts::new("s", start..1_000).include(Included::of(999, "b"));
        let appended = streams_of(&opened).append(again).await.expect("it is appended");
        assert_eq!((appended.positions, appended.duplicate), (kept..kept + 1, false));
        let b: Vec<u64> = all.iter().copied().filter(|number| number / 2 % 3 == 2).chain([999]).collect();
        assert_eq!(numbers(&opened, Partitions::One("b".into())).await, Ok(b));
    }
    Ok(())
}

#[test]
fn a_stream_of_an_earlier_incarnation_is_cut_at_the_fork() {
    block_on(a_stream_is_cut_where_the_log_was(|_| {})).unwrap_or_else(|wrong| panic!("{wrong}"));
}

/// Two restores in a row, the second further on: what the first one cut does not come back.
#[test]
fn what_one_restore_cut_the_next_does_not_bring_back() {
    block_on(async {
        let disk = FaultyDisk::new(3);
        let options = || Options { segment_bytes_first: 100_000, ..repeatable(3) };
        store_of_a_thousand(&disk, options()).await.store.close().await;
        begin_incarnation(&disk, 1, 100);
        open(disk.clone(), options()).expect("it opens").store.close().await;
        begin_incarnation(&disk, 2, 700);
        let opened = open(disk.clone(), options()).expect("it opens");
        let found = streams_of(&opened).stream("s").await.expect("it is looked up");
        assert_eq!((found.head, found.progress, found.incarnation_start), (50, 100, 50));
    });
}

/// A store that says it is older than its streams, or whose log ends before what was judged, answers nothing of them.
#[test]
fn streams_that_are_not_of_this_log_are_refused() {
    block_on(async {
        let disk = FaultyDisk::new(4);
        let options = || Options { segment_bytes_first: 100_000, ..repeatable(4) };
        store_of_a_thousand(&disk, options()).await.store.close().await;
        begin_incarnation(&disk, 1, 100);
        open(disk.clone(), options()).expect("it opens").store.close().await;
        begin_incarnation(&disk, 0, 0);
        refuses_streams(&open(disk, options()).expect("it opens")).await;

        // The log is an older copy.
        let disk = FaultyDisk::new(5);
        let log = |disk: &FaultyDisk| {
            let mut files = disk.files();
            files.retain(|(path, _)| path.starts_with("tenants/default/default/"));
            files
        };
        open(disk.clone(), options()).expect("it opens").store.close().await;
        let older = log(&disk);
        let opened = store_of_a_thousand(&disk, options()).await;
        opened.store.close().await;
        log(&disk).iter().for_each(|(path, _)| disk.remove(path).expect("it is removed"));
        for (path, bytes) in older {
            disk.open(&path, Open::Create).expect("it is new").write_at(&bytes, 0).expect("it is written");
        }
        refuses_streams(&open(disk, options()).expect("it opens")).await;
    });
}

async fn refuses_streams(opened: &Opened) {
    assert_eq!(opened.status().refusing, None, "the log is well");
    let streams = streams_of(opened);
    let error = streams.stream("s").await.expect_err("it is refused");
    assert_eq!(error.code(), Code::StoreDamaged, "{error}");
    assert_eq!(numbers(opened, Partitions::All).await.expect_err("it is refused").code(), Code::StoreDamaged);
    let error = streams.append(Verdicts::new("u", 0..1)).await.expect_err("it is refused");
    assert!(matches!(&error, StreamError::Store(error) if error.code() == Code::StoreDamaged), "{error}");
}

/// Where the log is damaged, entries are read, and events up to the damage; nothing is appended.
#[test]
fn events_behind_damage_are_not_made_up() {
    block_on(async {
        let disk = FaultyDisk::new(6);
        let options = || repeatable(6);
        let opened = open(disk.clone(), options()).expect("it opens");
        for n in 0..60u64 {
            let commit = NewCommit::new("order", n.to_string()).event(NewEvent::new("t", Data::empty()));
            opened.log.commit(commit).await.expect("it is committed");
        }
        let all = (0..50).fold(Verdicts::new("s", 0..50), |all, n| all.include(Included::new(n)));
        streams_of(&opened).append(all).await.expect("they are appended");
        opened.store.close().await;
        let segments = disk.files().into_iter().filter(|(path, _)| path.ends_with(".segment"));
        let (last, bytes) = segments.filter(|(_, bytes)| bytes.iter().any(|b| *b != 0)).nth(1).expect("many");
        disk.damage(&last, |now| now[bytes.len() / 2] ^= 0x55);
        for (path, _) in disk.files().iter().filter(|(path, _)| path.ends_with(".index")) {
            annals_embedded::disk::Disk::remove(&*disk, path).expect("it is removed");
        }
        let opened = open(disk, options()).expect("it opens");
        let readable = opened.status().head;
        assert!(opened.status().refusing.is_some() && (1..50).contains(&readable), "{:?}", opened.status());
        assert_eq!(numbers(&opened, Partitions::All).await, Ok((0..50).collect()));
        let mut query = StreamQuery { limit: 7, ..StreamQuery::new("s") };
        let mut events = 0;
        let error = loop {
            match streams_of(&opened).read_events(query.clone()).await {
                Ok(page) => {
                    events += page.events.len() as u64;
                    query.from = page.next;
                }
                Err(error) => break error,
            }
        };
        assert_eq!((events, error.code()), (readable, Code::StoreDamaged));
        let error = streams_of(&opened).append(Verdicts::new("s", 50..60)).await.expect_err("it is refused");
        assert_eq!(error.code(), Code::StoreDamaged);
    });
}
