//! One measurement: several writers in a closed loop for several seconds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::workload::Row;

/// The duration of a cell.
pub struct Cell {
    warm_up: Duration,
    measured: Duration,
}

impl Cell {
    /// Returns a cell with this many measured seconds.
    pub fn new(seconds: f64) -> Self {
        Self { warm_up: Duration::from_secs_f64(seconds / 5.0), measured: Duration::from_secs_f64(seconds) }
    }

    /// Returns the measured seconds.
    pub fn seconds(&self) -> f64 {
        self.measured.as_secs_f64()
    }
}

/// The latency of each commit that was acknowledged in the measured time, in nanoseconds, ascending.
pub struct Measured {
    latencies: Vec<u64>,
}

impl Measured {
    /// Returns the events acknowledged per second.
    pub fn events_per_second(&self, row: &Row, cell: &Cell) -> f64 {
        (self.latencies.len() * row.events) as f64 / cell.seconds()
    }

    /// Returns the latency below which this share of the commits was acknowledged, in microseconds.
    pub fn latency_us(&self, share: f64) -> f64 {
        percentile_us(&self.latencies, share)
    }
}

/// Returns the value below which this share of `ascending` nanoseconds lies, in microseconds.
pub fn percentile_us(ascending: &[u64], share: f64) -> f64 {
    let place = (ascending.len() as f64 * share) as usize;
    let nanoseconds = ascending.get(place.min(ascending.len().saturating_sub(1))).copied().unwrap_or_default();
    nanoseconds as f64 / 1_000.0
}

/// A writer of a system under measurement.
pub trait Commits: Send + 'static {
    /// Commits once and waits for the acknowledgement.
    fn commit(&mut self) -> impl Future<Output = Result<(), String>> + Send;
}

/// Runs the writers until the time is up.
pub async fn run<W: Commits>(cell: &Cell, writers: Vec<W>) -> Result<Measured, String> {
    let together = Arc::new(Barrier::new(writers.len()));
    let (warm_up, measured) = (cell.warm_up, cell.measured);
    let mut tasks = JoinSet::new();
    for writer in writers {
        tasks.spawn(commit_until_over(writer, Arc::clone(&together), warm_up, measured));
    }
    gathered(tasks).await
}

/// Does the same with a thread for each writer, for clients that block their caller.
#[cfg(feature = "rivals")]
pub async fn run_threads<W: Commits>(cell: &Cell, writers: Vec<W>) -> Result<Measured, String> {
    let together = Arc::new(Barrier::new(writers.len()));
    let (warm_up, measured) = (cell.warm_up, cell.measured);
    let mut tasks = JoinSet::new();
    for writer in writers {
        let loop_of_it = commit_until_over(writer, Arc::clone(&together), warm_up, measured);
        let runtime = tokio::runtime::Handle::current();
        tasks.spawn_blocking(move || runtime.block_on(loop_of_it));
    }
    gathered(tasks).await
}

async fn commit_until_over<W: Commits>(
    mut writer: W,
    together: Arc<Barrier>,
    warm_up: Duration,
    measured: Duration,
) -> Result<Vec<u64>, String> {
    together.wait().await;
    let begin = Instant::now() + warm_up;
    let end = begin + measured;
    let mut latencies = Vec::new();
    let mut started = Instant::now();
    while started < end {
        writer.commit().await?;
        let ended = Instant::now();
        if ended >= begin && ended < end {
            latencies.push((ended - started).as_nanos() as u64);
        }
        started = ended;
    }
    Ok(latencies)
}

async fn gathered(mut tasks: JoinSet<Result<Vec<u64>, String>>) -> Result<Measured, String> {
    let mut latencies = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        latencies.extend(ended.map_err(|error| error.to_string())??);
    }
    latencies.sort_unstable();
    Ok(Measured { latencies })
}
