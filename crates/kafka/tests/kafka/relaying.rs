//! The relay: what is committed is on the topics of its types, once and in order.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use annals_core::relay::{HeldRecord, MessageFormat, MessageOptions, RelayState, RelayTopics, RelayedEvent};
use annals_core::types::TypeDefinition;
use annals_core::{
    Broker, ByteString, Content, DEFAULT_SCOPE, DEFAULT_TENANT, Fork, NewCommit, NewEvent, Publisher,
    PublisherIdentity, Store, TypedRecords,
};
use annals_embedded::disk::{Disk, MemoryDisk};
use annals_embedded::operations::{Receiver, Restore, Source, restore};
use annals_embedded::{EmbeddedStore, Options};
use annals_runtime::types::TypedStore;
use annals_runtime::{Host, HostOptions, RelayOptions};

use crate::support::{
    address, broker_at, commit, consumed_by_kafka, header, java, log_of, memory, number, read_all, relaying, settings,
    until, until_published,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_event_of_a_type_with_a_topic_is_on_it_once_and_in_order_for_a_committed_reader() {
    let (settings, store) = (settings(), memory());
    let broker = broker_at(&address(), &settings);
    let log = log_of(&*store);
    let kinds = ["order_placed", "order_paid", "order_noted"];
    let mut expected: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let host = Host::start(Arc::clone(&store), HostOptions::default());
    let types = kinds[..2].iter().map(|kind| (ByteString::from(*kind), "default".into())).collect();
    let topics = RelayTopics { settings: settings.clone(), types, others: None };
    let options = RelayOptions { topics, ..RelayOptions::default() };
    host.relay(DEFAULT_TENANT, Arc::clone(&broker) as Arc<dyn Broker>, options).expect("the tenant");
    for n in 0..2_000_u64 {
        let (id, kind) = (format!("o-{}", n % 17), kinds[n as usize % 3]);
        let number = commit(&*log, &id, kind, n, 20).await;
        if n % 3 < 2 {
            expected.entry(id).or_default().push(number);
        }
    }
    let status = until_published(&host, 2_000).await;
    assert_eq!((status.state, status.lag, status.held), (RelayState::Publishing, 0, 0));
    let count = expected.values().map(Vec::len).sum();
    assert_eq!(status.published, count as u64);
    let found = tokio::task::spawn_blocking({
        let settings = settings.clone();
        move || consumed_by_kafka(&address(), &settings, count)
    });
    // The topics of an aggregate's events are two, and each has its own order.
    let mut found = found.await.expect("consumed");
    found.values_mut().for_each(|numbers| numbers.sort_unstable());
    assert_eq!(found, expected);
    for kind in &kinds[..2] {
        let mut last = BTreeMap::new();
        for message in read_all(&broker, &settings.topic_of(kind)).await {
            let Content::Encoded { headers, body } = &message.content else { panic!("a message of Kafka") };
            let event = RelayedEvent::read(headers, body).expect("a message of the relay");
            assert_eq!(&*event.event_type, *kind);
            let (_, id) = event.aggregate.expect("an order");
            assert_eq!(message.key.as_deref(), Some(&**id.as_bytes()));
            assert!(last.insert(id, event.sequence_number).is_none_or(|before| before < event.sequence_number));
        }
    }
    let names: Vec<_> = broker.topics(None).await.expect("listed").into_iter().map(|topic| topic.name).collect();
    assert_eq!(names, [settings.topic_of("order_paid"), settings.topic_of("order_placed")], "noted ones have no topic");
    host.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_waits_for_published_is_visible_to_a_committed_reader_when_it_is_answered() {
    let (settings, store) = (settings(), memory());
    let broker = broker_at(&address(), &settings);
    let log = log_of(&*store);
    let host = relaying(&store, &broker, &settings);
    let stage = host.stage(DEFAULT_TENANT, "published").await.expect("the relay's stage");
    for n in 0..20 {
        let data = annals_core::Data::empty();
        let new = NewCommit::new("order", format!("o-{n}")).event(NewEvent::new("order_placed", data));
        let aggregate = new.aggregate.clone();
        let mut outcome = log.commit(new).await.expect("committed");
        stage.wait(&aggregate, &mut outcome, Duration::from_secs(60)).await;
        assert_eq!(outcome.stage.as_deref(), Some("published"));
        let messages = read_all(&broker, &settings.topic_of("order_placed")).await;
        assert!(messages.iter().any(|message| Some(number(message)) == outcome.first_sequence_number), "{n}");
    }
    host.drain().await;
}

fn restored_to(store: &EmbeddedStore, at: u64) -> Arc<dyn Store> {
    let archive: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
    let mut receiver = Receiver::into_folder(Arc::clone(&archive)).expect("a folder");
    let mut backup = store.backup(receiver.earlier()).expect("a backup");
    while let Some(piece) = backup.next().expect("a piece") {
        receiver.push(&piece).expect("taken");
    }
    receiver.finish().expect("whole");
    let target: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
    let what = Restore { cut: Some((DEFAULT_TENANT.to_owned(), DEFAULT_SCOPE.to_owned(), at)) };
    restore(&Source::Folder(archive), &target, &what, &Options::default(), &mut |_, _| {}).expect("restored");
    Arc::new(EmbeddedStore::open(target, Options::default()).expect("a store"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_restored_to_a_number_announces_the_fork_and_publishes_from_there() {
    let settings = settings();
    let broker = broker_at(&address(), &settings);
    let old = Arc::new(EmbeddedStore::open(Arc::new(MemoryDisk::default()), Options::default()).expect("a store"));
    let old_store: Arc<dyn Store> = Arc::clone(&old) as Arc<dyn Store>;
    for n in 0..10 {
        commit(&*log_of(&*old_store), "o-1", "order_placed", n, 0).await;
    }
    let new = restored_to(&old, 6);
    let host = relaying(&old_store, &broker, &settings);
    until_published(&host, 10).await;
    let relay = relaying(&new, &broker, &settings);
    let status = until_published(&relay, 6).await;
    assert_eq!(status.fork, Some(Fork { incarnation: 0, at: 6, published: 10 }), "it is reported");
    for n in 0..3 {
        assert_eq!(commit(&*log_of(&*new), "o-1", "order_placed", n, 0).await, 6 + n);
    }
    until_published(&relay, 9).await;
    // The one before is fenced, and stays so.
    commit(&*log_of(&*old_store), "o-1", "order_placed", 10, 0).await;
    let stopped = until("the earlier incarnation stops", async || {
        host.relays().into_iter().find(|relay| relay.state == RelayState::Stopped)
    });
    assert!(stopped.await.last_error.is_some_and(|error| error.contains("later incarnation")));
    commit(&*log_of(&*new), "o-1", "order_placed", 3, 0).await;
    until_published(&relay, 10).await;
    let messages = read_all(&broker, &settings.topic_of("order_placed")).await;
    let found: Vec<_> = messages
        .iter()
        .map(|message| (header(message, "incarnation").expect("an incarnation"), number(message)))
        .collect();
    let of = |incarnation: &str, numbers: std::ops::Range<u64>| {
        numbers.map(|number| (incarnation.to_owned(), number)).collect::<Vec<_>>()
    };
    assert_eq!(found, [of("0", 0..10), of("1", 6..10)].concat());
    // The announcement is on the topic of the positions, for consumers that look there.
    relay.drain().await;
    let store = new.identity(DEFAULT_TENANT).expect("the tenant");
    let identity = PublisherIdentity { tenant: DEFAULT_TENANT.to_owned(), store };
    let mut publisher = broker.publisher(&identity).await.expect("opened").expect("copies");
    let position = Publisher::position(&mut *publisher).await.expect("read").expect("stored");
    assert_eq!((position.next, position.incarnation, position.fork), (10, 1, status.fork));
    host.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_kafka_refuses_is_held_and_reported_and_those_after_it_are_published() {
    let (settings, store) = (settings(), memory());
    let broker = broker_at(&address(), &settings);
    let log = log_of(&*store);
    for n in 0..50 {
        let letters = if n == 20 { 3 * 1024 * 1024 } else { 10 };
        commit(&*log, "o-1", "order_placed", n, letters).await;
    }
    let host = relaying(&store, &broker, &settings);
    let status = until_published(&host, 50).await;
    assert_eq!((status.held, status.published), (1, 49));
    let records = store.records(DEFAULT_TENANT).expect("records");
    let held = TypedRecords::<HeldRecord>::declared(records).get(20_i64).await.expect("read").expect("held");
    assert_eq!((&*held.value.event_type, &*held.value.aggregate), ("order_placed", "order/o-1"));
    assert!(held.value.reason.contains("max.message.bytes"), "{}", held.value.reason);
    let messages = read_all(&broker, &settings.topic_of("order_placed")).await;
    let numbers: Vec<_> = messages.iter().map(number).collect();
    assert_eq!(numbers, (0..50).filter(|n| *n != 20).collect::<Vec<_>>());
    host.drain().await;
    let host = relaying(&store, &broker, &settings);
    assert_eq!(until_published(&host, 50).await.held, 1, "and after a restart");
    host.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_is_deleted_under_the_relay_is_created_again_and_the_relay_continues() {
    let (settings, store) = (settings(), memory());
    let broker = broker_at(&address(), &settings);
    let log = log_of(&*store);
    let host = relaying(&store, &broker, &settings);
    for n in 0..10 {
        commit(&*log, "o-1", "order_placed", n, 0).await;
        commit(&*log, "o-1", "order_paid", n, 0).await;
    }
    until_published(&host, 20).await;
    let topic = settings.topic_of("order_placed");
    let mut delete = java("org.apache.kafka.tools.TopicCommand");
    delete.args(["--bootstrap-server", &address(), "--delete", "--topic", &topic]);
    assert!(delete.output().expect("java runs").status.success());
    until("the topic is gone", async || {
        broker.topics(Some(std::slice::from_ref(&topic))).await.ok()?.is_empty().then_some(())
    })
    .await;
    for n in 10..20 {
        commit(&*log, "o-1", "order_placed", n, 0).await;
        commit(&*log, "o-1", "order_paid", n, 0).await;
    }
    until_published(&host, 40).await;
    let placed: Vec<_> = read_all(&broker, &topic).await.iter().map(number).collect();
    assert_eq!(placed, (10..20).map(|n| 2 * n).collect::<Vec<_>>(), "what was on it is gone with it");
    let paid: Vec<_> = read_all(&broker, &settings.topic_of("order_paid")).await.iter().map(number).collect();
    assert_eq!(paid, (0..20).map(|n| 2 * n + 1).collect::<Vec<_>>());
    host.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cloudevent_names_the_schema_of_its_type_from_the_registration_of_the_type_on() {
    let settings = settings();
    let broker = broker_at(&address(), &settings);
    let store: Arc<dyn Store> = Arc::new(TypedStore::new(memory(), HostOptions::default().clock));
    let log = log_of(&*store);
    let host = Host::start(Arc::clone(&store), HostOptions::default());
    let messages = MessageOptions { format: MessageFormat::CloudeventsBinary, ..MessageOptions::default() };
    let options = RelayOptions { topics: RelayTopics::all(settings.clone()), messages };
    host.relay(DEFAULT_TENANT, Arc::clone(&broker) as Arc<dyn Broker>, options).expect("the tenant");
    commit(&*log, "o-1", "order_placed", 0, 0).await;
    until_published(&host, 1).await;
    let types = store.event_types(DEFAULT_TENANT).expect("the tenant");
    let definition = TypeDefinition::new("order_placed", serde_json::json!({ "type": "object" }));
    types.put(definition).await.expect("registered");
    commit(&*log, "o-1", "order_placed", 1, 0).await;
    until_published(&host, 2).await;
    let messages = read_all(&broker, &settings.topic_of("order_placed")).await;
    let schemas: Vec<_> = messages.iter().map(|message| header(message, "ce_dataschema")).collect();
    assert_eq!(schemas, [None, Some("annals://default/v1/types/order_placed?generation=1".to_owned())]);
    host.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_topics_of_registered_types_are_created_when_the_relay_starts_and_existing_ones_are_left_alone() {
    let settings = settings();
    let broker = broker_at(&address(), &settings);
    let store: Arc<dyn Store> = Arc::new(TypedStore::new(memory(), HostOptions::default().clock));
    let types = store.event_types(DEFAULT_TENANT).expect("the tenant");
    for (event_type, category) in
        [("execution_requested", "execution"), ("pod_created", "pod"), ("order_paid", "sales")]
    {
        let definition = TypeDefinition::new(event_type, serde_json::json!({ "type": "object" })).category(category);
        types.put(definition).await.expect("registered");
    }
    let mut other = settings.definition("pod_created", "pod").expect("a category");
    other.partitions = 5;
    assert_eq!(broker.create_topic(&other).await, Ok(true));
    let host = Host::start(Arc::clone(&store), HostOptions::default());
    let topics = RelayTopics { settings: settings.clone(), ..RelayTopics::default() };
    let options = RelayOptions { topics, ..RelayOptions::default() };
    host.relay(DEFAULT_TENANT, Arc::clone(&broker) as Arc<dyn Broker>, options).expect("the tenant");
    let expected = [("execution_requested", 6_u32), ("order_paid", 3), ("pod_created", 5)];
    let expected = expected.map(|(event_type, partitions)| (settings.topic_of(event_type), partitions));
    until("all are created", async || {
        let found = broker.topics(None).await.ok()?;
        let found: Vec<_> = found.into_iter().map(|topic| (topic.name.clone(), topic.partitions())).collect();
        (found == expected).then_some(())
    })
    .await;
    host.drain().await;
}
