//! Reading: opening a store, reading its whole log, one aggregate, and how soon a follower sees a commit.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use annals_core::{
    Aggregate, AggregateQuery, Data, EventLog, Filter, Follower, LogQuery, NewCommit, NewEvent, Store, limits,
};

use crate::cell::percentile_us;
use crate::library;

/// Events in the log that is read.
pub const EVENTS: usize = 1_000_000;
/// Events of each of its commits.
pub const COMMIT_EVENTS: usize = 10;
/// Commits of each aggregate, so that one has 100 events.
const AGGREGATE_COMMITS: usize = 10;
/// Commits that a follower is timed for.
const FOLLOWED: usize = 2_000;
/// Aggregates whose reading is timed.
const AGGREGATES_READ: usize = 2_000;

/// What was measured.
pub struct Reads {
    pub open_ms: f64,
    pub replay_events_per_second: f64,
    pub aggregate_p50_us: f64,
    pub aggregate_p99_us: f64,
    pub follow_p50_us: f64,
    pub follow_p99_us: f64,
    pub bytes_per_event: f64,
}

/// Fills a store under `folder` and reads it.
pub async fn measure(folder: &Path) -> Result<Reads, String> {
    let folder = tempfile::tempdir_in(folder).map_err(|error| error.to_string())?;
    let data = library::data()?;
    let store = library::open(folder.path())?;
    fill(&library::log(&store)?, &data).await?;
    let bytes: u64 = store.status().iter().map(|log| log.bytes).sum();
    store.close().await;
    drop(store);
    let started = Instant::now();
    let store = library::open(folder.path())?;
    let open_ms = started.elapsed().as_secs_f64() * 1_000.0;
    let log = library::log(&store)?;
    let started = Instant::now();
    let read = replay(&log).await?;
    let replay_events_per_second = read as f64 / started.elapsed().as_secs_f64();
    let aggregates = read_aggregates(&log).await?;
    let followed = follow(&log, &data).await?;
    store.close().await;
    Ok(Reads {
        open_ms,
        replay_events_per_second,
        aggregate_p50_us: percentile_us(&aggregates, 0.5),
        aggregate_p99_us: percentile_us(&aggregates, 0.99),
        follow_p50_us: percentile_us(&followed, 0.5),
        follow_p99_us: percentile_us(&followed, 0.99),
        bytes_per_event: bytes as f64 / EVENTS as f64,
    })
}

fn aggregate_id(number: usize) -> String {
    format!("{number:08}")
}

async fn fill(log: &Arc<dyn EventLog>, data: &[Data]) -> Result<(), String> {
    /// Commits under way at once.
    const TOGETHER: usize = 256;
    let commits = EVENTS / COMMIT_EVENTS;
    let aggregates = commits / AGGREGATE_COMMITS;
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..commits {
        let mut commit = NewCommit::new("order", aggregate_id(number % aggregates));
        for offset in 0..COMMIT_EVENTS {
            commit = commit.event(NewEvent::new("order_placed", data[(number + offset) % data.len()].clone()));
        }
        let log = Arc::clone(log);
        tasks.spawn(async move { log.commit(commit).await });
        if tasks.len() >= TOGETHER {
            finish(&mut tasks).await?;
        }
    }
    while !tasks.is_empty() {
        finish(&mut tasks).await?;
    }
    Ok(())
}

type Committing = tokio::task::JoinSet<Result<annals_core::CommitOutcome, annals_core::CommitError>>;

async fn finish(tasks: &mut Committing) -> Result<(), String> {
    match tasks.join_next().await {
        Some(Ok(Ok(_))) | None => Ok(()),
        Some(Ok(Err(error))) => Err(error.to_string()),
        Some(Err(error)) => Err(error.to_string()),
    }
}

/// Reads the whole log, each event decoded to the form a caller gets.
async fn replay(log: &Arc<dyn EventLog>) -> Result<usize, String> {
    let mut read = 0;
    let mut from = 0;
    loop {
        let query = LogQuery { from: Some(from), limit: limits::PAGE_MAX, ..LogQuery::default() };
        let page = log.read(query).await.map_err(|error| error.to_string())?;
        if page.events.is_empty() {
            break;
        }
        read += page.events.len();
        from = page.next;
    }
    if read == EVENTS { Ok(read) } else { Err(format!("{read} events read instead of {EVENTS}")) }
}

/// Reads aggregates of 100 events each.
async fn read_aggregates(log: &Arc<dyn EventLog>) -> Result<Vec<u64>, String> {
    let aggregates = EVENTS / COMMIT_EVENTS / AGGREGATE_COMMITS;
    let mut random = fastrand::Rng::with_seed(5);
    let mut latencies = Vec::new();
    for _ in 0..AGGREGATES_READ {
        let aggregate = Aggregate::new("order", aggregate_id(random.usize(..aggregates)));
        let started = Instant::now();
        let found = log.read_aggregate(AggregateQuery::new(aggregate)).await.map_err(|error| error.to_string())?;
        latencies.push(started.elapsed().as_nanos() as u64);
        if found.commits.len() != AGGREGATE_COMMITS {
            return Err(format!("{} commits read instead of {AGGREGATE_COMMITS}", found.commits.len()));
        }
    }
    latencies.sort_unstable();
    Ok(latencies)
}

/// How long it takes from handing a commit over until a follower in the same process has its event.
async fn follow(log: &Arc<dyn EventLog>, data: &[Data]) -> Result<Vec<u64>, String> {
    let head = log.head().await.map_err(|error| error.to_string())?;
    let (seen, mut arrivals) = tokio::sync::mpsc::unbounded_channel();
    let mut follower = Follower::new(Arc::clone(log), head, Filter::default());
    let following = tokio::spawn(async move {
        let mut left = FOLLOWED;
        while left > 0 {
            let events = follower.next_page().await.map_err(|error| error.to_string())?;
            left = left.saturating_sub(events.len());
            for _ in events {
                seen.send(Instant::now()).map_err(|_| "nobody waits for the follower".to_owned())?;
            }
        }
        Ok::<_, String>(())
    });
    let mut latencies = Vec::new();
    for number in 0..FOLLOWED {
        let event = NewEvent::new("order_placed", data[number % data.len()].clone());
        let commit = NewCommit::new("followed", aggregate_id(number)).event(event);
        let started = Instant::now();
        log.commit(commit).await.map_err(|error| error.to_string())?;
        let arrived = arrivals.recv().await.ok_or("the follower ended")?;
        latencies.push(arrived.duration_since(started).as_nanos() as u64);
    }
    following.await.map_err(|error| error.to_string())??;
    latencies.sort_unstable();
    Ok(latencies)
}
