//! Processes that are killed at each of their writes: what they wrote before is there, and another process continues.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use annals_core::bson::{Bson, rawdoc};
use annals_core::handlers::{
    Delivery, FAILING_PARTITIONS, HANDLERS, HandlerDefinition, PROCESSORS, ProcessorRecord, PullBody, SettleBody,
    Settlement,
};
use annals_core::processing::{PartitionBy, ProcessingRetry};
use annals_core::{
    Aggregate, AggregateQuery, Collection, DEFAULT_TENANT, NewCommit, Reached, RecordChange, RecordedEvent, Records,
    TypedRecords,
};
use annals_runtime::{Effects, HandleFailure, Handler};
use async_trait::async_trait;

use crate::Subject;
use crate::handlers::opened::Opened;
use crate::mortal::{Life, at_each_write};
use crate::sample::event;

/// What a process writes for a handler besides commits: its definition, its position, its failing partitions and its effects.
const STEPS: &[&str] = &[HANDLERS, PROCESSORS, FAILING_PARTITIONS, SUMS];
const SUMS: &str = "sums";
/// The number of the event that fails once, and takes its partition out of the common order.
const FAILS_ONCE: u64 = 2;
/// How much time passes with each durable write, in milliseconds. A lease lasts for several writes.
const PASSING_MS: i64 = 500;
/// Long, so that no delivery counts as failed because time passes fast.
const LEASE_MS: u64 = 12 * 60 * 60 * 1_000;

/// A handler of its own event type, so that it does not interact with others on the same store.
struct Run<'a> {
    /// The store. No host runs there.
    it: &'a Opened,
    name: String,
    /// One past its last event.
    end: u64,
}

impl<'a> Run<'a> {
    /// Commits the events to handle: 0 and 1 of aggregate `a`, 2 and 3 of aggregate `b`.
    async fn begin(it: &'a Opened, n: usize) -> Self {
        let name = format!("run-{n}");
        let commit = async |aggregate: &str, first: u64| {
            let commit = NewCommit::new("order", format!("{name}-{aggregate}"));
            let commit = commit.event(event(&name, first)).event(event(&name, first + 1));
            it.log.commit(commit.wait_until(Reached::Logged)).await.expect("committed");
        };
        tokio::join!(commit("a", 0), commit("b", 2));
        let end = it.log.head().await.expect("reads");
        Self { it, name, end }
    }

    fn definition(&self) -> HandlerDefinition {
        let retry = ProcessingRetry { first_ms: 1, max_ms: 1, jitter: 0.0, ..ProcessingRetry::default() };
        let by_aggregate = HandlerDefinition::new(self.name.clone()).partitioned(PartitionBy::Aggregate, 2);
        HandlerDefinition { retry, ..by_aggregate.types([self.name.clone()]) }
    }

    /// Returns whether everything is handled, according to the store.
    async fn is_handled(&self) -> bool {
        let records = self.it.store.records(DEFAULT_TENANT).expect("declared");
        let processors = TypedRecords::<ProcessorRecord>::declared(records);
        // Before the first one, the collection does not exist.
        let found = processors.get(format!("handler/{}", self.name)).await.ok().flatten();
        found.is_some_and(|it| it.value.position >= self.end.cast_signed() && it.value.failing == 0)
    }

    /// Lets time pass while `does` runs.
    async fn as_time_passes<T>(&self, does: impl Future<Output = T>) -> T {
        tokio::select! {
            done = does => done,
            never = self.it.let_time_pass_by_writes_of(PASSING_MS) => match never {},
        }
    }

    /// Handles everything in this process, until it is done or the process dies. Time passes meanwhile.
    async fn bill(&self, process: &Opened, is_dead: impl Fn() -> bool) {
        let records = process.store.records(DEFAULT_TENANT).expect("declared");
        let defined = process.host.handle(DEFAULT_TENANT, self.definition(), Billing(records)).await;
        assert!(defined.is_ok() || is_dead(), "{defined:?}");
        while !is_dead() && !self.is_handled().await {
            crate::between_looks().await;
        }
    }

    /// Asserts that each effect is there once.
    async fn is_billed_once(&self) {
        let name = &self.name;
        let records = self.it.store.records(DEFAULT_TENANT).expect("declared");
        for (aggregate, due) in [("a", [0_u64, 1]), ("b", [2, 3])] {
            let id = format!("{name}-{aggregate}");
            let sum = records.get(SUMS, &Bson::from(id.as_str())).await.expect("reads").expect("billed");
            let numbers = format!(" {} {}", due[0], due[1]);
            assert_eq!(sum.document.get_str("all").ok(), Some(numbers.as_str()), "{id}");
            let invoices = AggregateQuery::new(Aggregate::new("invoice", id.clone()));
            let invoices = self.it.log.read_aggregate(invoices).await.expect("reads").commits;
            let billed: Vec<u64> = invoices.iter().flat_map(|commit| commit.events.iter().map(number)).collect();
            assert_eq!(billed, due, "{id}");
        }
    }
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
        let invoiced = crate::sample::event("invoiced", number(event));
        effects.commit(event, NewCommit::new("invoice", id.to_owned()).event(invoiced));
        Ok(())
    }
}

/// Opens the store with the collection of sums, without a host.
async fn prepared(subject: &dyn Subject) -> Opened {
    let it = Opened::of(subject).await;
    it.host.drain().await;
    let records = it.store.records(DEFAULT_TENANT).expect("declared");
    records.declare(Collection::new(SUMS)).await.expect("declared");
    it
}

/// The process is killed before the write is applied, and in another run after. The next process completes whatever it leaves: record
/// changes and commits of the handler are there once, in order.
pub async fn effects_of_a_handler_happen_once_whichever_write_its_process_dies_at(subject: &dyn Subject) {
    let it = prepared(subject).await;
    let kills = at_each_write(STEPS, async |life, n| billing_is_killed(&it, &life, n).await).await;
    assert!(kills >= 16, "a process makes more writes than {kills}");
}

/// Returns whether the first process was killed before it was done.
async fn billing_is_killed(it: &Opened, life: &Arc<Life>, n: usize) -> bool {
    let run = Run::begin(it, n).await;
    let dying = Opened::on(life.store(&it.store), it.clock.clone());
    let killed = run.as_time_passes(async {
        run.bill(&dying, || life.is_over()).await;
        let killed = life.is_over();
        dying.host.drain().await;
        let next = Opened::on(it.store.clone(), it.clock.clone());
        run.bill(&next, || false).await;
        next.host.drain().await;
        killed
    });
    let killed = killed.await;
    run.is_billed_once().await;
    killed
}

/// What a worker in another process knows, by the numbers of the events.
#[derive(Default)]
struct Known {
    /// The events whose success was acknowledged.
    settled: BTreeSet<u64>,
    /// The delivered events, by partition.
    delivered: BTreeMap<String, BTreeSet<u64>>,
    failed: bool,
}

impl Known {
    fn deliver(&mut self, delivery: &Delivery) -> u64 {
        let n = number(&delivery.event);
        assert!(!self.settled.contains(&n), "event {n} was settled and comes again");
        let of_one = self.delivered.entry(delivery.partition.as_deref().unwrap_or_default().to_owned()).or_default();
        assert!(n.is_multiple_of(2) || of_one.contains(&(n - 1)), "the event before {n} was skipped");
        of_one.insert(n);
        n
    }

    /// Works until everything is settled, or the server dies.
    async fn until_settled(&mut self, run: &Run<'_>, server: &Opened, is_dead: impl Fn() -> bool) {
        while self.work(run, server).await.is_none() && !is_dead() {
            crate::between_looks().await;
        }
    }

    /// Pulls and settles until everything is settled. Returns `None` if the server does not answer.
    async fn work(&mut self, run: &Run<'_>, server: &Opened) -> Option<()> {
        server.handlers.put(run.definition()).await.ok()?;
        // A settlement whose answer was lost may be stored or not. The stored state decides.
        while !run.is_handled().await {
            let pull = PullBody { max: 2, wait_ms: 1_000, lease_ms: LEASE_MS, ..PullBody::default() };
            for delivery in server.handlers.pull(&run.name, pull).await.ok()? {
                let n = self.deliver(&delivery);
                let fails = n == FAILS_ONCE && !std::mem::replace(&mut self.failed, true);
                let settlement = match fails {
                    true => Settlement::failed(delivery.token.clone(), "this time it fails"),
                    false => Settlement::done(delivery.token.clone()),
                };
                let settled = server.handlers.settle(&run.name, SettleBody { results: vec![settlement] }).await.ok()?;
                // A process that loses its lease hands the event out again.
                if settled[0].settled && !fails {
                    self.settled.insert(n);
                }
            }
        }
        Some(())
    }
}

/// An event whose settlement was acknowledged never comes again, and no partition skips an event.
pub async fn a_worker_gets_every_unsettled_event_again_whichever_write_its_server_dies_at(subject: &dyn Subject) {
    let it = prepared(subject).await;
    let kills = at_each_write(STEPS, async |life, n| server_is_killed(&it, &life, n).await).await;
    assert!(kills >= 8, "a server makes more writes than {kills}");
}

/// Returns whether the first server was killed before everything was settled.
async fn server_is_killed(it: &Opened, life: &Arc<Life>, n: usize) -> bool {
    let run = Run::begin(it, n).await;
    let mut known = Known::default();
    let dying = Opened::on(life.store(&it.store), it.clock.clone());
    let dies = async {
        while !life.is_over() {
            crate::between_looks().await;
        }
    };
    let works = async {
        tokio::select! {
            biased;
            () = dies => {}
            () = known.until_settled(&run, &dying, || life.is_over()) => {}
        }
    };
    run.as_time_passes(works).await;
    let killed = life.is_over();
    dying.host.drain().await;
    let next = Opened::on(it.store.clone(), it.clock.clone());
    run.as_time_passes(known.until_settled(&run, &next, || false)).await;
    next.host.drain().await;
    let delivered: BTreeSet<u64> = known.delivered.into_values().flatten().collect();
    assert_eq!(delivered, (0..4_u64).collect());
    killed
}
