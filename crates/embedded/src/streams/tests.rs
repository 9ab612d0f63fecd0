use std::sync::Arc;

use annals_core::{
    Code, Data, EventLog, Included, NewCommit, NewEvent, Partitions, StreamError, StreamQuery, Streams, Uuid, Verdicts,
};

use super::*;
use crate::disk::{Disk, MemoryDisk};
use crate::engine::{Change, Known, Space, View};
use crate::log::Place as LogPlace;
use crate::terms::TermKey;

/// Streams of a log with so many events.
async fn streams(events: u64) -> LogStreams {
    let (disk, options) = (Arc::new(MemoryDisk::default()) as Arc<dyn Disk>, Options::default());
    let place = LogPlace {
        tenant: "t".to_owned(),
        scope: DEFAULT_SCOPE.to_owned(),
        disk: disk.clone(),
        dir: "log".to_owned(),
        begun: false,
        key: TermKey([7; 16]),
    };
    let log = Arc::new(Log::open(place, &options).expect("the log opens"));
    let engine =
        Arc::new(Engine::open(disk, "engine".to_owned(), Known::default(), &options).expect("the engine opens"));
    let identity = Identity { store_id: Uuid::nil(), incarnation: 0, incarnation_start: 0 };
    let streams = LogStreams::open(engine, log, DEFAULT_SCOPE, &identity, &options).expect("streams open");
    for _ in 0..events / 10_000 {
        let events = vec![NewEvent::new("t", Data::empty()); 10_000];
        streams.log.commit(NewCommit { events, ..NewCommit::new("order", "a") }).await.expect("it is committed");
    }
    streams
}

/// Appends what `judge` says of every event, in runs.
async fn fill(streams: &LogStreams, run: u64, judge: impl Fn(u64) -> Option<Option<String>>) {
    let head = streams.log.durable_head();
    for from in (0..head).step_by(run as usize) {
        let included = (from..(from + run).min(head)).filter_map(|sequence_number| {
            let partition = judge(sequence_number)?.map(Into::into);
            Some(Included { sequence_number, partition })
        });
        let verdicts = Verdicts { included: included.collect(), ..Verdicts::new("s", from..(from + run).min(head)) };
        streams.append(verdicts).await.expect("they are appended");
    }
}

/// Bytes of keys and values, an entry.
async fn bytes_per_entry(run: u64, judge: impl Fn(u64) -> Option<Option<String>>) -> f64 {
    let streams = streams(40_000).await;
    fill(&streams, run, judge).await;
    let bytes = streams.engine.read::<usize, StoreError>(|view| {
        let all = view.ascending(&Range::prefix(&[Space::Streams as u8]))?;
        all.map(|entry| entry.map(|(key, value)| key.len() + value.len())).sum()
    });
    bytes.expect("the engine is read") as f64 / streams.head("s").expect("it is looked up") as f64
}

#[tokio::test]
async fn an_entry_takes_a_few_bytes() {
    let plain = bytes_per_entry(1_000, |_| Some(None)).await;
    assert!(plain < 2.5, "{plain} bytes an entry without partition");
    let rare = bytes_per_entry(10_000, |n| (n % 100 == 0).then_some(None)).await;
    assert!(rare < 3.0, "{rare} bytes an entry of every hundredth event");
    let hundred = bytes_per_entry(1_000, |n| Some(Some(format!("partition-{}", n % 100)))).await;
    assert!(hundred < 4.0, "{hundred} bytes an entry in a hundred partitions");
    let ten_each = bytes_per_entry(1_000, |n| Some(Some(format!("order/{:08}", n % 4_000)))).await;
    assert!(ten_each < 15.0, "{ten_each} bytes an entry in partitions of ten entries, their names included");
    let one_each = bytes_per_entry(1_000, |n| Some(Some(format!("order/{n:08}")))).await;
    assert!(one_each < 110.0, "{one_each} bytes an entry in partitions of one entry, their names included");
}

/// Whatever value is another's or changed, what hangs on it is said to be damaged, never made up; the rest is read.
#[tokio::test]
async fn a_changed_value_is_damage_to_who_reads_it() {
    let streams = streams(10_000).await;
    assert!(streams.faults().is_empty());
    fill(&streams, 1_000, |n| Some((n % 3 > 0).then(|| format!("p{}", n % 3)))).await;
    let query = |from, to| StreamQuery { from, to, limit: 1_000, ..StreamQuery::new("s") };
    let one = StreamQuery { partitions: Partitions::One("p1".into()), ..query(0, 2_000) };
    for (key, other) in [
        (keys::block(0, 1), keys::block(0, 2)),
        (keys::partition(0, "p1"), keys::partition(0, "p2")),
        (keys::partition_text(0, 1), keys::partition_text(0, 2)),
        (keys::postings_from(0, 1, 1), keys::postings_from(0, 2, 2)),
    ] {
        let (put, from) = (key.clone(), other.clone());
        let before = streams.engine.read(|view| view.get(&key)).expect("it is read").expect("it is there");
        let swapped = streams.engine.write(move |change| {
            let value = change.get(&from)?.unwrap_or_default();
            change.put(&put, &value);
            Ok::<_, StoreError>(())
        });
        swapped.await.expect("it is written");
        let whole = streams.read(query(256, 512)).await.and(streams.read(one.clone()).await);
        assert!(matches!(whole, Err(ReadError::Store(StoreError::RecordsDamaged(_)))), "{key:?}: {whole:?}");
        assert_eq!(streams.faults().len(), 1, "{key:?}");
        assert_eq!(
            streams
                .read(StreamQuery { partitions: Partitions::Without, ..query(9_000, 9_001) })
                .await
                .map(|p| p.entries.len()),
            Ok(1)
        );
        streams.engine.write(move |change| put_one(change, &key, &before)).await.expect("it is put back");
        assert_eq!(streams.read(query(256, 512)).await.map(|page| page.entries.len()), Ok(256));
    }
    assert!(streams.faults().is_empty());
    let meta = keys::stream(DEFAULT_SCOPE, "s");
    streams.engine.write(move |change| put_one(change, &meta, b"anything")).await.expect("it is written");
    let refused = streams.append(Verdicts::new("s", 0..1)).await;
    assert!(matches!(refused, Err(StreamError::Store(StoreError::RecordsDamaged(_)))), "{refused:?}");
}

#[tokio::test]
async fn a_stream_that_has_no_number_left_refuses_a_new_partition_and_takes_events_of_the_others() {
    let streams = streams(10_000).await;
    let verdicts = |from: u64, partitions: &[&str]| {
        let included: Vec<_> = (from..).zip(partitions).map(|(n, partition)| Included::of(n, *partition)).collect();
        Verdicts { included, ..Verdicts::new("s", from..from + partitions.len() as u64) }
    };
    streams.append(verdicts(0, &["known"])).await.expect("it is appended");
    let key = keys::stream(DEFAULT_SCOPE, "s");
    let state = streams.engine.read(|view| Meta::load(view, &key)).expect("it is read").expect("it is there");
    let full = Meta { partitions: u32::MAX, ..state }.encode(&key);
    streams.engine.write(move |change| put_one(change, &key, &full)).await.expect("it is written");
    match streams.append(verdicts(1, &["known", "new"])).await {
        Err(StreamError::Invalid(refused)) => {
            assert_eq!((refused.code, &*refused.path), (Code::InvalidVerdicts, "included[1].partition"));
            assert!(refused.message.contains("fewer partitions"), "{refused}");
        }
        other => panic!("{other:?}"),
    }
    let appended = streams.append(verdicts(1, &["known", "known"])).await.expect("it needs no number");
    assert_eq!(appended.positions, 1..3);
}

/// Values that are whole and do not agree with each other: only the check looks at all of them.
#[tokio::test]
async fn values_that_do_not_agree_are_found_by_the_check() {
    let streams = streams(10_000).await;
    fill(&streams, 1_000, |n| Some((n % 3 > 0).then(|| format!("p{}", n % 3)))).await;
    assert!(streams.faults().is_empty());
    let sealed = |key: Vec<u8>, value: Vec<u8>| (key.clone(), Some(keys::seal(&key, value)));
    let placed = |n: u64, partition| block::Placed { sequence_number: n, partition };
    let entries = |entries: Vec<block::Placed>| block::encode_entries(&entries);
    let meta = keys::stream(DEFAULT_SCOPE, "s");
    let state = streams.engine.read(|view| Meta::load(view, &meta)).expect("it is read").expect("it is there");
    let changes = [
        // A block, a list of positions, a name that is gone.
        (keys::block(0, 3), None),
        (keys::postings_from(0, 1, 1), None),
        (keys::partition(0, "p2"), None),
        (keys::partition_text(0, 2), None),
        // A block that is short, does not ascend, or has an entry in another partition.
        sealed(keys::block(0, 3), entries((768..1_000).map(|n| placed(n, (n % 3) as u32)).collect())),
        sealed(keys::block(0, 3), entries((700..956).map(|n| placed(n, (n % 3) as u32)).collect())),
        sealed(keys::block(0, 3), entries((768..1_024).map(|n| placed(n, (n % 2) as u32)).collect())),
        sealed(keys::block(0, 40), entries(vec![placed(20_000, 0)])),
        sealed(keys::postings_from(0, 1, 10_003), block::encode_positions(&[10_003])),
        sealed(keys::postings_from(0, 1, 1), block::encode_positions(&[1, 5])),
        // A state that is behind or ahead of the entries.
        (meta.clone(), Some(Meta { head: state.head - 1, ..state }.encode(&meta))),
        (meta.clone(), Some(Meta { progress: state.progress - 1, ..state }.encode(&meta))),
        (meta.clone(), Some(Meta { partitions: 3, ..state }.encode(&meta))),
    ];
    for (key, value) in changes {
        let (put, before) = (key.clone(), streams.engine.read(|view| view.get(&key)).expect("it is read"));
        set(&streams, put, value).await;
        let faults = streams.faults();
        assert!(matches!(&faults[..], [StoreError::RecordsDamaged(_)]), "{}: {faults:?}", key.escape_ascii());
        set(&streams, key, before).await;
        assert_eq!(streams.faults(), [], "all is as it was");
    }
}

async fn set(streams: &LogStreams, key: Vec<u8>, value: Option<Vec<u8>>) {
    let written = streams.engine.write(move |change| {
        match value {
            Some(value) => change.put(&key, &value),
            None => change.remove(&key),
        }
        Ok::<_, StoreError>(())
    });
    written.await.expect("it is written");
}

fn put_one(change: &mut Change, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
    change.put(key, value);
    Ok(())
}
