//! Measures handlers beside the same work without them: bare followers, ideal lanes, reads over HTTP.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use annals::Client;
use annals_core::handlers::{HandlerDefinition, Handlers, PullBody, SettleBody, Settlement};
use annals_core::processing::{PartitionBy, ProcessingRetry};
use annals_core::{
    Collection, DEFAULT_SCOPE, DEFAULT_TENANT, Data, EventLog, Follower, LogQuery, NewCommit, NewEvent, Reached,
    RecordChange, RecordedEvent, Store, limits,
};
use annals_runtime::{Effects, HandleFailure, Handler, Host};
use async_trait::async_trait;

use super::{Arguments, fill, median, text};
use crate::row::{self, Target, mebibytes};
use crate::server;
use crate::usage::{cpu_seconds, memory};

const PARTITIONS: u64 = 1_000;
const LANES: u32 = 8;
/// The time for an event in the row with partitions.
const WORK: Duration = Duration::from_millis(1);

/// How a handler of a row processes an event.
enum Does {
    Nothing,
    /// Works, and fails in the poison partition.
    Works {
        poison: Option<u64>,
    },
}

struct Row {
    does: Does,
    handled: Arc<AtomicU64>,
}

#[async_trait]
impl Handler for Row {
    async fn handle(&self, events: &[RecordedEvent], _: &mut Effects) -> Result<(), HandleFailure> {
        for event in events {
            if let Does::Works { poison } = self.does {
                let partition = event.data.as_raw().get_i64("partition").unwrap_or(0).cast_unsigned();
                if poison == Some(partition) {
                    return Err(HandleFailure::new("poison"));
                }
                tokio::time::sleep(WORK).await;
            }
            self.handled.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

async fn start(host: &Host, definition: HandlerDefinition, does: Does) -> Result<Arc<AtomicU64>, String> {
    let handled = Arc::new(AtomicU64::new(0));
    let row = Row { does, handled: Arc::clone(&handled) };
    host.handle(DEFAULT_TENANT, definition, row).await.map_err(text)?;
    Ok(handled)
}

/// Waits until the stored position of a handler has reached `position`.
async fn until(handlers: &dyn Handlers, name: &str, position: u64) -> Result<(), String> {
    while handlers.get(name).await.map_err(text)?.position < position {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(())
}

/// Measures an ordered handler that does nothing, from its definition until its position is stored at the head, beside a bare follower.
pub async fn no_op(name: &str, store: &Arc<dyn Store>, host: &Host, arguments: &Arguments) -> Result<(), String> {
    let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).map_err(text)?;
    let handlers = host.handlers(DEFAULT_TENANT).map_err(text)?;
    let head = log.head().await.map_err(text)?;
    let (mut handled, mut followed) = (Vec::new(), Vec::new());
    for round in 0..arguments.rounds {
        let began = Instant::now();
        let mut follower = Follower::new(Arc::clone(&log), 0, Default::default());
        while follower.position() < head {
            follower.step().await.map_err(text)?;
        }
        followed.push(head as f64 / began.elapsed().as_secs_f64());
        let definition = HandlerDefinition { batch: 1_000, ..HandlerDefinition::new(format!("no-op-{round}")) };
        let began = Instant::now();
        start(host, definition.clone(), Does::Nothing).await?;
        until(&*handlers, &definition.name, head).await?;
        handled.push(head as f64 / began.elapsed().as_secs_f64());
        handlers.delete(&definition.name, "measured".into()).await.map_err(text)?;
    }
    let (handled, followed) = (median(handled), median(followed));
    let row = format!("{name}: no-op handler with a durable position ÷ bare follower");
    row::ratio(row, "events/s", handled, followed, Target::AtLeast(0.5));
    Ok(())
}

/// Measures events of 1,000 partitions that take 1 ms each on 8 lanes, beside the ideal, and the same with one partition that always
/// fails.
pub async fn partitions(name: &str, store: &Arc<dyn Store>, host: &Host, arguments: &Arguments) -> Result<(), String> {
    let events = (arguments.events / 10).clamp(PARTITIONS, 20 * PARTITIONS) / PARTITIONS * PARTITIONS;
    let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).map_err(text)?;
    for first in (0..events).step_by(500) {
        let commit = NewCommit::new("work", format!("w-{first}")).wait_until(Reached::Logged);
        let commit = (first..first + 500).try_fold(commit, |commit, n| {
            let data = Data::from_value(&serde_json::json!({ "partition": n % PARTITIONS })).map_err(text)?;
            Ok::<_, String>(commit.event(NewEvent::new("worked", data)))
        })?;
        log.commit(commit).await.map_err(text)?;
    }
    let handlers = host.handlers(DEFAULT_TENANT).map_err(text)?;
    let mut rates = [Vec::new(), Vec::new()];
    for round in 0..arguments.rounds {
        for (of, poison) in [None, Some(500)].into_iter().enumerate() {
            let by_partition = PartitionBy::Data("partition".to_owned());
            let mut definition = HandlerDefinition::new(format!("lanes-{round}-{of}")).types(["worked"]);
            definition = definition.partitioned(by_partition, LANES);
            definition.retry = ProcessingRetry { first_ms: 100, max_ms: 100, ..ProcessingRetry::default() };
            let due = if poison.is_some() { events - events / PARTITIONS } else { events };
            let began = Instant::now();
            let handled = start(host, definition.clone(), Does::Works { poison }).await?;
            while handled.load(Ordering::Relaxed) < due {
                tokio::time::sleep(WORK).await;
            }
            rates[of].push(due as f64 / began.elapsed().as_secs_f64());
            handlers.delete(&definition.name, "measured".into()).await.map_err(text)?;
        }
    }
    let [sound, poisoned] = rates.map(median);
    // The same sleeps on as many lanes, without anything around them.
    let ideal = ideal(events.min(4_000)).await;
    let row = format!("{name}: {PARTITIONS} partitions on {LANES} lanes, {} ms per event ÷ ideal", WORK.as_millis());
    row::ratio(row, "events/s", sound, ideal, Target::AtLeast(0.9));
    let row = format!("{name}: time of the others beside one poison partition of {PARTITIONS}");
    row::ratio(row, "events/s", sound, poisoned, Target::AtMost(1.05));
    Ok(())
}

async fn ideal(events: u64) -> f64 {
    let (began, left) = (Instant::now(), Arc::new(AtomicU64::new(events)));
    let lanes = (0..LANES).map(|_| {
        let left = Arc::clone(&left);
        tokio::spawn(async move {
            while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
                tokio::time::sleep(WORK).await;
            }
        })
    });
    for lane in lanes.collect::<Vec<_>>() {
        let _ = lane.await;
    }
    events as f64 / began.elapsed().as_secs_f64()
}

/// Measures how long a commit takes to be handled and to be followed, in units of one record write.
pub async fn latency(name: &str, store: &Arc<dyn Store>, host: &Host) -> Result<(), String> {
    const COMMITS: usize = 500;
    let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).map_err(text)?;
    let handlers = host.handlers(DEFAULT_TENANT).map_err(text)?;
    let records = store.records(DEFAULT_TENANT).map_err(text)?;
    records.declare(Collection::new("latency")).await.map_err(text)?;
    let latest = annals_core::handlers::Start::Latest;
    start(host, HandlerDefinition { start: latest, ..HandlerDefinition::new("latency") }, Does::Nothing).await?;
    let (mut followed, mut handled, mut written) = (Vec::new(), Vec::new(), Vec::new());
    for n in 0..COMMITS {
        let commit = NewCommit::new("latency", format!("l-{n}")).event(NewEvent::new("measured", Data::empty()));
        let head = log.head().await.map_err(text)?;
        let mut follower = Follower::new(Arc::clone(&log), head, Default::default());
        let waiting = tokio::spawn(async move { follower.next_page().await.map(|_| Instant::now()) });
        let began = Instant::now();
        log.commit(commit.wait_until(Reached::Logged)).await.map_err(text)?;
        let reached = waiting.await.map_err(text)?.map_err(text)?;
        followed.push(reached.duration_since(began).as_secs_f64());
        // The handler has this event too before the next one is measured.
        until(&*handlers, "latency", head + 1).await?;
        let stage = host.stage(DEFAULT_TENANT, "handled:latency").await.map_err(text)?;
        let aggregate = annals_core::Aggregate::new("latency", format!("h-{n}"));
        let commit = NewCommit::new("latency", format!("h-{n}")).event(NewEvent::new("measured", Data::empty()));
        let began = Instant::now();
        let mut outcome = log.commit(commit.wait_until(Reached::Logged)).await.map_err(text)?;
        stage.wait(&aggregate, &mut outcome, limits::WAIT_MAX).await;
        handled.push(began.elapsed().as_secs_f64());
        let record = annals_core::bson::rawdoc! { "_id": n as i64, "position": n as i64 };
        let began = Instant::now();
        records.write(vec![RecordChange::put("latency", record)]).await.map_err(text)?;
        written.push(began.elapsed().as_secs_f64());
    }
    handlers.delete("latency", "measured".into()).await.map_err(text)?;
    let [followed, handled, written] = [followed, handled, written].map(|times| 1e6 * median(times));
    let measured = format!("({handled:.0} − {followed:.0}) ÷ {written:.0} µs = {:.2}", (handled - followed) / written);
    let row = format!("{name}: commit to handled minus commit to follower, in record writes");
    row::print(row, measured, (handled - followed) / written, Target::AtMost(2.0));
    Ok(())
}

/// Measures one worker that pulls and settles 100 events per request, beside reading the same events, both over HTTP from a server of its
/// own.
pub async fn over_http(program: &Path, arguments: &Arguments) -> Result<(), String> {
    let folder = tempfile::tempdir_in(".").map_err(text)?;
    let events = arguments.events.min(50_000);
    let place = folder.path().canonicalize().map_err(text)?;
    let serve = |address| server::serve(program, &place, address);
    let rates = server::beside(&place, serve, async |address| {
        let client = Client::new(&format!("http://{address}"), DEFAULT_TENANT, DEFAULT_SCOPE).map_err(text)?;
        let log: Arc<dyn EventLog> = Arc::new(client.clone());
        let few = Arguments { events, keys: arguments.keys, rounds: arguments.rounds, url: None, server: None };
        fill(&log, &few).await?;
        let (mut read, mut pulled) = (Vec::new(), Vec::new());
        for round in 0..arguments.rounds {
            let (began, mut from) = (Instant::now(), 0);
            while from < events {
                let query = LogQuery { from: Some(from), limit: 100, ..LogQuery::default() };
                from = log.read(query).await.map_err(text)?.next;
            }
            read.push(events as f64 / began.elapsed().as_secs_f64());
            pulled.push(pull_all(&client.handlers(), &format!("pulled-{round}"), events).await?);
        }
        Ok((median(pulled), median(read)))
    });
    let (pulled, read) = rates.await?;
    let row = "http: pull and settle, 100 a request ÷ reading the same events";
    row::ratio(row, "events/s", pulled, read, Target::AtLeast(0.3));
    Ok(())
}

async fn pull_all(handlers: &dyn Handlers, name: &str, events: u64) -> Result<f64, String> {
    let definition = HandlerDefinition { batch: 100, ..HandlerDefinition::new(name.to_owned()) };
    handlers.put(definition).await.map_err(text)?;
    let (began, mut done) = (Instant::now(), 0);
    while done < events {
        let pull = PullBody { max: 100, wait_ms: 1_000, ..PullBody::default() };
        let deliveries = handlers.pull(name, pull).await.map_err(text)?;
        done += deliveries.len() as u64;
        let results = deliveries.into_iter().map(|delivery| Settlement::done(delivery.token)).collect();
        handlers.settle(name, SettleBody { results }).await.map_err(text)?;
    }
    Ok(events as f64 / began.elapsed().as_secs_f64())
}

/// Measures the cost of 1,000 handlers without events: CPU of one core over 10 s, and memory.
pub async fn idle(name: &str, host: &Host) -> Result<(), String> {
    const HANDLERS: usize = 1_000;
    let before = memory()?;
    let latest = annals_core::handlers::Start::Latest;
    for n in 0..HANDLERS {
        let definition = HandlerDefinition { start: latest, ..HandlerDefinition::new(format!("idle-{n}")) };
        start(host, definition, Does::Nothing).await?;
    }
    // The work of starting handlers is done by then.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (cpu, began) = (cpu_seconds()?, Instant::now());
    tokio::time::sleep(Duration::from_secs(10)).await;
    let share = (cpu_seconds()? - cpu) / began.elapsed().as_secs_f64();
    let more = mebibytes(memory()?.saturating_sub(before));
    row::figure(format!("{name}: {HANDLERS} idle handlers, CPU of one core"), "%", 100.0 * share, Target::AtMost(1.0));
    row::figure(format!("{name}: {HANDLERS} idle handlers, memory"), "MiB", more, Target::AtMost(100.0));
    let handlers = host.handlers(DEFAULT_TENANT).map_err(text)?;
    for n in 0..HANDLERS {
        handlers.delete(&format!("idle-{n}"), "measured".into()).await.map_err(text)?;
    }
    Ok(())
}
