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

/// A promise that does not hold ends the check with its sentence, so that seeded bugs can be caught by it.
macro_rules! ensure {
    ($holds:expr, $($why:tt)+) => {
        match $holds {
            true => {}
            false => return Err(format!($($why)+)),
        }
    };
}

fn try_open(disk: Arc<dyn Disk>, options: Options) -> Result<Opened, String> {
    let store = EmbeddedStore::open(disk, with_scope(options)).map_err(|error| error.to_string())?;
    let log = store.log(DEFAULT_TENANT, SCOPE).expect("the scope is declared");
    let receiving = store.receiving(DEFAULT_TENANT, SCOPE).expect("the scope is declared");
    Ok(Opened { store, log, receiving })
}

fn open(disk: Arc<dyn Disk>, options: Options) -> Opened {
    try_open(disk, options).unwrap_or_else(|error| panic!("{error}"))
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

async fn all(opened: &Opened) -> Result<Vec<RecordedEvent>, String> {
    let query = LogQuery { limit: 1_000, ..LogQuery::default() };
    Ok(opened.log.read(query).await.map_err(|error| error.to_string())?.events)
}

/// How many events each partition has, or how many of each were acknowledged.
type Counts = BTreeMap<String, u64>;

/// Checks every promise that can be seen in a log and the states beside it.
async fn whole(opened: &Opened) -> Result<Counts, String> {
    let events = all(opened).await?;
    ensure!(events.iter().map(|event| event.sequence_number).eq(0..events.len() as u64), "the log has a hole");
    let mut stands: BTreeMap<String, SubscriptionState> = BTreeMap::new();
    let mut counts = Counts::new();
    for (n, event) in events.iter().enumerate() {
        let from = event.commit.received.as_deref().ok_or("it was not received")?;
        let partition = from.subscription.partition.to_string();
        let stand = stands.entry(partition.clone()).or_default();
        ensure!(from.position >= stand.position, "position {} comes again", from.position);
        *stand = SubscriptionState { position: from.position + 1, sequence_number: Some(from.sequence_number) };
        *counts.entry(partition).or_default() += 1;
        if let Some(place) = event.commit.transaction {
            let first = n.checked_sub(place.place as usize).map(|first| events[first].commit.commit_id);
            ensure!(first == Some(place.id), "{n} is of another batch than its neighbours");
            ensure!(n + ((place.count - place.place) as usize) <= events.len(), "{n} is of a part of a batch");
        }
    }
    for (partition, stand) in stands {
        let told = opened.receiving.state(&subscription(&partition)).await;
        ensure!(told == Ok(stand), "{partition:?} stands at {told:?}, and its last event says {stand:?}");
    }
    Ok(counts)
}

/// How many batches the script sends, and how many events the n-th has.
const BATCHES: u64 = 40;

fn length(n: u64) -> u64 {
    1 + n % 4
}

fn partition(n: u64) -> &'static str {
    ["p", "q", ""][n as usize % 3]
}

/// Sends the script until a batch fails, as a consumer does that has forgotten what it sent: what was received before is a repeat. Returns
/// what was acknowledged, and whether all of it was.
async fn send(opened: &Opened) -> Result<(Counts, bool), String> {
    let mut acknowledged = Counts::new();
    let mut next: BTreeMap<&str, u64> = BTreeMap::new();
    for n in 0..BATCHES {
        let from = next.entry(partition(n)).or_default();
        let batch = batch(partition(n), *from, length(n));
        *from = batch.next();
        let Ok(stood) = opened.receiving.state(&batch.subscription).await else { return Ok((acknowledged, false)) };
        match opened.receiving.receive(batch).await {
            Ok(received) => ensure!(received.duplicate == (stood.position >= *from), "batch {n}: {received:?}"),
            Err(ReceiveError::Store(_)) => return Ok((acknowledged, false)),
            Err(error) => return Err(format!("batch {n}: {error}")),
        }
        *acknowledged.entry(partition(n).to_owned()).or_default() += length(n);
    }
    Ok((acknowledged, true))
}

/// Ends the process at this operation of the disk, by kill -9 or by power loss, and looks at what is left. Returns whether it was still
/// sending.
async fn ended_at(operation: u64, change: impl Fn(&mut Options)) -> Result<bool, String> {
    let options = || {
        let packing = if operation.is_multiple_of(2) { PACK_NEVER } else { PACK_ALWAYS };
        let mut options = Options { packing, ..repeatable(operation) };
        change(&mut options);
        options
    };
    let disk = FaultyDisk::new(operation);
    let opened = try_open(disk.clone(), options())?;
    disk.plan(operation, if operation.is_multiple_of(3) { Fault::Error } else { Fault::End });
    let (acknowledged, finished) = send(&opened).await?;
    let disk = if operation % 4 < 2 { disk.after_kill() } else { disk.after_power_loss() };
    drop(opened);
    let opened = try_open(disk.clone(), options())?;
    let counts = whole(&opened).await?;
    for (partition, count) in acknowledged {
        let there = counts.get(&partition).copied().unwrap_or(0);
        ensure!(there >= count, "{count} of {partition:?} were acknowledged, {there} are there");
    }
    let disk = disk.after_power_loss();
    drop(opened);
    let opened = try_open(disk, options())?;
    ensure!(whole(&opened).await? == counts, "what was served is gone");
    let due: Counts = (0..BATCHES).fold(Counts::new(), |mut due, n| {
        *due.entry(partition(n).to_owned()).or_default() += length(n);
        due
    });
    ensure!(send(&opened).await? == (due.clone(), true), "not all could be sent again");
    ensure!(whole(&opened).await? == due, "not each event is there once");
    Ok(!finished)
}

const OPERATIONS: u64 = 300;

/// Events and states are there together or not at all, what was acknowledged stays, and a consumer that sends everything again leaves
/// each event once.
#[test]
fn events_and_positions_stay_together_wherever_the_process_dies() {
    block_on(async {
        let mut died = 0;
        for operation in 0..OPERATIONS {
            let sending = ended_at(operation, |_| {}).await;
            died += u64::from(sending.unwrap_or_else(|why| panic!("died at {operation}: {why}")));
        }
        assert!(died > 60, "the process died {died} times");
    });
}

#[cfg(feature = "seeded-bugs")]
mod seeded_bugs {
    use annals_embedded::SeededBug;

    use super::*;

    #[track_caller]
    fn is_caught(bug: SeededBug) {
        let caught = block_on(async {
            for operation in 0..OPERATIONS {
                if ended_at(operation, |options| options.seeded_bug = Some(bug)).await.is_err() {
                    return true;
                }
            }
            false
        });
        assert!(caught, "{OPERATIONS} operations did not catch {bug:?}");
    }

    #[test]
    fn acknowledging_a_batch_before_its_sync_is_caught() {
        is_caught(SeededBug::AcknowledgeBeforeSync);
    }

    #[test]
    fn recovering_a_part_of_a_batch_is_caught() {
        is_caught(SeededBug::RecoverPartOfTransaction);
    }

    #[test]
    fn keeping_a_batch_that_was_not_synced_is_caught() {
        is_caught(SeededBug::KeepUnsyncedTailOnRecovery);
    }
}

/// What was received is checked, packed, exported by copies and hashed like everything else.
#[test]
fn received_events_are_checked_packed_and_copied_whole() {
    block_on(async {
        let disk = Arc::new(MemoryDisk::default());
        let opened = open(disk.clone(), repeatable(1));
        assert!(send(&opened).await.expect("it is received").1);
        let events = all(&opened).await.expect("it is read");
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
        assert_eq!(all(&opened).await.expect("it is read"), events);
        let copied = open(Arc::new(MemoryDisk::default()), repeatable(2));
        copied.log.store_copies(copies).await.expect("they are in order");
        assert_eq!(all(&copied).await.expect("it is read"), events);
        whole(&copied).await.expect("it is whole");
        assert!(send(&copied).await.expect("everything is a repeat").1);
        assert_eq!(all(&copied).await.expect("it is read"), events);
    });
}
