//! Measures the relay beside a bare transactional producer of rdkafka, and the time from a commit to a committed reader.
//!
//! Both sides publish the same messages in batches of 1,000. Each batch is a transaction whose deliveries are awaited before its commit.
//! The bare producer has its messages encoded in memory; the relay reads the log, encodes, and stores its position. `kafka/consumers.rs`
//! has the rows of consumers, and `kafka/commits.rs` the cost of publishing for commits.

mod commits;
mod consumers;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use annals_core::relay::{MessageOptions, RelayTopics};
use annals_core::{
    Broker, DEFAULT_SCOPE, DEFAULT_TENANT, Data, EventLog, LogQuery, NewCommit, NewEvent, NewMessage, Store,
    TopicSettings,
};
use annals_embedded::EmbeddedStore;
use annals_embedded::disk::RealDisk;
use annals_kafka::{KafkaBroker, KafkaOptions};
use annals_runtime::{Host, HostOptions, RelayOptions};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Header, Headers, Message, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer, ThreadedProducer};

use crate::row::{self, Parts, Target};

/// The first word of the command line.
pub const OPTION: &str = "kafka";

const USAGE: &str = "\
cargo xtask bench kafka [OPTIONS]

  --events N         events of the backlog (200000)
  --rounds N         rounds (3); the median is printed
  --rate N           events per second while latency is measured (1000)
  --seconds N        seconds of it (20)
  --address A        HOST:PORT of a broker
";

const BATCH: usize = 1_000;
/// Events in one commit, and commits in flight, while the log is filled.
const FILL: (u64, usize) = (100, 64);

struct Arguments {
    events: u64,
    rounds: u64,
    rate: u64,
    seconds: u64,
    address: String,
}

impl Arguments {
    fn parse(words: &[&str]) -> Result<Option<Self>, String> {
        let mut arguments = Self { events: 200_000, rounds: 3, rate: 1_000, seconds: 20, address: String::new() };
        let mut words = words.iter();
        while let Some(option) = words.next() {
            if matches!(*option, "--help" | "-h") {
                return Ok(None);
            }
            let value = *words.next().ok_or_else(|| format!("{option} needs a value"))?;
            let number = || value.parse().map_err(|_| format!("{option} takes a number, not {value:?}"));
            match *option {
                "--events" => arguments.events = number()?,
                "--rounds" => arguments.rounds = number()?,
                "--rate" => arguments.rate = number()?,
                "--seconds" => arguments.seconds = number()?,
                "--address" => arguments.address = value.to_owned(),
                other => return Err(format!("there is no option {other:?}\n\n{USAGE}")),
            }
        }
        if arguments.address.is_empty() { Err(format!("--address is missing\n\n{USAGE}")) } else { Ok(Some(arguments)) }
    }
}

/// Measures what the command line selects, and prints it.
pub async fn run(words: &[&str]) -> Result<(), String> {
    let Some(arguments) = Arguments::parse(words)? else {
        print!("{USAGE}");
        return Ok(());
    };
    let mut parts = Parts::default();
    parts.note("relay and consumers", backlog(&arguments).await);
    parts.note("commit to committed reader", latencies(&arguments).await);
    parts.note("messages over keys", consumers::keys(&arguments).await);
    parts.note("commits with relay and registry", commits::with_and_without(&arguments).await);
    parts.end()
}

/// Measures a relay beside a bare producer on a backlog, and consumers of what the relay has published.
async fn backlog(arguments: &Arguments) -> Result<(), String> {
    let (mut relayed, mut bare) = (Vec::new(), Vec::new());
    for round in 0..arguments.rounds {
        let settings = settings(&format!("backlog-{round}"));
        let (_folder, store) = opened()?;
        let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).map_err(text)?;
        fill(&log, arguments.events).await?;
        let messages = encoded(&*log, &settings).await?;
        relayed.push(relay(&store, arguments, &settings).await?);
        bare.push(produce(messages, arguments, &format!("bare-{}-{round}", std::process::id())).await?);
        if round == 0 {
            consumers::no_op(arguments, &settings).await?;
            consumers::embedded(&store, arguments.events).await?;
        }
        store.close().await;
    }
    let row = format!("kafka: relay of a backlog of {} events ÷ bare producer", arguments.events);
    row::ratio(row, "per second", median(relayed), median(bare), Target::AtLeast(0.6));
    Ok(())
}

/// Measures the time from a commit to a committed reader, beside that from a bare transaction.
async fn latencies(arguments: &Arguments) -> Result<(), String> {
    let ours = latency(arguments).await?;
    let bare = bare_latency(arguments).await?;
    for (percentile, ours, bare, most) in [("p50", ours.0, bare.0, 15.0), ("p99", ours.1, bare.1, 60.0)] {
        let row = format!("kafka: {percentile} from commit to committed reader at {} events/s", arguments.rate);
        row::figure(&row, "ms", ours, Target::AtMost(most));
        row::ratio(format!("{row} ÷ bare transactions"), "ms", ours, bare, Target::AtMost(2.0));
    }
    Ok(())
}

fn settings(name: &str) -> TopicSettings {
    TopicSettings { prefix: format!("bench-{}-{name}.", std::process::id()), ..TopicSettings::default() }
}

fn opened() -> Result<(tempfile::TempDir, Arc<dyn Store>), String> {
    let folder = tempfile::tempdir_in(".").map_err(text)?;
    let store = EmbeddedStore::open(Arc::new(RealDisk::new(folder.path().join("store"))), Default::default());
    Ok((folder, Arc::new(store.map_err(text)?)))
}

fn broker(arguments: &Arguments, settings: &TopicSettings) -> Result<Arc<KafkaBroker>, String> {
    let options = KafkaOptions { settings: settings.clone(), replication: Some(1) };
    Ok(Arc::new(KafkaBroker::open(&format!("kafka://{}", arguments.address), options).map_err(text)?))
}

fn new_event(n: u64) -> Result<NewEvent, String> {
    let data = serde_json::json!({ "customer": format!("c-{:06}", n % 5_000), "total": n % 100, "note": "leave it at the door, please" });
    Ok(NewEvent::new("order_placed", Data::from_value(&data)?))
}

async fn fill(log: &Arc<dyn EventLog>, events: u64) -> Result<(), String> {
    let mut writers = tokio::task::JoinSet::new();
    for first in (0..events).step_by(usize::try_from(FILL.0).map_err(text)?) {
        if writers.len() >= FILL.1 {
            writers.join_next().await.ok_or("no writer")?.map_err(text)??;
        }
        let events = (first..(first + FILL.0).min(events)).map(new_event).collect::<Result<Vec<_>, String>>()?;
        let commit = events.into_iter().fold(NewCommit::new("order", format!("o-{first}")), NewCommit::event);
        let log = Arc::clone(log);
        writers.spawn(async move { log.commit(commit).await.map(drop).map_err(text) });
    }
    while let Some(written) = writers.join_next().await {
        written.map_err(text)??;
    }
    Ok(())
}

/// Returns the messages that the relay publishes, in memory.
async fn encoded(log: &dyn EventLog, settings: &TopicSettings) -> Result<Vec<NewMessage>, String> {
    let (mut messages, mut from) = (Vec::new(), 0);
    let options = MessageOptions::default();
    loop {
        let page = log.read(LogQuery { from: Some(from), limit: BATCH, ..LogQuery::default() }).await.map_err(text)?;
        if page.events.is_empty() {
            return Ok(messages);
        }
        let topic = |event_type: &str| settings.topic_of(event_type);
        messages.extend(
            page.events.iter().map(|event| options.message(event, "default", 0, topic(&event.event_type), false)),
        );
        from = page.next;
    }
}

/// Returns events per second from the start of a relay until the last event is published.
async fn relay(store: &Arc<dyn Store>, arguments: &Arguments, settings: &TopicSettings) -> Result<f64, String> {
    let (host, broker) = (Host::start(Arc::clone(store), HostOptions::default()), broker(arguments, settings)?);
    let topic = settings.definition("order_placed", "default").map_err(text)?;
    broker.create_topic(&topic).await.map_err(text)?;
    let options = RelayOptions { topics: RelayTopics::all(settings.clone()), ..RelayOptions::default() };
    let began = Instant::now();
    host.relay(DEFAULT_TENANT, broker, options).map_err(text)?;
    until(&host, arguments.events).await?;
    let rate = arguments.events as f64 / began.elapsed().as_secs_f64();
    host.drain().await;
    Ok(rate)
}

async fn until(host: &Host, position: u64) -> Result<(), String> {
    while host.relays().first().is_none_or(|relay| relay.position < position) {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(())
}

/// Returns messages per second of a bare transactional producer.
async fn produce(messages: Vec<NewMessage>, arguments: &Arguments, id: &str) -> Result<f64, String> {
    let (mut config, id) = (ClientConfig::new(), id.to_owned());
    config.set("bootstrap.servers", &arguments.address).set("transactional.id", &id).set("linger.ms", "0");
    let produced = tokio::task::spawn_blocking(move || {
        let producer: ThreadedProducer<rdkafka::producer::DefaultProducerContext> = config.create().map_err(text)?;
        producer.init_transactions(Duration::from_secs(10)).map_err(text)?;
        let began = Instant::now();
        for batch in messages.chunks(BATCH) {
            transaction(&producer, batch)?;
        }
        Ok::<_, String>(messages.len() as f64 / began.elapsed().as_secs_f64())
    });
    produced.await.map_err(text)?
}

fn transaction<C: rdkafka::producer::ProducerContext<DeliveryOpaque = ()> + 'static>(
    producer: &ThreadedProducer<C>,
    batch: &[NewMessage],
) -> Result<(), String> {
    producer.begin_transaction().map_err(text)?;
    for message in batch {
        let mut headers = OwnedHeaders::new_with_capacity(message.headers.len());
        for (key, value) in &message.headers {
            headers = headers.insert(Header { key, value: Some(&value[..]) });
        }
        let record = BaseRecord::to(&message.topic).key(&message.key[..]).payload(&message.body[..]).headers(headers);
        producer.send(record).map_err(|(error, _)| error.to_string())?;
    }
    while producer.in_flight_count() > 0 {
        // The broker needs the cores.
        std::thread::park_timeout(Duration::from_micros(100));
    }
    producer.commit_transaction(Duration::from_secs(10)).map_err(text)
}

/// Measures the time from a commit to a committed reader, at a steady rate: p50 and p99 in milliseconds.
async fn latency(arguments: &Arguments) -> Result<(f64, f64), String> {
    let settings = settings("latency");
    let (_folder, store) = opened()?;
    let (host, broker) = (Host::start(Arc::clone(&store), HostOptions::default()), broker(arguments, &settings)?);
    let topic = settings.definition("order_placed", "default").map_err(text)?;
    broker.create_topic(&topic).await.map_err(text)?;
    let options = RelayOptions { topics: RelayTopics::all(settings.clone()), ..RelayOptions::default() };
    host.relay(DEFAULT_TENANT, broker, options).map_err(text)?;
    let count = arguments.rate * arguments.seconds;
    let sent: Arc<Mutex<Vec<Option<Instant>>>> =
        Arc::new(Mutex::new(vec![None; usize::try_from(count).map_err(text)?]));
    let reader = reader(arguments, &topic.name, Arc::clone(&sent))?;
    let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).map_err(text)?;
    let (began, next) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let mut writers = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (log, sent, next, rate) = (Arc::clone(&log), Arc::clone(&sent), Arc::clone(&next), arguments.rate);
        writers.spawn(async move {
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= count {
                    return Ok::<_, String>(());
                }
                let due = began + Duration::from_secs_f64(n as f64 / rate as f64);
                tokio::time::sleep_until(due.into()).await;
                let commit = NewCommit::new("order", format!("o-{n}")).event(new_event(n)?);
                let number = log.commit(commit).await.map_err(text)?.first_sequence_number.ok_or("no number")?;
                let mut sent = sent.lock().unwrap_or_else(PoisonError::into_inner);
                sent[usize::try_from(number).map_err(text)?] = Some(due);
            }
        });
    }
    while let Some(written) = writers.join_next().await {
        written.map_err(text)??;
    }
    let times = reader.await.map_err(text)??;
    host.drain().await;
    store.close().await;
    Ok(percentiles(times, arguments.rate))
}

/// Measures the same with bare transactions, each of which takes the messages that are due.
async fn bare_latency(arguments: &Arguments) -> Result<(f64, f64), String> {
    let settings = settings("bare-latency");
    let topic = settings.definition("order_placed", "default").map_err(text)?;
    broker(arguments, &settings)?.create_topic(&topic).await.map_err(text)?;
    let count = arguments.rate * arguments.seconds;
    let sent: Arc<Mutex<Vec<Option<Instant>>>> =
        Arc::new(Mutex::new(vec![None; usize::try_from(count).map_err(text)?]));
    let reader = reader(arguments, &topic.name, Arc::clone(&sent))?;
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", &arguments.address).set("linger.ms", "0");
    config.set("transactional.id", format!("bare-latency-{}", std::process::id()));
    let (rate, name) = (arguments.rate, topic.name);
    let produced = tokio::task::spawn_blocking(move || {
        let producer: ThreadedProducer<rdkafka::producer::DefaultProducerContext> = config.create().map_err(text)?;
        producer.init_transactions(Duration::from_secs(10)).map_err(text)?;
        let began = Instant::now();
        let mut next = 0_u64;
        while next < count {
            let due = ((began.elapsed().as_secs_f64() * rate as f64) as u64).min(count);
            if due == next {
                std::thread::park_timeout(Duration::from_micros(200));
                continue;
            }
            let mut batch = Vec::new();
            for n in next..due {
                let body = serde_json::to_vec(&new_event(n)?.data).map_err(text)?;
                let at = began + Duration::from_secs_f64(n as f64 / rate as f64);
                sent.lock().unwrap_or_else(PoisonError::into_inner)[usize::try_from(n).map_err(text)?] = Some(at);
                batch.push(NewMessage {
                    topic: name.clone(),
                    key: format!("o-{n}").into(),
                    headers: vec![("sequence_number".into(), n.to_string().into())],
                    body: body.into(),
                    time: annals_core::Timestamp::from_millis(0),
                    sequence_number: n,
                });
            }
            transaction(&producer, &batch)?;
            next = due;
        }
        Ok::<_, String>(())
    });
    produced.await.map_err(text)??;
    Ok(percentiles(reader.await.map_err(text)??, arguments.rate))
}

/// Returns p50 and p99 without the first second, in which connections open.
fn percentiles(mut times: Vec<f64>, rate: u64) -> (f64, f64) {
    times.drain(..times.len().min(usize::try_from(rate).unwrap_or(usize::MAX)));
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times.get((times.len() as f64 * share) as usize).copied().unwrap_or_default();
    (at(0.5), at(0.99))
}

/// Reads all messages as a committed reader, and reports the milliseconds from the start of each event's commit.
fn reader(
    arguments: &Arguments,
    topic: &str,
    sent: Arc<Mutex<Vec<Option<Instant>>>>,
) -> Result<tokio::task::JoinHandle<Result<Vec<f64>, String>>, String> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", &arguments.address).set("group.id", format!("bench-{}", std::process::id()));
    config.set("isolation.level", "read_committed").set("auto.offset.reset", "earliest").set("fetch.wait.max.ms", "5");
    let consumer: BaseConsumer = config.create().map_err(text)?;
    consumer.subscribe(&[topic]).map_err(text)?;
    let count = usize::try_from(arguments.rate * arguments.seconds).map_err(text)?;
    Ok(tokio::task::spawn_blocking(move || {
        let mut seen = Vec::with_capacity(count);
        while seen.len() < count {
            let Some(found) = consumer.poll(Duration::from_secs(1)) else { continue };
            let (found, now) = (found.map_err(text)?, Instant::now());
            let headers = found.headers().ok_or("no headers")?;
            let number = headers.iter().find(|header| header.key == "sequence_number").and_then(|header| header.value);
            let number =
                std::str::from_utf8(number.unwrap_or_default()).map_err(text)?.parse::<usize>().map_err(text)?;
            seen.push((number, now));
        }
        let sent = sent.lock().unwrap_or_else(PoisonError::into_inner);
        let since = |(number, now): (usize, Instant)| sent[number].map_or(0.0, |at| (now - at).as_secs_f64() * 1e3);
        Ok(seen.into_iter().map(since).collect())
    }))
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied().unwrap_or(0.0)
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
