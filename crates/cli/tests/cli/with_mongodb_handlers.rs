//! Two `annals serve` on one MongoDB: one is killed or paused, and the other continues. The name of this file leaves it out where there is
//! no MongoDB: see CONTRIBUTING.md.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::time::Duration;

use annals::filters::{FilterDefinition, Filters};
use annals::handlers::{Delivery, HandlerDefinition, HandlerStatus, Handlers, PullBody, SettleBody, Settlement};
use annals::processing::{PartitionBy, ProcessingRetry};
use annals::projections::{ProjectionDefinition, Projections};
use annals::{Client, Data, EventLog, NewCommit, NewEvent, Reached, StreamQuery, Streams};
use mongodb::bson::{Document, doc};

use crate::process::{Server, signal};
use crate::run::folder;
use crate::with_mongodb_serve::{Database, get, serve, server, until};

/// Far longer than anything here takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(150);
const PARTITIONS: u64 = 6;
const COUNTS: &str = r#"{"on": {"placed": {"increment": {"n": 1}}}, "key": "all"}"#;

pub fn client(server: &Server) -> Client {
    Client::new(&server.url, annals::DEFAULT_TENANT, annals::DEFAULT_SCOPE).expect("an address")
}

/// A server on the database, once it is ready.
pub async fn one_server(folder: &std::path::Path, database: &Database) -> Server {
    let url = format!("mongodb://{}/{}?directConnection=true", server(), database.0);
    let folder = folder.to_owned();
    let started = tokio::task::spawn_blocking(move || {
        let server = serve(&folder, &url);
        until("a ready server", || get(&server, "/health/ready").0 == 200);
        server
    });
    started.await.expect("it starts")
}

/// Two servers on one database, and a handler, a filter and a projection of all events.
async fn two_servers(folder: &std::path::Path, database: &Database) -> (Server, Server) {
    let (one, two) = (one_server(folder, database).await, one_server(folder, database).await);
    let of_one = client(&one);
    let retry = ProcessingRetry { first_ms: 1, max_ms: 5, ..ProcessingRetry::default() };
    let definition = HandlerDefinition { retry, ..HandlerDefinition::new("h") };
    of_one.handlers().put(definition.partitioned(PartitionBy::Aggregate, 4)).await.expect("defined");
    of_one.filters().put(FilterDefinition::new("all-orders").types(["placed"])).await.expect("defined");
    let counts = ProjectionDefinition::read("counts", COUNTS.as_bytes()).expect("a definition");
    of_one.projections().put(counts).await.expect("defined");
    (one, two)
}

/// Commits event n to aggregate n modulo the number of partitions.
async fn commit(client: &Client, numbers: std::ops::Range<u64>) {
    for n in numbers {
        let commit = NewCommit::new("order", format!("o-{}", n % PARTITIONS)).wait_until(Reached::Logged);
        client.commit(commit.event(NewEvent::new("placed", Data::empty()))).await.expect("committed");
    }
}

async fn pull(handlers: &dyn Handlers, max: usize) -> Vec<Delivery> {
    let pull = PullBody { max, wait_ms: 5_000, worker: "w".to_owned(), ..PullBody::default() };
    handlers.pull("h", pull).await.expect("pulled")
}

async fn done(handlers: &dyn Handlers, delivery: &Delivery) {
    let results = handlers.settle("h", SettleBody { results: vec![Settlement::done(delivery.token.clone())] }).await;
    assert!(results.as_ref().is_ok_and(|results| results[0].settled), "{results:?}");
}

/// The positions that were settled, of which none may be delivered again, and those that were delivered of each partition.
#[derive(Default)]
struct Known {
    settled: BTreeSet<u64>,
    delivered: BTreeMap<String, BTreeSet<u64>>,
}

impl Known {
    fn deliver(&mut self, delivery: &Delivery) {
        let (position, partition) = (delivery.position, delivery.partition.as_deref().unwrap_or_default());
        assert!(!self.settled.contains(&position), "event {position} was settled and comes again");
        let of_one = self.delivered.entry(partition.to_owned()).or_default();
        of_one.insert(position);
        let expected = (0..=position).filter(|at| format!("order/o-{}", at % PARTITIONS) == partition);
        assert!(
            expected.eq(of_one.iter().copied().filter(|at| *at <= position)),
            "an event before {position} was skipped"
        );
    }

    /// Handles everything up to this position.
    async fn handle(&mut self, handlers: &dyn Handlers, to: u64) -> HandlerStatus {
        loop {
            for delivery in pull(handlers, 3).await {
                self.deliver(&delivery);
                done(handlers, &delivery).await;
                assert!(self.settled.insert(delivery.position), "settled twice");
            }
            let status = handlers.get("h").await.expect("defined");
            if status.position >= to && status.failing == 0 {
                assert_eq!(self.settled, (0..to).collect());
                return status;
            }
        }
    }
}

/// Waits until the filter and the projection have processed everything, and checks that each event counts once.
async fn check_derived(client: &Client, events: u64) {
    while client.projections().get("counts").await.expect("defined").position < events {
        tokio::task::yield_now().await;
    }
    let record = client.projections().record("counts", &"all".into()).await.expect("read").expect("there");
    assert_eq!(record.document.get_i64("n").expect("a number"), events.cast_signed());
    client.streams().wait_past("all-orders", events - 1).await.expect("filled");
    let entries = client.streams().read(StreamQuery { limit: 1_000, ..StreamQuery::new("all-orders") }).await;
    let numbers: Vec<u64> = entries.expect("read").entries.iter().map(|entry| entry.sequence_number).collect();
    assert_eq!(numbers, (0..events).collect::<Vec<_>>());
}

/// Runs a test with a deadline.
pub fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        tokio::time::timeout(LIMIT, test).await.expect("the run ends in time");
    });
}

#[test]
fn another_server_takes_over_after_kill_9_and_nothing_is_skipped_or_settled_twice() {
    // Dropped after the runtime, because dropping it needs one of its own.
    let (folder, database) = (folder(), Database::new());
    run(async {
        let (one, two) = two_servers(folder.path(), &database).await;
        let (of_one, of_two) = (client(&one), client(&two));
        commit(&of_one, 0..60).await;
        let mut known = Known::default();
        while known.settled.len() < 20 {
            for delivery in pull(&*handlers(&of_one), 3).await {
                known.deliver(&delivery);
                done(&*handlers(&of_one), &delivery).await;
                known.settled.insert(delivery.position);
            }
        }
        // Some are in flight when it dies, and a worker waits at the other server already.
        let in_flight = pull(&*handlers(&of_one), 3).await;
        in_flight.iter().for_each(|delivery| known.deliver(delivery));
        let handlers_of_two = handlers(&of_two);
        let waiting = tokio::spawn(async move {
            loop {
                let pulled = pull(&*handlers_of_two, 3).await;
                if !pulled.is_empty() {
                    return pulled;
                }
            }
        });
        #[expect(clippy::disallowed_methods, reason = "how long it takes is printed")]
        let killed = std::time::Instant::now();
        tokio::task::spawn_blocking(|| one.kill()).await.expect("killed");
        let first = waiting.await.expect("pulled");
        let _ = writeln!(std::io::stderr(), "the first delivery came {:?} after kill -9", killed.elapsed());
        for delivery in &first {
            known.deliver(delivery);
            done(&*handlers(&of_two), delivery).await;
            known.settled.insert(delivery.position);
        }
        commit(&of_two, 60..66).await;
        let status = known.handle(&*handlers(&of_two), 66).await;
        assert_eq!(status.parked, 0);
        check_derived(&of_two, 66).await;
    });
}

fn handlers(client: &Client) -> std::sync::Arc<dyn Handlers> {
    std::sync::Arc::new(client.handlers())
}

/// A worker waits at the other server while the owner is killed. Measured up to three times: a machine that is busy with other tests may
/// delay one takeover, and a takeover that takes longer by design is late each time.
#[test]
#[expect(clippy::disallowed_methods, reason = "how long a takeover lasts is what is tested")]
fn a_handler_has_another_owner_within_five_seconds_of_kill_9() {
    // Dropped after the runtime, because dropping it needs one of its own.
    let (folder, database) = (folder(), Database::new());
    run(async {
        let (mut owner, mut other) = two_servers(folder.path(), &database).await;
        let mut lasted = Vec::new();
        for round in 0..3_u64 {
            commit(&client(&owner), PARTITIONS * round..PARTITIONS * (round + 1)).await;
            while pull(&*handlers(&client(&owner)), 1).await.is_empty() {}
            let waiting = handlers(&client(&other));
            let waiting = tokio::spawn(async move { while pull(&*waiting, 1).await.is_empty() {} });
            let killed = std::time::Instant::now();
            tokio::task::spawn_blocking(|| owner.kill()).await.expect("killed");
            waiting.await.expect("pulled");
            lasted.push(killed.elapsed());
            if lasted[lasted.len() - 1] < Duration::from_secs(5) {
                return;
            }
            owner = other;
            other = one_server(folder.path(), &database).await;
        }
        panic!("the takeovers lasted {lasted:?}");
    });
}

#[test]
fn a_server_that_was_paused_past_its_lease_writes_nothing_when_it_wakes_up() {
    // Dropped after the runtime, because dropping it needs one of its own.
    let (folder, database) = (folder(), Database::new());
    run(async {
        let (one, two) = two_servers(folder.path(), &database).await;
        let (of_one, of_two) = (client(&one), client(&two));
        commit(&of_one, 0..6).await;
        let stale = pull(&*handlers(&of_one), 4).await;
        assert!(!stale.is_empty());
        signal("STOP", one.id());
        // The other one takes over, and its outcome counts.
        let mut known = Known::default();
        known.handle(&*handlers(&of_two), 6).await;
        commit(&of_two, 6..12).await;
        known.handle(&*handlers(&of_two), 12).await;
        check_derived(&of_two, 12).await;
        signal("CONT", one.id());
        for delivery in &stale {
            let failed = Settlement::failed(delivery.token.clone(), "from before the pause");
            let late = handlers(&of_one).settle("h", SettleBody { results: vec![failed] }).await;
            assert!(late.as_ref().map_or(true, |results| !results[0].settled), "{late:?}");
        }
        commit(&of_one, 12..18).await;
        let status = known.handle(&*handlers(&of_two), 18).await;
        assert_eq!((status.failing, status.parked, status.last_reason), (0, 0, None));
        check_derived(&of_one, 18).await;
        check_derived(&of_two, 18).await;
    });
}

/// When the lease of the handler ends, in milliseconds since 1970; 0 once its holder has given it back.
async fn lease_until(database: &Database) -> i64 {
    let url = format!("mongodb://{}/?directConnection=true", server());
    let client = mongodb::Client::with_uri_str(url).await.expect("a client");
    let leases = client.database(&database.0).collection::<Document>("annals-leases");
    let lease = leases.find_one(doc! { "_id": "handler/h" }).await.expect("read").expect("a lease");
    lease.get_datetime("until").expect("a time").timestamp_millis()
}

/// No worker waits at the other server, so nothing but the end of the first one can change the lease.
#[test]
fn a_server_that_is_told_to_stop_gives_its_handler_back_before_it_ends() {
    // Dropped after the runtime, because dropping it needs one of its own.
    let (folder, database) = (folder(), Database::new());
    run(async {
        let (one, two) = two_servers(folder.path(), &database).await;
        commit(&client(&one), 0..6).await;
        let mut known = Known::default();
        let mut in_flight = Vec::new();
        while in_flight.is_empty() {
            in_flight = pull(&*handlers(&client(&one)), 4).await;
        }
        in_flight.iter().for_each(|delivery| known.deliver(delivery));
        assert!(lease_until(&database).await > 0, "it owns the handler");
        let code = tokio::task::spawn_blocking(|| one.terminate()).await.expect("it ended");
        assert_eq!(code, Some(0));
        assert_eq!(lease_until(&database).await, 0, "another server need not wait until the lease ends");
        // What was in flight comes again.
        known.handle(&*handlers(&client(&two)), 6).await;
        check_derived(&client(&two), 6).await;
    });
}
