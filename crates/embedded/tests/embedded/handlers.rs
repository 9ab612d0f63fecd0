//! The suite of handlers, on a disk in memory and on a real one; and every operation of the disk at which the process of a handler can die.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use annals_conformance::Subject;
use annals_core::bson::{Bson, rawdoc};
use annals_core::handlers::{
    Act, Delivery, HandlerDefinition, HandlerState, Handlers, PullBody, SettleBody, Settlement,
};
use annals_core::processing::{FAILING_MAX, PartitionBy, ProcessingRetry};
use annals_core::{
    Aggregate, AggregateQuery, Collection, DEFAULT_SCOPE, DEFAULT_TENANT, Data, EventLog, NewCommit, NewEvent,
    RecordChange, RecordedEvent, Records, Store,
};
use annals_embedded::EmbeddedStore;
use annals_runtime::{Effects, HandleFailure, Handler, Host, HostOptions};
use async_trait::async_trait;
use serde_json::json;

use crate::conformance::Embedded;
use crate::faulty_disk::{Fault, FaultyDisk};
use crate::stores::{block_on, repeatable, roomy_segments};

mod memory {
    use super::*;
    annals_conformance::handlers!(Embedded::in_memory(roomy_segments()));
}

mod real_disk {
    use super::*;
    annals_conformance::handlers!(Embedded::in_a_folder(roomy_segments()));
}

async fn as_many_partitions_fail_as_can_be(subject: &dyn Subject) {
    const MOST: u64 = FAILING_MAX as u64;
    let store = subject.open().await;
    let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("always there");
    let host = Host::start(Arc::clone(&store), HostOptions::default());
    let handlers = host.handlers(DEFAULT_TENANT).expect("declared");
    // An event of each of as many partitions as can fail, and one of another.
    let event = |key: u64| NewEvent::new("placed", Data::from_value(&json!({ "key": key })).expect("a document"));
    let failing = (0..MOST).fold(NewCommit::new("order", "a"), |commit, key| commit.event(event(key)));
    log.commit(failing).await.expect("committed");
    log.commit(NewCommit::new("order", "a").event(event(MOST))).await.expect("committed");
    let retry = ProcessingRetry { attempts: Some(1), ..ProcessingRetry::default() };
    let by_key = HandlerDefinition::new("h").partitioned(PartitionBy::Data("key".to_owned()), 256);
    assert!(handlers.put(HandlerDefinition { retry, ..by_key }).await.expect("defined"));

    let pull = || PullBody { max: 256, wait_ms: 20_000, ..PullBody::default() };
    let mut failed = 0;
    while failed < FAILING_MAX {
        let deliveries = handlers.pull("h", pull()).await.expect("pulled");
        let results = deliveries.iter().map(|delivery| Settlement::failed(delivery.token.clone(), "down")).collect();
        let results = handlers.settle("h", SettleBody { results }).await.expect("settled");
        failed += results.iter().filter(|result| result.settled).count();
    }
    let now = PullBody { wait_ms: 0, ..pull() };
    assert_eq!(handlers.pull("h", now).await.expect("pulled"), [], "nothing of another partition is delivered");
    let status = handlers.get("h").await.expect("defined");
    assert_eq!((status.state, status.failing, status.blocked), (HandlerState::Blocked, MOST, MOST));
    assert_eq!((status.position, status.lag), (MOST, 1));
    let said = status.last_reason.expect("why it is blocked");
    assert!(said.contains("10000 partitions are failing, which is the maximum"), "{said}");
    assert!(status.degraded.is_some_and(|why| why.contains("blocked until an operator decides")));

    // One fewer is failing, so the next partition gets its turn.
    let skip = Act::Skip { partition: "7".into(), position: Some(7) };
    handlers.act("h", skip, "one is enough".into()).await.expect("allowed");
    let next = handlers.pull("h", pull()).await.expect("pulled");
    assert_eq!(next.iter().map(|delivery| delivery.position).collect::<Vec<_>>(), [MOST]);
    let settled = handlers.settle("h", SettleBody { results: vec![Settlement::done(next[0].token.clone())] }).await;
    assert!(settled.expect("settled")[0].settled);
    let status = handlers.get("h").await.expect("defined");
    assert_eq!((status.state, status.position, status.failing), (HandlerState::Running, MOST + 1, MOST - 1));
    host.drain().await;
    store.close().await;
}

/// Until one of them succeeds, or is skipped or parked.
#[test]
fn a_handler_with_as_many_failing_partitions_as_can_be_delivers_nothing_new_and_says_so() {
    annals_conformance::run(Embedded::in_memory(roomy_segments()), as_many_partitions_fail_as_can_be);
}

/// No run of one process takes longer.
const DEADLINE: Duration = Duration::from_secs(60);
const EVENTS: u64 = 4;
const PARTITIONS: u64 = 2;
/// The event that fails once, and takes its partition out of the common order.
const FAILS_ONCE: u64 = 1;
const SUMS: &str = "sums";

/// A store with a host on it.
struct Life {
    disk: Arc<FaultyDisk>,
    store: Arc<dyn Store>,
    log: Arc<dyn EventLog>,
    records: Arc<dyn Records>,
    host: Host,
}

impl Life {
    fn begin(disk: Arc<FaultyDisk>, seed: u64) -> Self {
        let store: Arc<dyn Store> =
            Arc::new(EmbeddedStore::open(disk.clone(), repeatable(seed)).unwrap_or_else(|error| panic!("{error}")));
        Self {
            log: store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("always there"),
            records: store.records(DEFAULT_TENANT).expect("always there"),
            host: Host::start(Arc::clone(&store), HostOptions::default()),
            disk,
            store,
        }
    }

    fn handlers(&self) -> Arc<dyn Handlers> {
        self.host.handlers(DEFAULT_TENANT).expect("declared")
    }

    fn is_dead(&self) -> bool {
        !self.disk.fired().is_empty()
    }

    /// What comes of `work` in this process; none where it died before the end. Whoever waits for a process that died waits for nothing.
    async fn unless_it_dies(&self, work: impl Future<Output = Option<()>>) -> Option<()> {
        let dies = async {
            while !self.is_dead() {
                tokio::task::yield_now().await;
            }
        };
        let lives = async {
            tokio::select! {
                biased;
                done = work => done,
                () = dies => None,
            }
        };
        tokio::time::timeout(DEADLINE, lives).await.expect("it ends in time")
    }

    /// Commits what is to be handled: event n to aggregate n modulo the number of partitions. A repetition adds nothing.
    async fn commit(&self) -> Option<()> {
        for n in 0..EVENTS {
            let data = Data::from_value(&json!({ "n": n })).ok()?;
            let commit = NewCommit::new("order", format!("o-{}", n % PARTITIONS)).request_id(format!("order {n}"));
            self.log.commit(commit.event(NewEvent::new("placed", data))).await.ok()?;
        }
        Some(())
    }

    /// Waits until everything is handled. None where the process died.
    async fn handled(&self) -> Option<()> {
        loop {
            let status = self.handlers().get("h").await.ok()?;
            if status.position >= EVENTS && status.failing == 0 {
                return Some(());
            }
            if self.is_dead() {
                return None;
            }
            tokio::task::yield_now().await;
        }
    }
}

/// Lets a process die at each operation by kill -9, and at every third one by power loss, until it lives to its end.
fn enumerated(dies_at: impl Fn(u64, bool) -> bool) {
    for (power_loss, step) in [(false, 1), (true, 3)] {
        let died = (0..).step_by(step).take_while(|operation| dies_at(*operation, power_loss)).count();
        assert!(died * step > 20, "the process died {died} times");
    }
}

fn definition() -> HandlerDefinition {
    let retry = ProcessingRetry { first_ms: 1, max_ms: 1, jitter: 0.0, ..ProcessingRetry::default() };
    HandlerDefinition { retry, ..HandlerDefinition::new("h").types(["placed"]).partitioned(PartitionBy::Aggregate, 2) }
}

fn number(event: &RecordedEvent) -> u64 {
    event.data.as_raw().get_i64("n").expect("a number").cast_unsigned()
}

/// Appends the number of each event to a record of its aggregate, and commits an invoice for it.
struct Billing(Arc<dyn Records>);

#[async_trait]
impl Handler for Billing {
    async fn handle(&self, events: &[RecordedEvent], effects: &mut Effects) -> Result<(), HandleFailure> {
        let event = &events[0];
        if number(event) == FAILS_ONCE && effects.attempt() == 1 {
            return Err(HandleFailure::new("this time it fails"));
        }
        let id = &*event.commit.aggregate.id;
        let before = self.0.get(SUMS, &Bson::from(id)).await.map_err(|error| HandleFailure::new(error.to_string()))?;
        let before = before.map_or_else(String::new, |sum| sum.document.get_str("all").unwrap_or_default().to_owned());
        let all = format!("{before} {}", number(event));
        effects.change(RecordChange::put(SUMS, rawdoc! { "_id": id, "all": all }));
        let invoiced = NewEvent::new("invoiced", event.data.clone());
        effects.commit(event, NewCommit::new("invoice", id.to_owned()).event(invoiced));
        Ok(())
    }
}

/// Commits events and handles them in this process. None where it died before the end.
async fn bill(life: &Life) -> Option<()> {
    life.records.declare(Collection::new(SUMS)).await.ok()?;
    life.commit().await?;
    life.host.handle(DEFAULT_TENANT, definition(), Billing(Arc::clone(&life.records))).await.ok()?;
    life.handled().await
}

/// Whether the process died at this operation. Whatever it left, the next one completes, and each effect is there once.
async fn billing_dies_at(operation: u64, power_loss: bool) -> bool {
    let what = format!("died at {operation}, power loss: {power_loss}");
    let disk = FaultyDisk::new(operation);
    let first = Life::begin(disk.clone(), 1);
    disk.plan(operation, Fault::End);
    let died = first.unless_it_dies(bill(&first)).await.is_none();
    let disk = if power_loss { disk.after_power_loss() } else { disk.after_kill() };
    drop(first);

    let next = Life::begin(disk, 2);
    tokio::time::timeout(DEADLINE, bill(&next)).await.expect(&what).expect(&what);
    for id in ["o-0", "o-1"] {
        let sum = next.records.get(SUMS, &Bson::from(id)).await.expect(&what).expect(&what);
        let due = if id == "o-0" { " 0 2" } else { " 1 3" };
        assert_eq!(sum.document.get_str("all").ok(), Some(due), "{what}: {id}");
        let invoices = AggregateQuery::new(Aggregate::new("invoice", id));
        let invoices = next.log.read_aggregate(invoices).await.expect(&what).commits;
        let numbers: Vec<u64> = invoices.iter().flat_map(|commit| commit.events.iter().map(number)).collect();
        assert_eq!(numbers, if id == "o-0" { [0, 2] } else { [1, 3] }, "{what}: {id}");
    }
    next.host.drain().await;
    next.store.close().await;
    died
}

/// At every write and sync from the first commit to the last stored position.
#[test]
fn record_changes_and_commits_of_a_handler_happen_once_wherever_the_process_dies() {
    enumerated(|operation, power_loss| block_on(billing_dies_at(operation, power_loss)));
}

/// What a worker of another process knows.
#[derive(Default)]
struct Known {
    /// The positions whose success was answered.
    settled: BTreeSet<u64>,
    /// The positions that were delivered, by partition.
    delivered: BTreeMap<String, BTreeSet<u64>>,
    failed: bool,
}

impl Known {
    fn deliver(&mut self, delivery: &Delivery, what: &str) {
        let position = delivery.position;
        assert!(!self.settled.contains(&position), "{what}: event {position} was settled and comes again");
        let of_one = self.delivered.entry(delivery.partition.as_deref().unwrap_or_default().to_owned()).or_default();
        let skipped = (0..position).filter(|at| at % PARTITIONS == position % PARTITIONS);
        assert!(skipped.into_iter().all(|at| of_one.contains(&at)), "{what}: an event before {position} was skipped");
        of_one.insert(position);
    }

    /// Pulls and settles until everything is settled. None where the server died.
    async fn work(&mut self, life: &Life, what: &str) -> Option<()> {
        life.commit().await?;
        let handlers = life.handlers();
        handlers.put(definition()).await.ok()?;
        loop {
            let pull = PullBody { max: 2, wait_ms: 20, ..PullBody::default() };
            for delivery in handlers.pull("h", pull).await.ok()? {
                self.deliver(&delivery, what);
                let fails = delivery.position == FAILS_ONCE && !std::mem::replace(&mut self.failed, true);
                let settlement = match fails {
                    true => Settlement::failed(delivery.token.clone(), "this time it fails"),
                    false => Settlement::done(delivery.token.clone()),
                };
                let results = handlers.settle("h", SettleBody { results: vec![settlement] }).await.ok()?;
                if !results[0].settled {
                    return None;
                }
                if !fails {
                    self.settled.insert(delivery.position);
                }
            }
            // A settlement whose answer was lost is stored or not; what is stored decides.
            let status = handlers.get("h").await.ok()?;
            if status.position >= EVENTS && status.failing == 0 {
                return Some(());
            }
            if life.is_dead() {
                return None;
            }
        }
    }
}

async fn server_dies_at(operation: u64, power_loss: bool) -> bool {
    let what = format!("died at {operation}, power loss: {power_loss}");
    let disk = FaultyDisk::new(operation);
    let first = Life::begin(disk.clone(), 1);
    disk.plan(operation, Fault::End);
    let mut known = Known::default();
    let died = first.unless_it_dies(known.work(&first, &what)).await.is_none();
    let disk = if power_loss { disk.after_power_loss() } else { disk.after_kill() };
    drop(first);

    let next = Life::begin(disk, 2);
    tokio::time::timeout(DEADLINE, known.work(&next, &what)).await.expect(&what).expect(&what);
    let delivered: BTreeSet<u64> = known.delivered.into_values().flatten().collect();
    assert_eq!(delivered, (0..EVENTS).collect(), "{what}");
    next.host.drain().await;
    next.store.close().await;
    died
}

/// At every write and sync: what was answered as settled never comes again, and no partition skips an event.
#[test]
fn a_worker_gets_every_unsettled_event_again_wherever_the_server_dies() {
    enumerated(|operation, power_loss| block_on(server_dies_at(operation, power_loss)));
}
