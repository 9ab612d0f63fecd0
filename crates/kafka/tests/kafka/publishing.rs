//! Publishing with a position: both are visible or neither is, and one publisher of a store at a time.

use std::sync::Arc;

use annals_core::{
    Broker, BrokerError, ByteString, Clock, Identity, NewMessage, Publisher, PublisherIdentity, RelayPosition,
    TopicDefinition, Uuid,
};
use annals_kafka::KafkaBroker;
use annals_system::SystemClock;

use crate::support::{address, broker_at, java, read_all, settings};

struct Setting {
    broker: Arc<KafkaBroker>,
    topic: TopicDefinition,
    identity: PublisherIdentity,
}

/// A topic of three partitions, and a store that no other test has.
async fn setting() -> Setting {
    let settings = settings();
    let broker = broker_at(&address(), &settings);
    let topic = settings.definition("order_placed", "default").expect("a category");
    broker.create_topic(&topic).await.expect("created");
    let store_id = Uuid::from_u128(u128::from(fastrand::u64(..)) << 64 | u128::from(fastrand::u64(..)));
    let store = Identity { store_id, incarnation: 1, incarnation_start: 0 };
    Setting { broker, topic, identity: PublisherIdentity { tenant: "default".to_owned(), store } }
}

impl Setting {
    fn message(&self, number: u64, bytes: usize) -> NewMessage {
        NewMessage {
            topic: self.topic.name.clone(),
            key: format!("k-{}", number % 5).into(),
            headers: vec![("sequence_number".into(), number.to_string().into())],
            body: vec![b'x'; bytes].into(),
            // Kafka deletes what is older than the retention, whenever it looks.
            time: SystemClock.now(),
            sequence_number: number,
        }
    }

    fn position(&self, next: u64) -> RelayPosition {
        let store = self.identity.store;
        RelayPosition { store_id: store.store_id, incarnation: store.incarnation, next, fork: None }
    }

    async fn publisher(&self) -> Box<dyn Publisher> {
        self.broker.publisher(&self.identity).await.expect("opened").expect("Kafka holds copies")
    }

    async fn numbers(&self) -> Vec<u64> {
        let mut numbers: Vec<u64> =
            read_all(&self.broker, &self.topic.name).await.iter().map(crate::support::number).collect();
        numbers.sort_unstable();
        numbers
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_is_published_with_its_position_and_another_publisher_continues_there() {
    let setting = setting().await;
    let mut publisher = setting.publisher().await;
    assert_eq!(publisher.position().await, Ok(None), "nothing was published");
    for first in [0, 10, 20] {
        let batch = (first..first + 10).map(|number| setting.message(number, 100)).collect();
        publisher.publish(batch, setting.position(first + 10)).await.expect("published");
    }
    publisher.publish(Vec::new(), setting.position(77)).await.expect("a position alone");
    assert_eq!(publisher.position().await, Ok(Some(setting.position(77))));
    drop(publisher);
    let mut publisher = setting.publisher().await;
    assert_eq!(publisher.position().await, Ok(Some(setting.position(77))));
    let all = read_all(&setting.broker, &setting.topic.name).await;
    let mut by_key = std::collections::BTreeMap::<_, Vec<u64>>::new();
    for message in &all {
        let key = message.key.clone().expect("a key");
        assert_eq!(message.at.partition, annals_core::partition_of(&key, 3), "as Kafka's own clients choose");
        by_key.entry(key).or_default().push(crate::support::number(message));
    }
    assert_eq!(all.len(), 30);
    assert!(by_key.values().all(|numbers| numbers.is_sorted()), "{by_key:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publisher_that_another_one_has_fenced_publishes_nothing_more() {
    let setting = setting().await;
    let mut paused = setting.publisher().await;
    paused.publish(vec![setting.message(0, 10)], setting.position(1)).await.expect("the only one");
    let mut woken = setting.publisher().await;
    assert_eq!(woken.position().await, Ok(Some(setting.position(1))));
    woken.publish(vec![setting.message(1, 10)], setting.position(2)).await.expect("it took over");
    let fenced = paused.publish(vec![setting.message(1, 10)], setting.position(2)).await;
    assert_eq!(fenced, Err(BrokerError::Fenced));
    woken.publish(vec![setting.message(2, 10)], setting.position(3)).await.expect("nothing disturbs it");
    assert_eq!(setting.numbers().await, [0, 1, 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_earlier_incarnation_is_refused_once_a_later_one_has_published() {
    let setting = setting().await;
    let mut before = setting.publisher().await;
    before.publish(vec![setting.message(0, 10)], setting.position(1)).await.expect("published");
    let mut restored = setting.identity.clone();
    restored.store.incarnation = 2;
    let mut later = setting.broker.publisher(&restored).await.expect("opened").expect("copies");
    let position = RelayPosition { incarnation: 2, ..setting.position(1) };
    later.publish(Vec::new(), position).await.expect("announced");
    let fenced = before.publish(vec![setting.message(1, 10)], setting.position(2)).await;
    assert_eq!(fenced, Err(BrokerError::Fenced));
    assert_eq!(setting.broker.publisher(&setting.identity).await.err(), Some(BrokerError::Fenced));
    later.publish(vec![setting.message(1, 10)], position).await.expect("the refused one fenced nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_one_byte_too_large_is_named_and_the_others_are_published_without_it() {
    let setting = setting().await;
    let mut limit = java("kafka.admin.ConfigCommand");
    limit.args(["--bootstrap-server", &address(), "--alter", "--entity-type", "topics", "--entity-name"]);
    limit.args([&*setting.topic.name, "--add-config", "max.message.bytes=20000"]);
    assert!(limit.output().expect("java runs").status.success());
    let mut publisher = setting.publisher().await;
    // The largest body that is taken, by halves; what stands around it is Kafka's own.
    let (mut taken, mut refused) = (10_000, 20_000);
    while taken + 1 < refused {
        let bytes = usize::midpoint(taken, refused);
        let message = setting.message(50, bytes);
        match publisher.publish(vec![message], setting.position(0)).await {
            Ok(()) => taken = bytes,
            Err(BrokerError::RefusedMessage { at: 0, .. }) => refused = bytes,
            Err(error) => panic!("{bytes} bytes: {error}"),
        }
    }
    assert!(taken > 19_000, "{taken}");
    let mut batch: Vec<NewMessage> = (0..100).map(|number| setting.message(number, 200)).collect();
    batch[50] = setting.message(50, taken + 1);
    let outcome = publisher.publish(batch.clone(), setting.position(100)).await;
    let Err(BrokerError::RefusedMessage { at, topic, .. }) = outcome else { panic!("{outcome:?}") };
    assert_eq!((at, &*topic), (50, &*setting.topic.name));
    batch.remove(50);
    publisher.publish(batch, setting.position(100)).await.expect("the rest");
    let numbers: Vec<u64> = setting.numbers().await.into_iter().filter(|number| *number != 50).collect();
    assert_eq!(numbers, (0..100).filter(|number| *number != 50).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_for_a_topic_that_does_not_exist_publishes_nothing_of_its_batch() {
    let setting = setting().await;
    let mut publisher = setting.publisher().await;
    let missing = ByteString::from(format!("{}-gone", setting.topic.name));
    let batch = vec![setting.message(0, 10), NewMessage { topic: missing.clone(), ..setting.message(1, 10) }];
    assert_eq!(publisher.publish(batch, setting.position(2)).await, Err(BrokerError::UnknownTopic(missing)));
    let mut publisher = setting.publisher().await;
    assert_eq!(publisher.position().await, Ok(None));
    assert_eq!(setting.numbers().await, [0; 0]);
}
