//! Measures sagas beside commits, waiting sagas, work queues beside record writes, and streams of events for browsers.

mod on_redis;
pub mod streams;

use std::sync::Arc;
use std::time::{Duration, Instant};

use annals_core::bson::rawdoc;
use annals_core::queue::{ItemsBody, NewItem, QueueDefinition, Queues, TakeBody};
use annals_core::sagas::{SagaDefinition, Sagas};
use annals_core::{Collection, DEFAULT_TENANT, Reached, RecordChange};
use annals_runtime::{Host, HostOptions};
use tokio::task::JoinSet;

use super::{Arguments, Places, commit_all, commit_until, data, median, text, until};
use crate::row::{self, Parts, Target, mebibytes};
use crate::usage::{cpu_seconds, memory};

/// Steps of each saga of the first row.
const STEPS: u64 = 5;
/// Callers of a queue.
const CALLERS: u64 = 8;
/// The polling interval. Each poll counts all sagas of the store that is measured.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// The limit for growth in MiB of waiting sagas, from a tenth of them to all. Their indexes may grow the memory, but not the sagas
/// themselves.
const GROWTH_MEBIBYTES_MAX: f64 = 64.0;

pub async fn measure(places: &Places<'_>, arguments: &Arguments, parts: &mut Parts) {
    for backend in places.backends() {
        parts.note(&format!("{backend}: saga steps"), steps(backend, places, arguments).await);
        parts.note(&format!("{backend}: queue operations"), queue(backend, places, arguments).await);
    }
    if let Some(url) = &arguments.redis {
        parts.note("redis: queue operations", on_redis::measure(url, places, arguments).await);
    }
    parts.note("embedded: streams for browsers", streams::measure(places).await);
    parts.note("embedded: waiting sagas", waiting_sagas(places, arguments.many.unwrap_or(100_000)).await);
}

fn definition(name: &str, json: &serde_json::Value) -> Result<SagaDefinition, String> {
    SagaDefinition::read(name, json.to_string().as_bytes()).map_err(text)
}

/// Measures steps per second of sagas, each of which publishes a command, and commits per second. The product runs as many of these sagas
/// at once as it can. The commits of their first and last events are not counted.
async fn steps(backend: &str, places: &Places<'_>, arguments: &Arguments) -> Result<(), String> {
    let sagas_meant = arguments.events / 10 / STEPS;
    let (mut stepped, mut committed) = (Vec::new(), Vec::new());
    for round in 0..arguments.rounds {
        let store = places.open(backend, &format!("sagas{round}")).await?;
        let host = Host::start(Arc::clone(&store), HostOptions::default());
        commit_all(&*store, "s", sagas_meant, |n| data(&serde_json::json!({ "total": n }))).await?;
        let sagas = host.sagas(DEFAULT_TENANT).map_err(text)?;
        let step =
            |n: u64| serde_json::json!({ "name": format!("s{n}"), "publish": { "type": "do_it", "data": { "n": n } } });
        let steps: Vec<_> = (0..STEPS).map(step).collect();
        let began = Instant::now();
        let body = serde_json::json!({ "start": { "on": ["order_placed"] }, "steps": steps });
        sagas.define(definition("stepped", &body)?).await.map_err(text)?;
        until_in(&*sagas, "completed", sagas_meant).await?;
        stepped.push((sagas_meant * STEPS) as f64 / began.elapsed().as_secs_f64());
        host.drain().await;
        let event = |n| data(&serde_json::json!({ "total": n }));
        // Up to the same stage as the commits of a saga, which does not wait until they are in the log.
        committed.push(commit_until(Reached::Committed, &*store, "c", arguments.events / 10, event).await?);
        store.close().await;
    }
    let (stepped, committed) = (median(stepped), median(committed));
    let name = format!("{backend}: saga steps ÷ commits with 64 in flight");
    row::ratio(name, "per second", stepped, committed, Target::AtLeast(0.3));
    Ok(())
}

/// Waits until this many sagas are in a state.
async fn until_in(sagas: &dyn Sagas, state: &str, count: u64) -> Result<(), String> {
    let all_are = || async {
        let by_state = sagas.statistics(None).await.map_err(text)?.by_state;
        Ok::<_, String>(by_state.get(state).copied().unwrap_or(0) >= count)
    };
    until("the sagas", LOOK_EVERY, all_are).await
}

/// Measures items that several callers enqueue, take and complete, beside as many writes of one record.
async fn queue(backend: &str, places: &Places<'_>, arguments: &Arguments) -> Result<(), String> {
    let items = arguments.events / 50 / CALLERS * CALLERS;
    let store = places.open(backend, "queue").await?;
    let host = Host::start(Arc::clone(&store), HostOptions::default());
    let queues = host.queues(DEFAULT_TENANT).map_err(text)?;
    let records = store.records(DEFAULT_TENANT).map_err(text)?;
    records.declare(Collection::new("written")).await.map_err(text)?;
    let (mut worked, mut written) = (Vec::new(), Vec::new());
    for round in 0..arguments.rounds {
        let name = format!("work-{round}");
        let cap = u32::try_from(CALLERS).map_err(text)?;
        queues.put(QueueDefinition { cap, ..QueueDefinition::new(name.clone()) }).await.map_err(text)?;
        let began = Instant::now();
        let mut callers: JoinSet<Result<(), String>> = JoinSet::new();
        for caller in 0..CALLERS {
            callers.spawn(work(Arc::clone(&queues), name.clone(), caller, items / CALLERS));
        }
        ended(callers).await?;
        // An item is three operations: enqueue, take, done.
        worked.push((3 * items) as f64 / began.elapsed().as_secs_f64());
        let began = Instant::now();
        let mut callers: JoinSet<Result<(), String>> = JoinSet::new();
        for caller in 0..CALLERS {
            let records = Arc::clone(&records);
            callers.spawn(async move {
                for n in 0..3 * items / CALLERS {
                    let id = format!("{round}-{caller}-{n}");
                    let change = RecordChange::put("written", rawdoc! { "_id": id, "n": n.cast_signed() });
                    records.write(vec![change]).await.map_err(text)?;
                }
                Ok(())
            });
        }
        ended(callers).await?;
        written.push((3 * items) as f64 / began.elapsed().as_secs_f64());
    }
    let (worked, written) = (median(worked), median(written));
    let name = format!("{backend}: queue operations ÷ record writes, {CALLERS} callers");
    let target = if backend == "mongodb" { Target::Unset } else { Target::AtLeast(0.5) };
    row::ratio(name, "per second", worked, written, target);
    host.drain().await;
    store.close().await;
    Ok(())
}

async fn work(queues: Arc<dyn Queues>, name: String, caller: u64, items: u64) -> Result<(), String> {
    for n in 0..items {
        queues.enqueue(&name, NewItem::new(format!("{caller}-{n}"))).await.map_err(text)?;
        let taken = queues.take(&name, TakeBody::up_to(1)).await.map_err(text)?;
        let done = taken.items.iter().map(|item| item.reference());
        queues.done(&name, ItemsBody::of(done)).await.map_err(text)?;
    }
    Ok(())
}

async fn ended(mut callers: JoinSet<Result<(), String>>) -> Result<(), String> {
    while let Some(ended) = callers.join_next().await {
        ended.map_err(text)??;
    }
    Ok(())
}

/// Measures the cost of a tenth of these sagas while they wait, and of all of them.
async fn waiting_sagas(places: &Places<'_>, many: u64) -> Result<(), String> {
    let few = waiting(places, many / 10).await?;
    let all = waiting(places, many).await?;
    let name = format!("embedded: {} more waiting sagas ({all:.0} − {few:.0} MiB)", many - many / 10);
    row::figure(name, "MiB", all - few, Target::AtMost(GROWTH_MEBIBYTES_MAX));
    Ok(())
}

/// Measures the cost of sagas that wait for an event that never comes: CPU of one core over 10 s, and memory. Returns the memory in MiB.
async fn waiting(places: &Places<'_>, many: u64) -> Result<f64, String> {
    let store = places.open("embedded", &format!("waiting{many}")).await?;
    let host = Host::start(Arc::clone(&store), HostOptions::default());
    commit_all(&*store, "w", many, |n| data(&serde_json::json!({ "total": n }))).await?;
    let sagas = host.sagas(DEFAULT_TENANT).map_err(text)?;
    let before = memory()?;
    let awaits = serde_json::json!({ "name": "pay", "await": { "on": ["order_paid"] }, "limit_ms": 86_400_000_u64 });
    let body = serde_json::json!({ "start": { "on": ["order_placed"] }, "steps": [awaits] });
    let began = Instant::now();
    sagas.define(definition("waiting", &body)?).await.map_err(text)?;
    until_in(&*sagas, "running", many).await?;
    let started = many as f64 / began.elapsed().as_secs_f64();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (cpu, began) = (cpu_seconds()?, Instant::now());
    tokio::time::sleep(Duration::from_secs(10)).await;
    let share = 100.0 * (cpu_seconds()? - cpu) / began.elapsed().as_secs_f64();
    let taken = mebibytes(memory()?.saturating_sub(before));
    row::figure(format!("embedded: start of {many} sagas that then wait"), "per second", started, Target::Unset);
    row::figure(format!("embedded: {many} waiting sagas, CPU of one core"), "%", share, Target::AtMost(1.0));
    host.drain().await;
    store.close().await;
    Ok(taken)
}
