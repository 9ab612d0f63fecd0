//! Receiving events: the suite of the port, and what holds wherever the process dies.

use std::collections::BTreeMap;
use std::sync::Arc;

use annals_conformance::receiving::SCOPE;
use annals_core::{
    DEFAULT_TENANT, Data, EventLog, IncomingEvent, LogQuery, ReceiveError, ReceivedBatch, Receiving, RecordedEvent,
    Store, Subscription, SubscriptionState, Timestamp, Uuid,
};
use annals_embedded::disk::{Disk, MemoryDisk};
use annals_embedded::operations::{check, pack};
use annals_embedded::{EmbeddedStore, Options};

use crate::faulty_disk::{Fault, FaultyDisk};
use crate::stores::{PACK_ALWAYS, PACK_NEVER, block_on, repeatable, roomy_segments, tiny_segments};

fn with_scope(options: Options) -> Options {
    Options { scopes: vec![SCOPE.to_owned()], ..options }
}

mod memory {
    use super::*;
    annals_conformance::receiving!(crate::conformance::Embedded::in_memory(with_scope(roomy_segments())));
}

mod memory_with_tiny_segments {
    use super::*;
    annals_conformance::receiving!(crate::conformance::Embedded::in_memory(with_scope(tiny_segments())));
}

mod packed_segments {
    use super::*;
    annals_conformance::receiving!(crate::conformance::Embedded::in_memory(with_scope(Options {
        packing: PACK_ALWAYS,
        ..tiny_segments()
    })));
}

mod real_disk {
    use super::*;
    annals_conformance::receiving!(crate::conformance::Embedded::in_a_folder(with_scope(tiny_segments())));
}

struct Opened {
    store: EmbeddedStore,
    log: Arc<dyn EventLog>,
    receiving: Arc<dyn Receiving>,
}

fn open(disk: Arc<dyn Disk>, options: Options) -> Opened {
    let store = EmbeddedStore::open(disk, with_scope(options)).unwrap_or_else(|error| panic!("{error}"));
    let log = store.log(DEFAULT_TENANT, SCOPE).expect("the scope is declared");
    let receiving = store.receiving(DEFAULT_TENANT, SCOPE).expect("the scope is declared");
    Opened { store, log, receiving }
}

fn subscription(partition: &str) -> Subscription {
    let part = |text: &str| text.into();
    Subscription { producer: part("shop"), tenant: part("t"), stream: part("orders"), partition: part(partition) }
}

/// Some neighbouring events of a partition: positions leave holes, as those of one partition among others do.
fn batch(partition: &str, from: u64, count: u64) -> ReceivedBatch {
    let incoming = |position: u64| IncomingEvent {
        position,
        sequence_number: 3 * position,
        event_type: "order_placed".into(),
        generation: 1,
        data: Data::from_value(&serde_json::json!({ "n": position, "text": "x".repeat(position as usize % 40) }))
            .expect("an object"),
        time: Timestamp::from_millis(position as i64),
        source: format!("o-{position}").into(),
        correlation_id: None,
    };
    let events = (0..count).map(|n| incoming(from + 2 * n)).collect();
    ReceivedBatch { subscription: subscription(partition), consent: Uuid::from_u128(4), from, events }
}

async fn all(opened: &Opened) -> Vec<RecordedEvent> {
    let query = LogQuery { limit: 1_000, ..LogQuery::default() };
    opened.log.read(query).await.expect("it is read").events
}

/// Every promise that can be seen in a log and the states beside it. Returns how many events each partition has.
async fn assert_whole(opened: &Opened, context: &str) -> BTreeMap<String, u64> {
    let events = all(opened).await;
    assert!(events.iter().map(|event| event.sequence_number).eq(0..events.len() as u64), "{context}: no hole");
    let mut stands: BTreeMap<String, SubscriptionState> = BTreeMap::new();
    let mut counts = BTreeMap::new();
    for (n, event) in events.iter().enumerate() {
        let from = event.commit.received.as_deref().unwrap_or_else(|| panic!("{context}: it was received"));
        let partition = from.subscription.partition.to_string();
        let stand = stands.entry(partition.clone()).or_default();
        assert!(from.position >= stand.position, "{context}: position {} comes again", from.position);
        *stand = SubscriptionState { position: from.position + 1, sequence_number: Some(from.sequence_number) };
        *counts.entry(partition).or_default() += 1;
        if let Some(place) = event.commit.transaction {
            let first = &events[n - place.place as usize].commit;
            assert_eq!(first.commit_id, place.id, "{context}");
            assert!(n + ((place.count - place.place) as usize) <= events.len(), "{context}: part of a batch");
        }
    }
    for (partition, stand) in stands {
        let told = opened.receiving.state(&subscription(&partition)).await;
        assert_eq!(told, Ok(stand), "{context}: {partition} stands where its last event does");
    }
    counts
}

/// How many batches the script sends, and how many events the n-th has.
const BATCHES: u64 = 40;

fn length(n: u64) -> u64 {
    1 + n % 4
}

fn partition(n: u64) -> &'static str {
    ["p", "q", ""][n as usize % 3]
}

/// Sends what is left of the script until a batch fails, as a consumer does: from where the subscription stands. Every batch of it that
/// was received before counts as sent. Returns how many events of each partition were acknowledged, and why it ended early.
async fn send(opened: &Opened) -> (BTreeMap<String, u64>, Option<ReceiveError>) {
    let mut acknowledged = BTreeMap::new();
    let ended = send_all(opened, &mut acknowledged).await.err();
    (acknowledged, ended)
}

async fn send_all(opened: &Opened, acknowledged: &mut BTreeMap<String, u64>) -> Result<(), ReceiveError> {
    let mut next: BTreeMap<&str, u64> = BTreeMap::new();
    for n in 0..BATCHES {
        let from = next.entry(partition(n)).or_default();
        let batch = batch(partition(n), *from, length(n));
        *from = batch.next();
        let stood = opened.receiving.state(&batch.subscription).await?;
        let received = opened.receiving.receive(batch).await;
        let received = received.map_err(|error| match error {
            ReceiveError::Moved { .. } => panic!("batch {n} was received in part"),
            other => other,
        })?;
        assert_eq!(received.duplicate, stood.position >= *from, "batch {n}");
        *acknowledged.entry(partition(n).to_owned()).or_default() += length(n);
    }
    Ok(())
}

/// At every operation of the disk, by kill -9 and by power loss: events and states are there together or not at all, what was
/// acknowledged stays, and a consumer that sends everything again leaves each event once.
#[test]
fn events_and_positions_stay_together_wherever_the_process_dies() {
    block_on(async {
        let due: BTreeMap<String, u64> = (0..BATCHES).fold(BTreeMap::new(), |mut due, n| {
            *due.entry(partition(n).to_owned()).or_default() += length(n);
            due
        });
        let mut died = 0;
        for operation in 0..300 {
            let packing = if operation % 2 == 0 { PACK_NEVER } else { PACK_ALWAYS };
            let options = |seed| Options { packing, ..repeatable(seed) };
            let disk = FaultyDisk::new(operation);
            let opened = open(disk.clone(), options(operation));
            disk.plan(operation, if operation % 3 == 0 { Fault::Error } else { Fault::End });
            let (acknowledged, ended) = send(&opened).await;
            died += u64::from(ended.is_some());
            let disk = if operation % 4 < 2 { disk.after_kill() } else { disk.after_power_loss() };
            drop(opened);
            let opened = open(disk.clone(), options(operation));
            let context = format!("died at {operation}");
            let counts = assert_whole(&opened, &context).await;
            for (partition, count) in acknowledged {
                let there = counts.get(&partition).copied().unwrap_or(0);
                assert!(there >= count, "{context}: {count} of {partition:?} were acknowledged, {there} are there");
            }
            let disk = disk.after_power_loss();
            drop(opened);
            let opened = open(disk, options(operation));
            assert_eq!(assert_whole(&opened, &context).await, counts, "{context}: what was served stays");
            assert_eq!(send(&opened).await, (due.clone(), None), "{context}");
            assert_eq!(assert_whole(&opened, &context).await, due, "{context}: each event once");
        }
        assert!(died > 60, "the process died {died} times");
    });
}

/// What was received is checked, packed, exported by copies and hashed like everything else.
#[test]
fn received_events_are_checked_packed_and_copied_whole() {
    block_on(async {
        let disk = Arc::new(MemoryDisk::default());
        let opened = open(disk.clone(), repeatable(1));
        assert_eq!(send(&opened).await.1, None);
        let events = all(&opened).await;
        let (mut copies, mut next) = (Vec::new(), 0);
        while next < events.len() as u64 {
            let page = opened.log.read_copies(next).await.expect("they are read");
            next += page.iter().map(|copy| copy.commit.events.len() as u64).sum::<u64>();
            copies.extend(page);
        }
        let stats = opened.log.stats(&mut |_, _| {}).await.expect("they are counted");
        assert_eq!((stats.aggregates, stats.events), (0, events.len() as u64), "a subscription is no aggregate");
        opened.store.close().await;
        drop(opened);
        let disk: Arc<dyn Disk> = disk;
        pack(&disk, &with_scope(Options { packing: PACK_ALWAYS, ..repeatable(1) }), &mut |_, _| {}).expect("packed");
        let report = check(&*disk, &mut |_, _| {}).expect("it is checked");
        assert!(report.is_sound() && report.notes.is_empty(), "{report:#?}");
        let log = report.logs.iter().find(|log| log.scope == SCOPE).expect("it has the scope");
        assert_eq!((log.events, log.aggregates), (events.len() as u64, 0));
        let opened = open(disk, repeatable(1));
        assert_eq!(all(&opened).await, events);
        let copied = open(Arc::new(MemoryDisk::default()), repeatable(2));
        copied.log.store_copies(copies).await.expect("they are in order");
        assert_eq!(all(&copied).await, events);
        assert_whole(&copied, "copied").await;
        assert_eq!(send(&copied).await.1, None, "everything is a repeat");
        assert_eq!(all(&copied).await, events);
    });
}
