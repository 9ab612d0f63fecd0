//! A store with a host on it, and shorthands for the steps of the cases.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use annals_core::bson::rawdoc;
use annals_core::handlers::{Delivery, HandlerDefinition, Handlers, PullBody, SettleBody, SettleResult, Settlement};
use annals_core::processing::{PartitionBy, ProcessingRetry};
use annals_core::{
    Aggregate, Clock, Collection, CommitOutcome, DEFAULT_SCOPE, DEFAULT_TENANT, Data, EventLog, Identity, NewCommit,
    NewEvent, Reached, RecordChange, SequenceNumber, Store, limits,
};
use annals_runtime::{Host, HostOptions};

use crate::sample::event;
use crate::tap::TappedStore;
use crate::{ManualClock, Subject};

/// A store, a host on it, and the handlers of the default tenant. Time stands still until a case advances it.
pub struct Opened {
    pub store: Arc<dyn Store>,
    pub log: Arc<dyn EventLog>,
    pub host: Drained,
    pub handlers: Arc<dyn Handlers>,
    pub clock: Arc<ManualClock>,
}

/// How long a host may take to drain. The tasks of a case that failed may wait for something that never comes.
const DRAIN_MAX: Duration = Duration::from_secs(20);

/// A host that is drained when a case ends. Without that, its unfinished write would stay open on a store whose transactions outlive a
/// process.
pub struct Drained(Host);

impl std::ops::Deref for Drained {
    type Target = Host;

    fn deref(&self) -> &Host {
        &self.0
    }
}

impl Drop for Drained {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let drained = async { tokio::time::timeout(DRAIN_MAX, self.0.drain()).await };
            let _ = tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(drained));
        }
    }
}

impl Opened {
    pub async fn of(subject: &dyn Subject) -> Self {
        Self::on(subject.open().await, subject.clock())
    }

    /// Starts another host on a store, as another process would.
    pub fn on(store: Arc<dyn Store>, clock: Arc<ManualClock>) -> Self {
        Self::with(store, clock, HostOptions::default())
    }

    /// Starts another host with these options, except for the clock.
    pub fn with(store: Arc<dyn Store>, clock: Arc<ManualClock>, options: HostOptions) -> Self {
        let options = HostOptions { clock: clock.clone(), ..options };
        let host = Host::start(Arc::clone(&store), options);
        let handlers = host.handlers(DEFAULT_TENANT).expect("declared");
        let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("always there");
        Self { store, log, host: Drained(host), handlers, clock }
    }

    /// Continues on the same store with a new host, as after a restart. The state of the old host is gone.
    pub async fn restarted(self) -> Self {
        let Self { store, host, clock, .. } = self;
        host.drain().await;
        Self::on(store, clock)
    }

    /// Continues with a new host, as after a restore to a sequence number. See [`restored`].
    pub async fn restored_to(self, number: SequenceNumber) -> Self {
        let Self { store, host, clock, .. } = self;
        host.drain().await;
        Self::on(restored(store, number), clock)
    }

    /// Defines a handler of all events, partitioned by aggregate, with four partitions at once and delays of 1, 2, 4 … s.
    pub async fn by_aggregate(&self, name: &str) -> HandlerDefinition {
        let definition = HandlerDefinition { retry: seconds(), ..HandlerDefinition::new(name) };
        self.define(definition.partitioned(PartitionBy::Aggregate, 4)).await
    }

    pub async fn define(&self, definition: HandlerDefinition) -> HandlerDefinition {
        assert!(self.handlers.put(definition.clone()).await.expect("defined"), "it is new");
        definition
    }

    /// Commits an event of a type to each of these aggregates, in order.
    pub async fn commit(&self, event_type: &str, ids: &[&str]) {
        for (n, id) in ids.iter().enumerate() {
            let commit = NewCommit::new("order", *id).event(event(event_type, n as u64));
            self.log.commit(commit.wait_until(Reached::Logged)).await.expect("committed");
        }
    }

    /// Commits an event with this data.
    pub async fn commit_data(&self, name: &str, id: &str, data: &serde_json::Value) {
        let placed = NewEvent::new("placed", Data::from_value(data).expect("a document"));
        let commit = NewCommit::new(name, id).event(placed);
        self.log.commit(commit.wait_until(Reached::Logged)).await.expect("committed");
    }

    /// Commits events of these types to an aggregate, and waits for a stage, for at most 50 s of the clock.
    pub async fn commit_until(&self, stage: &str, id: &str, event_types: &[&str]) -> CommitOutcome {
        let stage = self.host.stage(DEFAULT_TENANT, stage).await.expect("it exists");
        let commit = NewCommit::new("order", id).wait_until(Reached::Logged);
        let commit = event_types.iter().fold(commit, |commit, event_type| commit.event(event(event_type, 0)));
        let mut outcome = self.log.commit(commit).await.expect("committed");
        stage.wait(&Aggregate::new("order", id), &mut outcome, limits::WAIT_MAX).await;
        outcome
    }

    /// Pulls the available events, and waits for the first one.
    pub async fn pull(&self, name: &str) -> Vec<Delivery> {
        let wait = PullBody { max: 100, wait_ms: 50_000, worker: "w".to_owned(), ..PullBody::default() };
        self.handlers.pull(name, wait).await.expect("pulled")
    }

    /// Pulls until `count` events have arrived, and settles none.
    pub async fn pull_count(&self, name: &str, count: usize) -> Vec<Delivery> {
        let mut deliveries = Vec::new();
        while deliveries.len() < count {
            deliveries.extend(self.pull(name).await);
        }
        deliveries
    }

    /// Pulls the events that are available now, possibly none.
    pub async fn pull_now(&self, name: &str) -> Vec<Delivery> {
        let pull = PullBody { max: 100, worker: "w".to_owned(), ..PullBody::default() };
        self.handlers.pull(name, pull).await.expect("pulled")
    }

    pub async fn settle(&self, name: &str, results: Vec<Settlement>) -> Vec<SettleResult> {
        self.handlers.settle(name, SettleBody { results }).await.expect("settled")
    }

    pub async fn done(&self, name: &str, delivery: &Delivery) {
        let results = self.settle(name, vec![Settlement::done(delivery.token.clone())]).await;
        assert!(results[0].settled, "{results:?}");
    }

    pub async fn fail(&self, name: &str, delivery: &Delivery) {
        let results = self.settle(name, vec![Settlement::failed(delivery.token.clone(), "down")]).await;
        assert!(results[0].settled, "{results:?}");
    }

    /// Handles all events until the handler has reached `position` and nothing is failing.
    pub async fn handle_all(&self, name: &str, position: u64) -> Vec<u64> {
        let mut handled = Vec::new();
        loop {
            for delivery in self.pull_now(name).await {
                self.done(name, &delivery).await;
                handled.push(delivery.position);
            }
            let status = self.handlers.get(name).await.expect("defined");
            if status.position >= position && status.failing == 0 {
                return handled;
            }
            crate::between_looks().await;
        }
    }

    /// Lets time pass as long as it is polled, slowly: between two steps of the clock, the owner of the handler answers a request.
    pub async fn let_time_pass(&self, name: &str) -> Infallible {
        loop {
            self.advance(5);
            self.handlers.get(name).await.expect("defined");
        }
    }

    /// Lets time pass as long as it is polled, at the pace of the store: 10 ms for each durable write. So a deadline on this clock leaves
    /// other processes on the store time for thousands of writes, however busy the machine is.
    pub async fn let_time_pass_by_writes(&self) -> Infallible {
        self.let_time_pass_by_writes_of(10).await
    }

    /// Does the same with another time for each durable write.
    pub async fn let_time_pass_by_writes_of(&self, millis: i64) -> Infallible {
        const COLLECTION: &str = "passing-time";
        let records = self.store.records(DEFAULT_TENANT).expect("always there");
        records.declare(Collection::new(COLLECTION)).await.expect("declared");
        loop {
            self.advance(millis);
            let change = RecordChange::put(COLLECTION, rawdoc! { "_id": "a" });
            records.write(vec![change]).await.expect("written");
        }
    }

    pub fn advance(&self, millis: i64) {
        self.clock.advance_millis(millis);
    }

    pub fn now_plus(&self, millis: u64) -> annals_core::Timestamp {
        self.clock.now().plus(Duration::from_millis(millis))
    }
}

/// Returns the store as it is after a restore to a sequence number: another incarnation begins there. The events at and after that number
/// stay, and stand for those that are committed after the restore.
pub fn restored(store: Arc<dyn Store>, number: SequenceNumber) -> Arc<dyn Store> {
    let next =
        move |before: Identity| Identity { incarnation: before.incarnation + 1, incarnation_start: number, ..before };
    Arc::new(TappedStore::new(store).with_identity(next))
}

/// Returns delays of 1, 2, 4 … s, without jitter.
pub fn seconds() -> ProcessingRetry {
    ProcessingRetry { first_ms: 1_000, factor: 2.0, max_ms: 60_000, jitter: 0.0, ..ProcessingRetry::default() }
}

pub fn positions(deliveries: &[Delivery]) -> Vec<u64> {
    let mut positions: Vec<_> = deliveries.iter().map(|delivery| delivery.position).collect();
    positions.sort_unstable();
    positions
}
