//! The suite of the event horizon, on a disk in memory and on a real one, and every point at which a consumer can die while it receives.

use std::sync::Arc;
use std::time::Duration;

use annals_conformance::OTHER_TENANT;
use annals_conformance::receiving::SCOPE;
use annals_core::filters::FilterDefinition;
use annals_core::horizon::{Consent, LOCAL_PRODUCER, SubscriptionDefinition};
use annals_core::{DEFAULT_SCOPE, DEFAULT_TENANT, Data, EventLog, LogQuery, NewCommit, NewEvent, Store};
use annals_embedded::{EmbeddedStore, Options};
use annals_runtime::{Host, HostOptions};

use crate::conformance::Embedded;
use crate::faulty_disk::{Fault, FaultyDisk};
use crate::stores::{block_on, repeatable, roomy_segments};

fn with_scope(options: Options) -> Options {
    let tenants = [DEFAULT_TENANT, OTHER_TENANT].map(str::to_owned).to_vec();
    Options { scopes: vec![SCOPE.to_owned()], tenants, ..options }
}

mod memory {
    use super::*;
    annals_conformance::horizon!(Embedded::in_memory(with_scope(roomy_segments())));
}

mod real_disk {
    use super::*;
    annals_conformance::horizon!(Embedded::in_a_folder(with_scope(roomy_segments())));
}

/// No wait takes longer.
const DEADLINE: Duration = Duration::from_secs(60);
const STREAM: &str = "offers";

/// A store with a host on it.
struct Process {
    store: Arc<dyn Store>,
    host: Host,
    produced: Arc<dyn EventLog>,
    received: Arc<dyn EventLog>,
}

fn open(disk: Arc<FaultyDisk>, seed: u64) -> Process {
    let store = EmbeddedStore::open(disk, with_scope(repeatable(seed))).expect("it opens");
    let store: Arc<dyn Store> = Arc::new(store);
    Process {
        host: Host::start(Arc::clone(&store), HostOptions::default()),
        produced: store.log(OTHER_TENANT, DEFAULT_SCOPE).expect("declared"),
        received: store.log(DEFAULT_TENANT, SCOPE).expect("declared"),
        store,
    }
}

impl Process {
    async fn produce(&self) {
        let data = Data::from_value(&serde_json::json!({})).expect("a document");
        let event = NewEvent { public: true, ..NewEvent::new("placed", data) };
        self.produced.commit(NewCommit::new("order", "a").event(event)).await.expect("committed");
    }

    /// Puts what the producer offers, and its consent.
    async fn offer(&self) {
        let filter = FilterDefinition::new(STREAM).types(["placed"]).public();
        self.host.filters(OTHER_TENANT).expect("declared").put(filter).await.expect("defined");
        let producer = self.host.horizon(OTHER_TENANT).expect("declared");
        producer.put_consent(Consent::new("c", STREAM)).await.expect("given");
    }

    /// The numbers of what was received, in the producer's log. None once the store is gone.
    async fn numbers(&self) -> Option<Vec<u64>> {
        let events = self.received.read(LogQuery::default()).await.ok()?.events;
        Some(events.iter().map(|event| event.commit.received.as_ref().expect("received").sequence_number).collect())
    }

    async fn until_received(&self, count: usize, gone: impl Fn() -> bool) {
        let there = async {
            while !gone() && self.numbers().await.is_some_and(|numbers| numbers.len() < count) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(DEADLINE, there).await.expect("events are received in time");
    }
}

fn subscription() -> SubscriptionDefinition {
    SubscriptionDefinition::new("s", LOCAL_PRODUCER, STREAM, SCOPE).from_tenant(OTHER_TENANT)
}

/// A process with a producer that has offered five events defines a subscription and receives them, and dies at one operation of its disk.
/// Another defines the same again, and receives the rest. Returns whether the first one died.
async fn dies_at(operation: u64, power_loss: bool) -> bool {
    let disk = FaultyDisk::new(operation);
    let first = open(disk.clone(), 1);
    first.offer().await;
    for _ in 0..5 {
        first.produce().await;
    }
    let streams = first.store.streams(OTHER_TENANT, DEFAULT_SCOPE).expect("declared");
    while streams.stream(STREAM).await.expect("reads").head < 5 {
        tokio::task::yield_now().await;
    }
    disk.plan(operation, Fault::End);
    let _ = first.host.horizon(DEFAULT_TENANT).expect("declared").put_subscription(subscription()).await;
    first.until_received(5, || !disk.fired().is_empty()).await;
    let died = !disk.fired().is_empty();
    let disk = if power_loss { disk.after_power_loss() } else { disk.after_kill() };
    drop((streams, first));

    let next = open(disk, 2);
    next.host.start_defined();
    next.offer().await;
    next.host.horizon(DEFAULT_TENANT).expect("declared").put_subscription(subscription()).await.expect("defined");
    next.produce().await;
    next.until_received(6, || false).await;
    let due = (0..6).collect::<Vec<_>>();
    assert_eq!(next.numbers().await, Some(due), "dead at operation {operation}, power loss: {power_loss}");
    next.host.drain().await;
    next.store.close().await;
    died
}

/// Kill -9 and power loss, at every write and sync from the definition to the last event.
#[test]
fn a_consumer_that_dies_at_any_point_receives_each_event_once() {
    for power_loss in [false, true] {
        let mut operation = 0;
        while block_on(dies_at(operation, power_loss)) {
            operation += 1;
        }
        assert!(operation > 10, "only {operation} operations were enumerated");
    }
}
