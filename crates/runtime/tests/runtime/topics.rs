//! Topics on a broker of its own, which makes a change and does not show it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use annals_core::handlers::ActRecord;
use annals_core::types::TypeDefinition;
use annals_core::{
    Broker, BrokerError, ByteString, DEFAULT_TENANT, GroupMember, GroupOffset, GroupSubscription, MessagePage,
    Publisher, PublisherIdentity, ReadMessages, RecordError, Store, TopicDefinition, TopicGroup, TopicSettings,
    TopicState, TypedRecords,
};
use annals_embedded::{EmbeddedStore, Options, disk::MemoryDisk};
use annals_runtime::types::TypedStore;
use annals_runtime::{Host, HostOptions};
use annals_system::SystemClock;
use async_trait::async_trait;

/// A broker with one topic of so many partitions.
struct Silent {
    topic: &'static str,
    partitions: usize,
    altered: Arc<AtomicUsize>,
}

impl Silent {
    fn refused() -> BrokerError {
        BrokerError::Refused("there is nothing but a topic".to_owned())
    }
}

#[async_trait]
impl Broker for Silent {
    async fn create_topic(&self, _: &TopicDefinition) -> Result<bool, BrokerError> {
        Err(Self::refused())
    }

    async fn topics(&self, _: Option<&[ByteString]>) -> Result<Vec<TopicState>, BrokerError> {
        Ok(vec![TopicState { name: self.topic.into(), retention_ms: Some(1), heads: vec![0; self.partitions] }])
    }

    async fn alter_topic(&self, _: &TopicDefinition) -> Result<(), BrokerError> {
        self.altered.fetch_add(1, Ordering::SeqCst);
        Err(BrokerError::Unavailable("it acknowledged the change and does not show it".to_owned()))
    }

    async fn publisher(&self, _: &PublisherIdentity) -> Result<Option<Box<dyn Publisher>>, BrokerError> {
        Ok(None)
    }

    async fn join(&self, _: GroupSubscription) -> Result<Box<dyn GroupMember>, BrokerError> {
        Err(Self::refused())
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

    async fn read(&self, _: ReadMessages) -> Result<MessagePage, BrokerError> {
        Err(Self::refused())
    }
}

/// The stored acts: on what, which, and why.
async fn acts(store: &dyn Store) -> Vec<(String, String, String)> {
    let records = store.records(DEFAULT_TENANT).expect("declared");
    let acts = TypedRecords::<ActRecord>::declared(records);
    let found = match acts.find(TypedRecords::<ActRecord>::query()).await {
        Err(RecordError::UnknownCollection(_)) => Vec::new(),
        found => found.expect("found").0,
    };
    found.into_iter().map(|act| (act.value.processor, act.value.act, act.value.reason)).collect()
}

/// One that cannot be made is not, because nobody acted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_a_topic_that_the_broker_does_not_show_is_stored_as_an_act() {
    let store = EmbeddedStore::open(Arc::new(MemoryDisk::default()), Options::default()).expect("opens in memory");
    let store: Arc<dyn Store> = Arc::new(store);
    let host = Host::start(Arc::clone(&store), HostOptions::default());
    let altered = Arc::new(AtomicUsize::new(0));
    let on = |partitions| {
        let broker = Silent { topic: "order_placed", partitions, altered: Arc::clone(&altered) };
        host.use_broker(DEFAULT_TENANT, Arc::new(broker), TopicSettings::default());
        host.topics(DEFAULT_TENANT).expect("declared")
    };
    let fewer = on(7).apply("order_placed", "it has too many".into()).await;
    assert!(matches!(fewer, Err(BrokerError::Refused(_))), "{fewer:?}");
    assert_eq!((altered.load(Ordering::SeqCst), acts(&*store).await), (0, Vec::new()));
    let unseen = on(1).apply("order_placed", "more consumers".into()).await;
    assert!(matches!(unseen, Err(BrokerError::Unavailable(_))), "{unseen:?}");
    assert_eq!(altered.load(Ordering::SeqCst), 1);
    let act = ("topic/order_placed", "apply", "more consumers");
    assert_eq!(acts(&*store).await, [(act.0.to_owned(), act.1.to_owned(), act.2.to_owned())]);
    host.drain().await;
}

/// Its topics have a prefix there. Groups that follow the log name their topics without it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_policy_of_a_topic_on_a_broker_is_that_of_the_category_of_its_type() {
    let store = EmbeddedStore::open(Arc::new(MemoryDisk::default()), Options::default()).expect("opens in memory");
    let store: Arc<dyn Store> = Arc::new(TypedStore::new(Arc::new(store), Arc::new(SystemClock)));
    let types = store.event_types(DEFAULT_TENANT).expect("declared");
    let started = TypeDefinition::new("execution_started", serde_json::json!(true)).category("execution");
    types.put(started).await.expect("registered");
    let host = Host::start(Arc::clone(&store), HostOptions::default());
    let broker = Silent { topic: "acme.execution_started", partitions: 6, altered: Arc::default() };
    let names = TopicSettings { prefix: "acme.".to_owned(), ..TopicSettings::default() };
    host.use_broker(DEFAULT_TENANT, Arc::new(broker), names);
    let letters = host.dead_letters(DEFAULT_TENANT).expect("declared");
    for (topic, category) in
        [("acme.execution_started", "execution"), ("execution_started", "execution"), ("other", "default")]
    {
        assert_eq!(&*letters.policy(topic).await.expect("known").category, category, "{topic}");
    }
    host.drain().await;
}
