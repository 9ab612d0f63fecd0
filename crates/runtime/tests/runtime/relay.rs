//! The relay on a broker that is a list of messages, between a registry of types and a publisher that answer when the test says so.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use annals_conformance::tap::TappedStore;
use annals_core::relay::{HeldRecord, RelayState, RelayTopics};
use annals_core::types::{EventTypes, PutType, TypeDefinition, TypeError, TypePage, TypeStatus, UnknownTypes};
use annals_core::{
    Broker, BrokerError, ByteString, DEFAULT_SCOPE, DEFAULT_TENANT, Data, GroupMember, GroupOffset, GroupSubscription,
    MessagePage, NewCommit, NewEvent, NewMessage, Publisher, PublisherIdentity, ReadMessages, RelayPosition, Store,
    StoreError, TopicDefinition, TopicGroup, TopicSettings, TopicState, TypedRecords,
};
use annals_embedded::{EmbeddedStore, Options, disk::MemoryDisk};
use annals_runtime::types::TypedStore;
use annals_runtime::{Host, HostOptions, RelayOptions};
use annals_system::SystemClock;
use async_trait::async_trait;
use tokio::sync::{Semaphore, watch};

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the test lets through, and what has arrived.
struct Gates {
    /// One permit for each batch.
    batches: Semaphore,
    /// One permit for each look at a type.
    looks: Semaphore,
    /// How many looks have begun.
    begun: watch::Sender<usize>,
    /// How many looks fail from now on.
    failing: Mutex<usize>,
    /// The numbers of the events that are published.
    published: watch::Sender<Vec<u64>>,
    /// The position that is stored with them.
    position: Mutex<Option<RelayPosition>>,
}

/// A registry behind the gates.
struct Types(Arc<dyn EventTypes>, Arc<Gates>);

#[async_trait]
impl EventTypes for Types {
    async fn put(&self, definition: TypeDefinition) -> Result<PutType, TypeError> {
        self.0.put(definition).await
    }

    async fn list(&self, after: Option<&str>, limit: usize) -> Result<TypePage, TypeError> {
        self.0.list(after, limit).await
    }

    async fn get(&self, name: &str) -> Result<TypeStatus, TypeError> {
        self.1.begun.send_modify(|begun| *begun += 1);
        self.1.looks.acquire().await.expect("is open").forget();
        let fails = {
            let mut failing = self.1.failing.lock().expect("no panic");
            let fails = *failing > 0;
            *failing = failing.saturating_sub(1);
            fails
        };
        match fails {
            true => Err(StoreError::Unreachable("the test".to_owned()).into()),
            false => self.0.get(name).await,
        }
    }

    async fn unknown(&self) -> Result<UnknownTypes, TypeError> {
        self.0.unknown().await
    }

    async fn set_unknown(&self, unknown: UnknownTypes) -> Result<(), TypeError> {
        self.0.set_unknown(unknown).await
    }
}

/// A broker that notes what is published.
struct Noting(Arc<Gates>);

struct Batches(Arc<Gates>);

#[async_trait]
impl Publisher for Batches {
    async fn position(&mut self) -> Result<Option<RelayPosition>, BrokerError> {
        Ok(*self.0.position.lock().expect("no panic"))
    }

    async fn publish(&mut self, batch: Vec<NewMessage>, position: RelayPosition) -> Result<(), BrokerError> {
        self.0.batches.acquire().await.expect("is open").forget();
        self.0.published.send_modify(|published| published.extend(batch.iter().map(|it| it.sequence_number)));
        *self.0.position.lock().expect("no panic") = Some(position);
        Ok(())
    }
}

#[async_trait]
impl Broker for Noting {
    async fn create_topic(&self, _: &TopicDefinition) -> Result<bool, BrokerError> {
        Ok(true)
    }

    async fn topics(&self, _: Option<&[ByteString]>) -> Result<Vec<TopicState>, BrokerError> {
        Ok(Vec::new())
    }

    async fn alter_topic(&self, _: &TopicDefinition) -> Result<(), BrokerError> {
        Ok(())
    }

    async fn publisher(&self, _: &PublisherIdentity) -> Result<Option<Box<dyn Publisher>>, BrokerError> {
        Ok(Some(Box::new(Batches(Arc::clone(&self.0)))))
    }

    async fn join(&self, _: GroupSubscription) -> Result<Box<dyn GroupMember>, BrokerError> {
        Err(BrokerError::Refused("it has no groups".to_owned()))
    }

    async fn group_offsets(&self, _: &str) -> Result<Vec<GroupOffset>, BrokerError> {
        Ok(Vec::new())
    }

    async fn joined_groups(&self, _: &str) -> Result<Vec<TopicGroup>, BrokerError> {
        Ok(Vec::new())
    }

    async fn delete_group(&self, _: &str) -> Result<(), BrokerError> {
        Ok(())
    }

    async fn read(&self, query: ReadMessages) -> Result<MessagePage, BrokerError> {
        Ok(MessagePage { messages: Vec::new(), next: query.from, head: query.from })
    }
}

struct Relaying {
    store: Arc<dyn Store>,
    host: Host,
    gates: Arc<Gates>,
}

impl Relaying {
    /// A store whose relay is not started yet. No batch and no look at a type is let through.
    fn new() -> Self {
        let store = EmbeddedStore::open(Arc::new(MemoryDisk::default()), Options::default()).expect("opens in memory");
        let store = TypedStore::new(Arc::new(store), Arc::new(SystemClock));
        let gates = Arc::new(Gates {
            batches: Semaphore::new(0),
            looks: Semaphore::new(0),
            begun: watch::Sender::new(0),
            failing: Mutex::new(0),
            published: watch::Sender::new(Vec::new()),
            position: Mutex::default(),
        });
        let behind = Arc::clone(&gates);
        let types = move |it: Arc<dyn EventTypes>| -> Arc<dyn EventTypes> { Arc::new(Types(it, Arc::clone(&behind))) };
        let store: Arc<dyn Store> = Arc::new(TappedStore::new(Arc::new(store)).with_types(types));
        let host = Host::start(Arc::clone(&store), HostOptions::default());
        Self { store, host, gates }
    }

    fn relay(&self, topics: RelayTopics) {
        let broker = Arc::new(Noting(Arc::clone(&self.gates)));
        let options = RelayOptions { topics, ..RelayOptions::default() };
        self.host.relay(DEFAULT_TENANT, broker, options).expect("declared");
    }

    async fn commit(&self, event_type: &'static str) {
        let commit = NewCommit::new("order", event_type).event(NewEvent::new(event_type, Data::empty()));
        self.store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("declared").commit(commit).await.expect("committed");
    }

    async fn looks_begun(&self, count: usize) {
        let mut begun = self.gates.begun.subscribe();
        let waited = tokio::time::timeout(PATIENCE, begun.wait_for(|begun| *begun >= count));
        waited.await.unwrap_or_else(|_| panic!("no look number {count}")).expect("is open");
    }

    async fn has_published(&self, numbers: &[u64]) {
        let mut published = self.gates.published.subscribe();
        let waited = tokio::time::timeout(PATIENCE, published.wait_for(|published| published.len() >= numbers.len()));
        let found = waited.await.unwrap_or_else(|_| panic!("{numbers:?} are not published")).expect("is open").clone();
        assert_eq!(found, numbers);
    }
}

/// The next page is read while a batch is published. When the batch is published first, what was read is still published.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_whose_types_are_looked_up_while_a_batch_ends_is_published_next() {
    let it = Relaying::new();
    it.commit("placed").await;
    it.relay(RelayTopics::all(TopicSettings::default()));
    it.gates.looks.add_permits(1);
    it.looks_begun(1).await;
    it.commit("paid").await;
    it.looks_begun(2).await;
    it.gates.batches.add_permits(1);
    it.has_published(&[0]).await;
    it.gates.looks.add_permits(10);
    it.gates.batches.add_permits(10);
    it.has_published(&[0, 1]).await;
    it.host.drain().await;
}

/// Its topic is not known then, and an event that is passed is never looked at again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_whose_type_cannot_be_looked_up_is_not_passed() {
    let it = Relaying::new();
    let registry = it.store.event_types(DEFAULT_TENANT).expect("declared");
    registry.put(TypeDefinition::new("placed", serde_json::json!(true))).await.expect("registered");
    it.commit("placed").await;
    *it.gates.failing.lock().expect("no panic") = 2;
    it.gates.looks.add_permits(100);
    it.gates.batches.add_permits(100);
    it.relay(RelayTopics::default());
    it.has_published(&[0]).await;
    it.host.drain().await;
}

/// They are counted and stored with the reason, and what follows them is published.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_whose_type_can_have_no_topic_are_held() {
    let it = Relaying::new();
    it.gates.looks.add_permits(100);
    it.gates.batches.add_permits(100);
    for event_type in ["acme.placed", "placed", "acme.placed"] {
        it.commit(event_type).await;
    }
    let settings = TopicSettings { reserved: ["acme.".to_owned()].into(), ..TopicSettings::default() };
    it.relay(RelayTopics::all(settings));
    it.has_published(&[1]).await;
    assert_eq!(it.host.relays()[0].held, 2);
    let held = TypedRecords::<HeldRecord>::declared(it.store.records(DEFAULT_TENANT).expect("declared"));
    for number in [0_i64, 2] {
        let held = held.get(number).await.expect("read").expect("held").value;
        assert_eq!((&*held.event_type, &*held.topic), ("acme.placed", "acme.placed"));
        assert!(held.reason.contains("another tenant"), "{}", held.reason);
    }
    it.host.drain().await;
}

/// Starts another process on the store, which publishes every type if no other one does.
fn another(it: &Relaying) -> Host {
    let host = Host::start(Arc::clone(&it.store), HostOptions::default());
    let options = RelayOptions { topics: RelayTopics::all(TopicSettings::default()), ..RelayOptions::default() };
    host.relay(DEFAULT_TENANT, Arc::new(Noting(Arc::clone(&it.gates))), options).expect("declared");
    host
}

/// It continues after what the other one has published.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_stands_by_publishes_once_the_one_that_did_is_gone() {
    let it = Relaying::new();
    it.gates.looks.add_permits(1_000);
    it.gates.batches.add_permits(1_000);
    // Its tasks end as those of a killed process do: they release nothing.
    let process = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let process = process.expect("a runtime");
    let first = {
        let _inside = process.enter();
        another(&it)
    };
    it.commit("placed").await;
    it.has_published(&[0]).await;
    let second = another(&it);
    let standing_by = async {
        while second.relays()[0].state != RelayState::Standby {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, standing_by).await.expect("it stands by");
    it.commit("paid").await;
    it.has_published(&[0, 1]).await;
    process.shutdown_background();
    drop(first);
    it.commit("sent").await;
    it.has_published(&[0, 1, 2]).await;
    let publishing = async {
        while second.relays()[0].state != RelayState::Publishing {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, publishing).await.expect("it publishes");
    second.drain().await;
    it.host.drain().await;
}
