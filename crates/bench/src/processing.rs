//! Measures handlers, projections and the event horizon beside the same work without them, on the embedded store and on MongoDB.
//!
//! A log is projected by declarative rules, from the definition until its end. The other side writes the same: for each page of 1,000
//! events, one batch with a record for each distinct key of the page, and one more record for the position.

mod handlers;
mod horizon;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use annals_core::bson::rawdoc;
use annals_core::projections::ProjectionDefinition;
use annals_core::{
    Collection, DEFAULT_SCOPE, DEFAULT_TENANT, Data, EventLog, NewCommit, NewEvent, Reached, RecordChange, Store,
};
use annals_embedded::EmbeddedStore;
use annals_embedded::disk::RealDisk;
use annals_mongodb::MongoStore;
use annals_runtime::{Host, HostOptions};

use crate::row::{self, Parts, Target};

/// The first word of the command line.
pub const OPTION: &str = "processing";

const USAGE: &str = "\
cargo xtask bench processing [OPTIONS]

  --events N   events of the log (200000)
  --keys N     records that they change (10000)
  --rounds N   rounds (3); the median is printed
  --url URL    a replica set, which is measured too
  --server P   the program annals, for the rows over HTTP
";

const PAGE: u64 = 1_000;
/// Events in one commit, and commits in flight, while the log is filled.
const FILL: (u64, usize) = (100, 64);

const RULES: &str = r#"{"on": {"placed": {"set": {"customer": "$data.customer", "last": "$sequence_number", "at": "$time"},
    "increment": {"orders": 1, "total": "$data.total"}}}, "key": "$data.customer"}"#;

struct Arguments {
    events: u64,
    keys: u64,
    rounds: usize,
    url: Option<String>,
    server: Option<PathBuf>,
}

impl Arguments {
    fn parse(words: &[&str]) -> Result<Option<Self>, String> {
        let mut arguments = Self { events: 200_000, keys: 10_000, rounds: 3, url: None, server: None };
        let mut words = words.iter();
        while let Some(option) = words.next() {
            if matches!(*option, "--help" | "-h") {
                return Ok(None);
            }
            let value = *words.next().ok_or_else(|| format!("{option} needs a value"))?;
            let wrong = |_| format!("{option} takes a number, not {value:?}");
            match *option {
                "--events" => arguments.events = value.parse().map_err(wrong)?,
                "--keys" => arguments.keys = value.parse().map_err(wrong)?,
                "--rounds" => arguments.rounds = value.parse().map_err(wrong)?,
                "--url" => arguments.url = Some(value.to_owned()),
                "--server" => arguments.server = Some(value.into()),
                other => return Err(format!("there is no option {other:?}\n\n{USAGE}")),
            }
        }
        Ok(Some(arguments))
    }

    /// Returns the key of an event. Keys are spread evenly, and are the same in every run.
    fn key(&self, event: u64) -> String {
        format!("c-{:07}", event.wrapping_mul(7_919) % self.keys)
    }
}

/// Measures what the command line selects, and prints it.
pub async fn run(words: &[&str]) -> Result<(), String> {
    let Some(arguments) = Arguments::parse(words)? else {
        print!("{USAGE}");
        return Ok(());
    };
    let folder = tempfile::tempdir_in(".").map_err(text)?;
    let mut parts = Parts::default();
    let store = EmbeddedStore::open(Arc::new(RealDisk::new(folder.path().join("store"))), Default::default());
    measure("embedded", Arc::new(store.map_err(text)?), &arguments, &mut parts).await;
    if let Some(program) = &arguments.server {
        parts.note("http: pull and settle", handlers::over_http(program, &arguments).await);
        parts.note("horizon", horizon::measure(program, arguments.events, arguments.rounds).await);
    }
    if let Some(url) = &arguments.url {
        let (place, query) = url.split_once('?').unwrap_or((url, ""));
        let url = format!("{}/annals_bench_processing_{}?{query}", place.trim_end_matches('/'), std::process::id());
        let store = MongoStore::open(&url, Default::default()).await.map_err(text)?;
        measure("mongodb", Arc::new(store), &arguments, &mut parts).await;
    }
    parts.end()
}

async fn measure(name: &str, store: Arc<dyn Store>, arguments: &Arguments, parts: &mut Parts) {
    let host = Host::start(Arc::clone(&store), HostOptions::default());
    // First, before anything else has allocated memory that it could reuse.
    parts.note(&format!("{name}: idle handlers"), handlers::idle(name, &host).await);
    parts.note(&format!("{name}: projection"), projection(name, &store, &host, arguments).await);
    parts.note(&format!("{name}: no-op handler"), handlers::no_op(name, &store, &host, arguments).await);
    parts.note(&format!("{name}: partitions"), handlers::partitions(name, &store, &host, arguments).await);
    parts.note(&format!("{name}: latency"), handlers::latency(name, &store, &host).await);
    host.drain().await;
    store.close().await;
}

/// Fills the log, and projects it beside batches of the same records.
async fn projection(name: &str, store: &Arc<dyn Store>, host: &Host, arguments: &Arguments) -> Result<(), String> {
    fill(&store.log(DEFAULT_TENANT, DEFAULT_SCOPE).map_err(text)?, arguments).await?;
    let (mut projected, mut written) = (Vec::new(), Vec::new());
    for round in 0..arguments.rounds {
        projected.push(project(host, &format!("p-{round}"), arguments).await?);
        written.push(write(&**store, &format!("r-{round}"), arguments).await?);
    }
    let (projected, written) = (median(projected), median(written));
    let row = format!("{name}: projection ÷ record batches of the same size");
    row::ratio(row, "events/s", projected, written, Target::AtLeast(0.5));
    if name == "mongodb" {
        row::figure(format!("{name}: projection"), "events/s", projected, Target::AtLeast(10_000.0));
    }
    Ok(())
}

async fn fill(log: &Arc<dyn EventLog>, arguments: &Arguments) -> Result<(), String> {
    let mut writers = tokio::task::JoinSet::new();
    for first in (0..arguments.events).step_by(usize::try_from(FILL.0).map_err(text)?) {
        if writers.len() >= FILL.1 {
            writers.join_next().await.ok_or("no writer")?.map_err(text)??;
        }
        let events = (first..(first + FILL.0).min(arguments.events)).map(|n| {
            let data = serde_json::json!({ "customer": arguments.key(n), "total": n % 100, "note": "leave it at the door, please" });
            Ok(NewEvent::new("placed", Data::from_value(&data)?))
        });
        let events = events.collect::<Result<Vec<_>, String>>()?;
        let commit = NewCommit::new("order", format!("o-{first}")).wait_until(Reached::Logged);
        let commit = events.into_iter().fold(commit, NewCommit::event);
        let log = Arc::clone(log);
        writers.spawn(async move { log.commit(commit).await.map(drop).map_err(text) });
    }
    while let Some(written) = writers.join_next().await {
        written.map_err(text)??;
    }
    Ok(())
}

/// Returns events per second from the definition until the last event is in the records.
async fn project(host: &Host, name: &str, arguments: &Arguments) -> Result<f64, String> {
    let projections = host.projections(DEFAULT_TENANT).map_err(text)?;
    let definition = ProjectionDefinition::read(name, RULES.as_bytes()).map_err(text)?;
    let began = Instant::now();
    projections.put(definition).await.map_err(text)?;
    loop {
        let status = projections.get(name).await.map_err(text)?;
        if let Some(reason) = status.last_reason {
            return Err(reason);
        }
        if status.position >= arguments.events {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let rate = arguments.events as f64 / began.elapsed().as_secs_f64();
    projections.delete(name, "measured".into()).await.map_err(text)?;
    while host.tasks().iter().any(|task| task.name.ends_with("/removal")) {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    Ok(rate)
}

/// Returns events per second of batches with as many records of the same size.
async fn write(store: &dyn Store, name: &str, arguments: &Arguments) -> Result<f64, String> {
    let records = store.records(DEFAULT_TENANT).map_err(text)?;
    records.declare(Collection::new(name)).await.map_err(text)?;
    let began = Instant::now();
    for first in (0..arguments.events).step_by(usize::try_from(PAGE).map_err(text)?) {
        let page = first..(first + PAGE).min(arguments.events);
        let keys: BTreeSet<_> = page.map(|n| arguments.key(n)).collect();
        let record = |key: &String| {
            let number = first.cast_signed();
            let at = annals_core::bson::DateTime::from_millis(number);
            let record = rawdoc! { "customer": key.as_str(), "last": number, "at": at, "orders": number, "total": number, "_id": key.as_str() };
            RecordChange::put(name, record)
        };
        let mut changes: Vec<_> = keys.iter().map(record).collect();
        changes.push(RecordChange::put(name, rawdoc! { "_id": "position", "position": first.cast_signed() }));
        records.write(changes).await.map_err(text)?;
    }
    Ok(arguments.events as f64 / began.elapsed().as_secs_f64())
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied().unwrap_or(0.0)
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
