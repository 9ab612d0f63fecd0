//! Measures dead letters: a bulk retry beside batches of as many records, and the time until all letters are processed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use annals_core::bson::{DateTime, Document, RawDocumentBuf};
use annals_core::dead_letters::{BulkAct, BulkBody, DEAD_LETTERS, DeadLetter, LetterSettings};
use annals_core::handlers::HandlerDefinition;
use annals_core::processing::PartitionBy;
use annals_core::{
    Collection, Condition, DEFAULT_TENANT, RecordChange, RecordError, RecordQuery, RecordType, RecordedEvent, Records,
    Store,
};
use annals_runtime::{Effects, HandleFailure, Handler, Host, HostOptions};
use async_trait::async_trait;

use super::{Arguments, Places, commit_all, data, text, until};
use crate::row::{self, Parts, Target, mebibytes};
use crate::usage::{Peak, memory};

/// The number of letters that a bulk act changes in one batch.
const PAGE: u64 = 200;
const LANES: u32 = 256;
/// The limit for growth in MiB. A bulk act holds one page of letters, so its memory does not grow with their number.
const MORE_MEBIBYTES_MAX: f64 = 64.0;
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// A worker that fails every event, or handles every one.
struct Worker {
    fails: bool,
    handled: Arc<AtomicU64>,
}

#[async_trait]
impl Handler for Worker {
    async fn handle(&self, events: &[RecordedEvent], _: &mut Effects) -> Result<(), HandleFailure> {
        self.handled.fetch_add(events.len() as u64, Ordering::Relaxed);
        if self.fails { Err(HandleFailure::new("the service is away")) } else { Ok(()) }
    }
}

pub async fn measure(places: &Places<'_>, arguments: &Arguments, parts: &mut Parts) {
    for backend in places.backends() {
        parts.note(&format!("{backend}: dead letters"), letters(backend, places, arguments).await);
    }
}

async fn letters(backend: &str, places: &Places<'_>, arguments: &Arguments) -> Result<(), String> {
    let store = places.open(backend, "letters").await?;
    fill(backend, &store, arguments.events).await?;
    bulk(backend, &store, arguments.events).await?;
    store.close().await;
    Ok(())
}

fn definition() -> Result<HandlerDefinition, String> {
    let json = serde_json::json!({ "types": ["order_placed"], "retry": { "attempts": 1, "then": "park" } });
    let definition = HandlerDefinition::read("letters", json.to_string().as_bytes()).map_err(text)?;
    let mut definition = definition.partitioned(PartitionBy::Aggregate, LANES);
    definition.dead_letters = Some(LetterSettings { breaker: 0, ..LetterSettings::default() });
    Ok(definition)
}

/// Counts entries of an index. The statistics that people see read every letter, and would be most of what is measured.
async fn open_letters(store: &Arc<dyn Store>) -> Result<u64, String> {
    let records = store.records(DEFAULT_TENANT).map_err(text)?;
    match records.count(DEAD_LETTERS, &DeadLetter::open()).await {
        Err(RecordError::UnknownCollection(_)) => Ok(0),
        count => count.map_err(text),
    }
}

/// Makes every event a dead letter.
async fn fill(backend: &str, store: &Arc<dyn Store>, events: u64) -> Result<(), String> {
    commit_all(&**store, "l", events, |n| data(&serde_json::json!({ "total": n, "note": "leave it at the door" })))
        .await?;
    let host = Host::start(Arc::clone(store), HostOptions::default());
    let worker = Worker { fails: true, handled: Arc::default() };
    let began = Instant::now();
    host.handle(DEFAULT_TENANT, definition()?, worker).await.map_err(text)?;
    until("making the dead letters", LOOK_EVERY, || async { Ok::<_, String>(open_letters(store).await? >= events) })
        .await?;
    let made = events as f64 / began.elapsed().as_secs_f64();
    row::figure(format!("{backend}: events that become dead letters"), "per second", made, Target::Unset);
    host.drain().await;
    Ok(())
}

async fn bulk(backend: &str, store: &Arc<dyn Store>, events: u64) -> Result<(), String> {
    let host = Host::start(Arc::clone(store), HostOptions::default());
    let letters = host.dead_letters(DEFAULT_TENANT).map_err(text)?;
    let idle = memory()?;
    let peak = Peak::watch(std::process::id());
    let began = Instant::now();
    let body = BulkBody {
        condition: Some(Condition::All),
        ids: None,
        reason: "measured".to_owned(),
        by: None,
        dry_run: false,
    };
    let outcome = letters.bulk(BulkAct::Retry, body).await.map_err(text)?;
    let retried = events as f64 / began.elapsed().as_secs_f64();
    if outcome.successful != events {
        return Err(format!("{} of {events} letters were planned", outcome.successful));
    }
    let more = mebibytes(peak.end().await?.saturating_sub(idle));
    let records = store.records(DEFAULT_TENANT).map_err(text)?;
    let written = write(&*records, events).await?;
    let name = format!("{backend}: bulk retry of {events} dead letters ÷ record batches");
    row::ratio(name, "per second", retried, written, Target::AtLeast(0.3));
    let replaced = replace(&*records, events).await?;
    let name = format!("{backend}: the same ÷ batches that replace as many records with its indexes");
    row::ratio(name, "per second", retried, replaced, Target::Unset);
    let name = format!("{backend}: more memory during this retry");
    row::figure(name, "MiB", more, Target::AtMost(MORE_MEBIBYTES_MAX));
    let began = Instant::now();
    let counted = letters.statistics().await.map_err(text)?;
    if counted.open != events {
        return Err(format!("{} of {events} letters were counted", counted.open));
    }
    let name = format!("{backend}: statistics of {events} dead letters");
    row::figure(name, "ms", began.elapsed().as_secs_f64() * 1e3, Target::Unset);
    let (handled, began) = (Arc::new(AtomicU64::new(0)), Instant::now());
    let worker = Worker { fails: false, handled: Arc::clone(&handled) };
    host.handle(DEFAULT_TENANT, definition()?, worker).await.map_err(text)?;
    until("processing the letters", LOOK_EVERY, || async { Ok::<_, String>(open_letters(store).await? == 0) }).await?;
    let ended = events as f64 / began.elapsed().as_secs_f64();
    let deliveries = handled.load(Ordering::Relaxed);
    let name = format!("{backend}: retried letters until all are over, in {deliveries} deliveries");
    row::figure(name, "per second", ended, Target::Unset);
    host.drain().await;
    Ok(())
}

/// Returns a letter.
async fn a_letter(records: &dyn Records) -> Result<Document, String> {
    let page = records.find(RecordQuery::new(DEAD_LETTERS).limit(1)).await.map_err(text)?;
    let letter = page.records.first().ok_or("there is no letter")?;
    Document::try_from(&*letter.document).map_err(text)
}

/// Returns records per second of batches of documents like a letter.
async fn write(records: &dyn Records, events: u64) -> Result<f64, String> {
    const PLACE: &str = "like-letters";
    let like = a_letter(records).await?;
    records.declare(Collection::new(PLACE)).await.map_err(text)?;
    put(records, PLACE, events, |n| {
        let mut document = like.clone();
        document.insert("_id", n.to_string());
        document
    })
    .await
}

/// Returns records per second of batches that replace documents like a letter, with the indexes of letters, as a retry does.
async fn replace(records: &dyn Records, events: u64) -> Result<f64, String> {
    const PLACE: &str = "like-indexed-letters";
    let like = a_letter(records).await?;
    let place = Collection { name: PLACE.to_owned(), ..<DeadLetter as RecordType>::collection() };
    records.declare(place).await.map_err(text)?;
    let of = |n: u64, status: &str| {
        let mut document = like.clone();
        document.insert("_id", n.to_string());
        document.insert("position", n as i64);
        document.insert("status", status);
        document.insert("next_retry_at", DateTime::from_millis(n as i64));
        document
    };
    put(records, PLACE, events, |n| of(n, "pending")).await?;
    put(records, PLACE, events, |n| of(n, "scheduled")).await
}

/// Puts documents in batches, and returns how many in a second.
async fn put(
    records: &dyn Records,
    place: &str,
    events: u64,
    document: impl Fn(u64) -> Document,
) -> Result<f64, String> {
    let began = Instant::now();
    for first in (0..events).step_by(PAGE as usize) {
        let changes = (first..events.min(first + PAGE)).map(|n| {
            let document = RawDocumentBuf::try_from(&document(n)).map_err(text)?;
            Ok(RecordChange::put(place, document))
        });
        records.write(changes.collect::<Result<_, String>>()?).await.map_err(text)?;
    }
    Ok(events as f64 / began.elapsed().as_secs_f64())
}
