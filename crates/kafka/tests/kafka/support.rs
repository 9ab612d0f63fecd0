//! What the tests share: the Kafka of the run, topics of a test's own, stores, and a consumer that is not ours.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use annals_core::relay::{RelayStatus, RelayTopics};
use annals_core::{
    Broker, ByteString, Content, DEFAULT_SCOPE, DEFAULT_TENANT, Data, EventLog, Message, NewCommit, NewEvent,
    ReadMessages, RecordedEvent, Store, TopicPartition, TopicSettings,
};
use annals_embedded::EmbeddedStore;
use annals_embedded::disk::MemoryDisk;
use annals_kafka::{KafkaBroker, KafkaOptions};
use annals_runtime::{Consumer, Host, HostOptions, RelayOptions, consumer};

/// How long a test waits for what has to happen.
pub const LIMIT: Duration = Duration::from_secs(120);

/// The Kafka of the run.
pub fn address() -> String {
    std::env::var("ANNALS_TEST_KAFKA").expect(
        "these tests need a Kafka: run them with `cargo xtask test`, or set ANNALS_TEST_KAFKA and ANNALS_TEST_KAFKA_JARS to what \
         `cargo xtask services kafka` prints",
    )
}

/// Topics of one test, by their prefix.
pub fn settings() -> TopicSettings {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let prefix = format!("t{}-{}.", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    TopicSettings { prefix, ..TopicSettings::default() }
}

pub fn broker_at(address: &str, settings: &TopicSettings) -> Arc<KafkaBroker> {
    let options = KafkaOptions { settings: settings.clone(), replication: Some(1) };
    Arc::new(KafkaBroker::open(&format!("kafka://{address}"), options).expect("a URL"))
}

pub fn memory() -> Arc<dyn Store> {
    Arc::new(
        EmbeddedStore::open(Arc::new(MemoryDisk::default()), annals_embedded::Options::default()).expect("a store"),
    )
}

pub fn log_of(store: &dyn Store) -> Arc<dyn EventLog> {
    store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("the log")
}

/// A host whose relay publishes every type of the store.
pub fn relaying(store: &Arc<dyn Store>, broker: &Arc<KafkaBroker>, settings: &TopicSettings) -> Host {
    relaying_by(store, Arc::clone(broker) as Arc<dyn Broker>, settings)
}

/// The same by any broker.
pub fn relaying_by(store: &Arc<dyn Store>, broker: Arc<dyn Broker>, settings: &TopicSettings) -> Host {
    let host = Host::start(Arc::clone(store), HostOptions::default());
    let options = RelayOptions { topics: RelayTopics::all(settings.clone()), ..RelayOptions::default() };
    host.relay(DEFAULT_TENANT, broker, options).expect("the tenant");
    host
}

/// A commit of one event, whose data is `{"n": n}` and as many letters.
pub async fn commit(log: &dyn EventLog, id: &str, event_type: &str, n: u64, letters: usize) -> u64 {
    let json = format!(r#"{{"n": {n}, "text": "{}"}}"#, "x".repeat(letters));
    let event = NewEvent::new(event_type, Data::from_json(&json).expect("JSON"));
    let outcome = log.commit(NewCommit::new("order", id).event(event)).await.expect("committed");
    outcome.first_sequence_number.expect("a number")
}

/// Waits until a condition holds, and says what it waited for when it does not.
pub async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let looked = tokio::time::timeout(LIMIT, async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            // tidy: allow(pause) between two looks at another process
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    looked.await.unwrap_or_else(|_| panic!("{what} did not happen in time"))
}

/// Waits until the relay has passed this number.
pub async fn until_published(host: &Host, position: u64) -> RelayStatus {
    until(&format!("publishing up to {position}: {:?}", host.relays()), async || {
        host.relays().into_iter().next().filter(|relay| relay.position >= position)
    })
    .await
}

/// All committed messages of a topic, by partition.
pub async fn read_all(broker: &KafkaBroker, topic: &str) -> Vec<Message> {
    let name = ByteString::from(topic);
    let states = broker.topics(Some(std::slice::from_ref(&name))).await.expect("the topic is described");
    let mut messages = Vec::new();
    for partition in 0..states.first().map_or(0, |state| state.partitions()) {
        let mut from = 0;
        loop {
            let at = TopicPartition { topic: name.clone(), partition };
            let page = broker.read(ReadMessages { at, from, limit: 1_000 }).await.expect("a page");
            messages.extend(page.messages);
            from = page.next;
            if page.next >= page.head {
                break;
            }
        }
    }
    messages
}

/// A header of a message, as text.
pub fn header(message: &Message, name: &str) -> Option<String> {
    let Content::Encoded { headers, .. } = &message.content else { return None };
    let (_, value) = headers.iter().find(|(key, _)| &**key == name)?;
    String::from_utf8(value.to_vec()).ok()
}

pub fn number(message: &Message) -> u64 {
    header(message, "sequence_number").and_then(|text| text.parse().ok()).expect("a sequence number")
}

/// What a consumer processed, in the order of processing: the key and the sequence number.
pub type Seen = Arc<Mutex<Vec<(String, u64)>>>;

/// A host that consumes a group's topics on a broker and publishes nothing.
pub fn consuming_host(store: &Arc<dyn Store>, broker: &Arc<KafkaBroker>, settings: &TopicSettings) -> Host {
    let host = Host::start(Arc::clone(store), HostOptions::default());
    host.use_broker(DEFAULT_TENANT, Arc::clone(broker) as Arc<dyn Broker>, settings.clone());
    host
}

/// A consumer that notes what it processes.
pub fn noting(group: &str, seen: &Seen) -> Consumer {
    let seen = Arc::clone(seen);
    consumer(group, ["order_placed"]).on("order_placed", move |event: RecordedEvent, _: serde_json::Value| {
        let noted = (event.commit.aggregate.id.to_string(), event.sequence_number);
        seen.lock().expect("no panic").push(noted);
        async { Ok(()) }
    })
}

/// The sequence numbers of each key in the order in which they were processed first, and how many were processed again.
pub fn first_by_key(seen: &[(String, u64)]) -> (BTreeMap<String, Vec<u64>>, usize) {
    let (mut first, mut again) = (BTreeMap::<String, Vec<u64>>::new(), 0);
    for (key, number) in seen {
        let of_key = first.entry(key.clone()).or_default();
        match of_key.contains(number) {
            true => again += 1,
            false => of_key.push(*number),
        }
    }
    (first, again)
}

/// The sequence numbers of each key of a log whose event of number `n` is of key `o-{n % keys}`.
pub fn keys_in_turn(keys: u64, events: u64) -> BTreeMap<String, Vec<u64>> {
    (0..keys).map(|key| (format!("o-{key}"), (key..events).step_by(keys as usize).collect())).collect()
}

/// Runs one of Kafka's own programs.
pub fn java(class: &str) -> Command {
    let jars =
        std::env::var("ANNALS_TEST_KAFKA_JARS").expect("ANNALS_TEST_KAFKA_JARS names the folder of Kafka's jars");
    let mut command = Command::new("java");
    command.args(["-Xmx256m", "-cp"]).arg(format!("{jars}/*")).arg(class);
    command
}

/// The sequence numbers of each key on all topics of a prefix, as Kafka's own consumer reads them when it reads committed messages only.
pub fn consumed_by_kafka(address: &str, settings: &TopicSettings, messages: usize) -> BTreeMap<String, Vec<u64>> {
    let mut consumer = java("org.apache.kafka.tools.consumer.ConsoleConsumer");
    consumer.args(["--bootstrap-server", address, "--isolation-level", "read_committed", "--from-beginning"]);
    consumer.arg("--include").arg(format!("{}.*", settings.prefix.replace('.', "\\.")));
    for property in ["print.headers=true", "print.key=true", "print.value=false"] {
        consumer.args(["--property", property]);
    }
    // One more than there should be, so that it waits for what must not come.
    consumer.args(["--timeout-ms", "8000", "--max-messages", &(messages + 1).to_string()]);
    let output = consumer.output().expect("Kafka's consumer runs");
    let mut found: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Some((headers, key)) = line.split_once('\t') else { continue };
        let number = headers.split(',').find_map(|header| header.strip_prefix("sequence_number:"));
        let number =
            number.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("a message of ours: {line}"));
        found.entry(key.trim().to_owned()).or_default().push(number);
    }
    assert!(!found.is_empty() || messages == 0, "{}", String::from_utf8_lossy(&output.stderr));
    found
}
