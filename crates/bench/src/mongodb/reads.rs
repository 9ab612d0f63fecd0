//! Measures reads of the log and of aggregates, beside finds of the bare driver.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use annals_core::{Aggregate, AggregateQuery, EventLog, Filter, Follower, LogQuery, Reached, ScanQuery, limits};
use mongodb::bson::{Document, RawDocumentBuf, doc};
use mongodb::{Collection, Database};
use tokio::task::JoinSet;

use super::figures::Figures;
use super::{Arguments, Place, bare, sample, text};
use crate::cell::Commits;

/// Callers that fill the log.
const CALLERS: usize = 64;
/// Aggregates that are loaded in a round.
const LOADS: usize = 200;
/// Commits of each aggregate that is loaded.
const COMMITS: u64 = 100;

pub async fn measure(place: &Place, arguments: &Arguments, figures: &mut Figures) -> Result<(), String> {
    let opened = place.store("annals_bench_reads").await?;
    fill(&opened.log, arguments.corpus).await?;
    opened.drained().await?;
    let head = opened.log.head().await.map_err(text)?;
    let database = place.client.database(&opened.name);
    let commits = database.collection::<RawDocumentBuf>(bare::COLLECTION);
    for _ in 0..arguments.rounds {
        let events = database.collection::<RawDocumentBuf>("event-log");
        figures.add("raw find of event-log/s", raw(&events).await?);
        figures.add("log by scan, events/s", scan(&opened.log).await?);
        figures.add("raw find of commits/s", raw(&commits).await?);
        figures.add("log to a follower, events/s", follow(&opened.log, head).await?);
        figures.add("typed find of event-log/s", typed(&events).await?);
        figures.add("log in pages, events/s", pages(&opened.log).await?);
        figures.add("typed find of commits/s", typed(&commits).await?);
        figures.add("typed find of an aggregate/s", loads(|id| typed_load(&database, id)).await?);
        figures.add("aggregates/s", loads(|id| load(&opened.log, id)).await?);
        figures.add("raw find of an aggregate/s", loads(|id| raw_load(&database, id)).await?);
    }
    place.close(opened).await
}

async fn fill(log: &Arc<dyn EventLog>, corpus: u64) -> Result<(), String> {
    let mut tasks = JoinSet::new();
    for number in 0..CALLERS {
        let mut caller = super::writes::Caller::new(log, number, Reached::Committed);
        tasks.spawn(async move {
            for _ in 0..corpus / CALLERS as u64 {
                caller.commit().await?;
            }
            Ok::<_, String>(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.map_err(text)??;
    }
    let mut tasks = JoinSet::new();
    for place in 0..LOADS {
        let log = log.clone();
        tasks.spawn(async move {
            for version in 0..COMMITS {
                log.commit(sample::commit(&aggregate(place), version, version)).await.map_err(text)?;
            }
            Ok::<_, String>(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.map_err(text)??;
    }
    Ok(())
}

fn aggregate(place: usize) -> String {
    format!("long-{place:05}")
}

fn rate(count: u64, begun: Instant) -> f64 {
    count as f64 / begun.elapsed().as_secs_f64()
}

async fn raw(documents: &Collection<RawDocumentBuf>) -> Result<f64, String> {
    let begun = Instant::now();
    let mut cursor = documents.find(doc! {}).sort(doc! { "_id": 1 }).await.map_err(text)?;
    let (mut count, mut bytes) = (0, 0);
    while cursor.advance().await.map_err(text)? {
        count += 1;
        bytes += cursor.current().as_bytes().len();
    }
    std::hint::black_box(bytes);
    Ok(rate(count, begun))
}

async fn typed(documents: &Collection<RawDocumentBuf>) -> Result<f64, String> {
    let begun = Instant::now();
    let typed = documents.clone_with_type::<Document>();
    let mut cursor = typed.find(doc! {}).sort(doc! { "_id": 1 }).await.map_err(text)?;
    let mut count = 0;
    while cursor.advance().await.map_err(text)? {
        std::hint::black_box(cursor.deserialize_current().map_err(text)?);
        count += 1;
    }
    Ok(rate(count, begun))
}

async fn scan(log: &Arc<dyn EventLog>) -> Result<f64, String> {
    let begun = Instant::now();
    let (mut count, mut bytes) = (0, 0);
    let mut visit = |event: annals_core::EventRef<'_>| {
        count += 1;
        bytes += event.data.as_bytes().len();
        ControlFlow::Continue(())
    };
    log.scan(ScanQuery::default(), &mut visit).await.map_err(text)?;
    std::hint::black_box(bytes);
    Ok(rate(count, begun))
}

async fn pages(log: &Arc<dyn EventLog>) -> Result<f64, String> {
    let begun = Instant::now();
    let (mut count, mut from) = (0, 0);
    loop {
        let query = LogQuery { from: Some(from), limit: limits::PAGE_MAX, ..LogQuery::default() };
        let page = log.read(query).await.map_err(text)?;
        if page.events.is_empty() {
            return Ok(rate(count, begun));
        }
        count += page.events.len() as u64;
        from = page.next;
    }
}

async fn follow(log: &Arc<dyn EventLog>, head: u64) -> Result<f64, String> {
    let begun = Instant::now();
    let mut follower = Follower::new(log.clone(), 0, Filter::default());
    let mut count = 0;
    while follower.position() < head {
        count += follower.next_page().await.map_err(text)?.len() as u64;
    }
    Ok(rate(count, begun))
}

async fn loads<F: Future<Output = Result<usize, String>>>(load: impl Fn(String) -> F) -> Result<f64, String> {
    let begun = Instant::now();
    for place in 0..LOADS {
        let found = load(aggregate(place)).await?;
        if found != COMMITS as usize {
            return Err(format!("{found} commits of an aggregate, not {COMMITS}"));
        }
    }
    Ok(rate(LOADS as u64, begun))
}

async fn load(log: &Arc<dyn EventLog>, id: String) -> Result<usize, String> {
    let query = AggregateQuery { limit: limits::PAGE_MAX, ..AggregateQuery::new(Aggregate::new(sample::NAME, id)) };
    Ok(log.read_aggregate(query).await.map_err(text)?.commits.len())
}

async fn typed_load(database: &Database, id: String) -> Result<usize, String> {
    let commits = database.collection::<Document>(bare::COLLECTION);
    let find = commits.find(doc! { "aggregateId": id });
    let mut cursor = find.sort(doc! { "version": 1 }).await.map_err(text)?;
    let mut found = Vec::new();
    while cursor.advance().await.map_err(text)? {
        found.push(cursor.deserialize_current().map_err(text)?);
    }
    Ok(found.len())
}

async fn raw_load(database: &Database, id: String) -> Result<usize, String> {
    let commits = database.collection::<RawDocumentBuf>(bare::COLLECTION);
    let find = commits.find(doc! { "aggregateId": id });
    let mut cursor = find.sort(doc! { "version": 1 }).await.map_err(text)?;
    let mut found = Vec::new();
    while cursor.advance().await.map_err(text)? {
        found.push(cursor.current().to_owned());
    }
    Ok(found.len())
}
