//! kill -9 under workers: what was settled never comes again, every partition stays in order, and nothing is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use annals::handlers::{Delivery, HandlerDefinition, Handlers, PullBody, SettleBody, Settlement};
use annals::processing::{PartitionBy, ProcessingRetry};
use annals::{Client, Data, EventLog, NewCommit, NewEvent};
use fastrand::Rng;
use tokio::sync::watch;

use crate::process::Server;
use crate::{LIMIT, ShownOnFailure, number};

/// How often the server is killed.
const CYCLES: usize = 10;
const WORKERS: usize = 3;
const EVENTS: u64 = 240;
const PARTITIONS: u64 = 7;

/// What the workers know.
#[derive(Default)]
struct Known {
    /// Positions whose success was answered.
    settled: BTreeSet<u64>,
    /// The positions of each partition that were delivered.
    delivered: BTreeMap<String, BTreeSet<u64>>,
    answers: u64,
}

impl Known {
    /// Checks a delivery against all that was answered before.
    fn deliver(&mut self, delivery: &Delivery) {
        let (position, partition) = (delivery.position, delivery.partition.as_deref().unwrap_or_default());
        assert!(!self.settled.contains(&position), "event {position} was settled and comes again");
        let before = self.delivered.entry(partition.to_owned()).or_default();
        let missed = (0..position).rev().find(|at| format!("order/o-{}", at % PARTITIONS) == partition);
        assert!(missed.is_none_or(|at| before.contains(&at)), "event {position} came before event {missed:?}");
        before.insert(position);
    }
}

impl Known {
    /// Checks that every event was delivered.
    fn check_whole(&self) {
        let delivered: usize = self.delivered.values().map(BTreeSet::len).sum();
        assert_eq!((delivered as u64, self.delivered.len() as u64), (EVENTS, PARTITIONS));
        assert!(self.settled.len() as u64 > EVENTS / 4, "too little was answered to mean anything");
    }
}

#[test]
fn what_workers_settled_survives_kill_9_in_order_and_nothing_is_left_out() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let seed = number("ANNALS_KILL_SEED").unwrap_or_else(|| fastrand::u64(..));
        let _seed = ShownOnFailure(seed);
        tokio::time::timeout(LIMIT, run(Rng::with_seed(seed))).await.expect("the run ends in time");
    });
}

async fn run(mut rng: Rng) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let known = Arc::new(Mutex::new(Known::default()));
    let mut server = start(&folder).await;
    begin(&server.url).await;
    for _ in 0..CYCLES {
        let enough = known.lock().expect("sound").answers + rng.u64(1..40);
        let (stop, stopped) = watch::channel(false);
        let workers: Vec<_> = (0..WORKERS)
            .map(|_| tokio::spawn(work(server.url.clone(), Arc::clone(&known), rng.fork(), stopped.clone())))
            .collect();
        until(&known, enough).await;
        tokio::task::spawn_blocking(|| server.kill()).await.expect("it is killed");
        stop.send_replace(true);
        for worker in workers {
            worker.await.expect("a worker ends well");
        }
        server = start(&folder).await;
    }
    finish(&server.url, &known).await;
    known.lock().expect("sound").check_whole();
    let exit = tokio::task::spawn_blocking(|| server.terminate()).await.expect("it is stopped");
    assert_eq!(exit, Some(0));
}

async fn start(folder: &tempfile::TempDir) -> Server {
    let folder = folder.path().to_owned();
    tokio::task::spawn_blocking(move || Server::start(&folder)).await.expect("the server starts")
}

fn client(url: &str) -> Client {
    Client::new(url, annals::DEFAULT_TENANT, annals::DEFAULT_SCOPE).expect("an address")
}

/// Defines the handler and commits what it is to handle: event n to aggregate n modulo the number of partitions.
async fn begin(url: &str) {
    let client = client(url);
    let retry = ProcessingRetry { first_ms: 1, max_ms: 5, ..ProcessingRetry::default() };
    let definition = HandlerDefinition { retry, ..HandlerDefinition::new("h") };
    client.handlers().put(definition.partitioned(PartitionBy::Aggregate, 4)).await.expect("defined");
    for n in 0..EVENTS {
        let commit = NewCommit::new("order", format!("o-{}", n % PARTITIONS));
        client.commit(commit.event(NewEvent::new("placed", Data::empty()))).await.expect("committed");
    }
}

async fn until(known: &Mutex<Known>, enough: u64) {
    // Ends when the workers have been answered as often, or have nothing left to do.
    let done = || {
        let known = known.lock().expect("sound");
        known.answers >= enough || known.settled.len() as u64 == EVENTS
    };
    while !done() {
        tokio::task::yield_now().await;
    }
}

/// Pulls and settles, now and then with a failure, until the server is gone.
async fn work(url: String, known: Arc<Mutex<Known>>, mut rng: Rng, stopped: watch::Receiver<bool>) {
    let handlers = client(&url).handlers();
    while !*stopped.borrow() {
        let pull = PullBody { max: 3, wait_ms: 200, lease_ms: 20_000, worker: "w".to_owned() };
        let Ok(deliveries) = handlers.pull("h", pull).await else { return };
        for delivery in deliveries {
            known.lock().expect("sound").deliver(&delivery);
            let failed = rng.u8(..) < 64;
            let settlement = match failed {
                true => Settlement::failed(delivery.token.clone(), "not this time"),
                false => Settlement::done(delivery.token.clone()),
            };
            let Ok(results) = handlers.settle("h", SettleBody { results: vec![settlement] }).await else { return };
            assert!(results[0].settled, "{results:?}");
            let mut known = known.lock().expect("sound");
            known.answers += 1;
            if !failed {
                assert!(known.settled.insert(delivery.position), "settled twice");
            }
        }
    }
}

/// Lets everything succeed, until the handler has handled the whole log.
async fn finish(url: &str, known: &Mutex<Known>) {
    let handlers = client(url).handlers();
    loop {
        let pull = PullBody { max: 100, wait_ms: 100, ..PullBody::default() };
        for delivery in handlers.pull("h", pull).await.expect("pulled") {
            known.lock().expect("sound").deliver(&delivery);
            let done = SettleBody { results: vec![Settlement::done(delivery.token)] };
            assert!(handlers.settle("h", done).await.expect("settled")[0].settled);
        }
        let status = handlers.get("h").await.expect("defined");
        if status.position == EVENTS && status.failing == 0 {
            assert_eq!(status.parked, 0);
            return;
        }
    }
}
