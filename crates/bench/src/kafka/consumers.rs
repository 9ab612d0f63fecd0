//! Measures consumers beside a bare consumer, beside the minimum time of their work, and beside a follower of the log.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use annals_core::{
    Broker, DEFAULT_SCOPE, DEFAULT_TENANT, Filter, Follower, NewCommit, RecordedEvent, Store, TopicSettings,
};
use annals_embedded::EmbeddedStore;
use annals_embedded::disk::MemoryDisk;
use annals_runtime::{Consumer, Host, HostOptions, consumer};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _};

use super::{Arguments, broker, new_event, opened, relay, settings, text};
use crate::row::{self, Target};

/// How often offsets are committed, on both sides.
const COMMIT_EVERY: Duration = Duration::from_millis(100);
/// Messages, keys, keys in flight, and the work of each message.
const KEYED: (u64, u64, u32, Duration) = (10_000, 1_000, 100, Duration::from_millis(2));

/// Counts processed messages, and notes when the first and the last were processed.
#[derive(Default)]
struct Count {
    seen: AtomicU64,
    first: std::sync::OnceLock<Instant>,
}

impl Count {
    fn note(&self) {
        self.first.get_or_init(Instant::now);
        self.seen.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns messages per second from the first to the last.
    async fn rate(&self, all: u64) -> f64 {
        while self.seen.load(Ordering::Relaxed) < all {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let began = self.first.get().copied().unwrap_or_else(Instant::now);
        all as f64 / began.elapsed().as_secs_f64()
    }
}

fn counting(count: &Arc<Count>) -> Consumer {
    let count = Arc::clone(count);
    consumer("bench", ["order_placed"]).on("order_placed", move |_: RecordedEvent, _: serde::de::IgnoredAny| {
        count.note();
        async { Ok(()) }
    })
}

fn memory() -> Result<Arc<dyn Store>, String> {
    Ok(Arc::new(EmbeddedStore::open(Arc::new(MemoryDisk::default()), Default::default()).map_err(text)?))
}

/// Measures a consumer that does nothing beside a bare one, on what the relay has published.
pub async fn no_op(arguments: &Arguments, settings: &TopicSettings) -> Result<(), String> {
    let (store, count) = (memory()?, Arc::new(Count::default()));
    let host = Host::start(Arc::clone(&store), HostOptions::default());
    host.use_broker(DEFAULT_TENANT, broker(arguments, settings)? as Arc<dyn Broker>, settings.clone());
    counting(&count).run(&host, DEFAULT_TENANT).await.map_err(text)?;
    let ours = count.rate(arguments.events).await;
    host.drain().await;
    let (topic, address, events) = (settings.topic_of("order_placed"), arguments.address.clone(), arguments.events);
    let bare = tokio::task::spawn_blocking(move || bare(&address, &topic, events)).await.map_err(text)??;
    let row = format!("kafka: consumer of {events} messages that does nothing ÷ bare consumer");
    row::ratio(row, "per second", ours, bare, Target::AtLeast(0.5));
    Ok(())
}

fn bare(address: &str, topic: &str, events: u64) -> Result<f64, String> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", address).set("group.id", format!("bench-bare-{}", std::process::id()));
    config.set("isolation.level", "read_committed").set("auto.offset.reset", "earliest");
    config.set("enable.auto.commit", "false");
    let consumer: BaseConsumer = config.create().map_err(text)?;
    consumer.subscribe(&[topic]).map_err(text)?;
    let (mut began, mut committed, mut seen) = (None, Instant::now(), 0);
    while seen < events {
        let Some(found) = consumer.poll(Duration::from_secs(1)) else { continue };
        found.map_err(text)?;
        began.get_or_insert_with(Instant::now);
        seen += 1;
        if committed.elapsed() >= COMMIT_EVERY {
            consumer.commit_consumer_state(CommitMode::Sync).map_err(text)?;
            committed = Instant::now();
        }
    }
    Ok(events as f64 / began.map_or(0.0, |began| began.elapsed().as_secs_f64()))
}

/// Measures messages of many keys with some work each, beside as many tasks that do only this work.
pub async fn keys(arguments: &Arguments) -> Result<(), String> {
    let (messages, keys, in_flight, work) = KEYED;
    let settings = settings("keys");
    let (_folder, store) = opened()?;
    let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).map_err(text)?;
    for n in 0..messages {
        let commit = NewCommit::new("order", format!("o-{}", n % keys)).event(new_event(n)?);
        log.commit(commit).await.map_err(text)?;
    }
    let all = Arguments { events: messages, address: arguments.address.clone(), ..*arguments };
    relay(&store, &all, &settings).await?;
    let (count, counted) = (Arc::new(Count::default()), Arc::new(Count::default()));
    let noted = Arc::clone(&counted);
    let host = Host::start(memory()?, HostOptions::default());
    host.use_broker(DEFAULT_TENANT, broker(arguments, &settings)? as Arc<dyn Broker>, settings.clone());
    let of_group = consumer("bench", ["order_placed"]).in_flight(in_flight);
    let of_group = of_group.on("order_placed", move |_: RecordedEvent, _: serde::de::IgnoredAny| {
        let noted = Arc::clone(&noted);
        noted.first.get_or_init(Instant::now);
        async move {
            tokio::time::sleep(work).await;
            noted.seen.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    });
    of_group.run(&host, DEFAULT_TENANT).await.map_err(text)?;
    let ours = counted.rate(messages).await;
    host.drain().await;
    let mut ideal = tokio::task::JoinSet::new();
    let of_each = messages / u64::from(in_flight);
    for _ in 0..in_flight {
        let count = Arc::clone(&count);
        ideal.spawn(async move {
            for _ in 0..of_each {
                count.first.get_or_init(Instant::now);
                tokio::time::sleep(work).await;
                count.seen.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    let ideal = count.rate(messages).await;
    let work = work.as_millis();
    let row = format!("kafka: {messages} messages over {keys} keys, {work} ms each, {in_flight} in flight ÷ ideal");
    row::ratio(row, "per second", ours, ideal, Target::AtLeast(0.8));
    store.close().await;
    Ok(())
}

/// Measures a consumer on the embedded broker beside a follower of the log.
pub async fn embedded(store: &Arc<dyn Store>, events: u64) -> Result<(), String> {
    let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).map_err(text)?;
    let mut follower = Follower::new(log, 0, Filter::default());
    let (began, mut seen) = (Instant::now(), 0);
    while seen < events {
        seen += follower.step().await.map_err(text)?.len() as u64;
    }
    let followed = events as f64 / began.elapsed().as_secs_f64();
    let count = Arc::new(Count::default());
    let host = Host::start(Arc::clone(store), HostOptions::default());
    counting(&count).in_flight(256).run(&host, DEFAULT_TENANT).await.map_err(text)?;
    let consumed = count.rate(events).await;
    host.drain().await;
    let row = format!("embedded: consumer of {events} events ÷ follower");
    row::ratio(row, "per second", consumed, followed, Target::AtLeast(0.5));
    Ok(())
}
