//! Measures features above the log beside the same work without them: the browse view, dead letters, partner events, sagas and work
//! queues.

mod browse;
mod letters;
mod partners;
mod workflow;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use annals_core::{DEFAULT_SCOPE, DEFAULT_TENANT, Data, NewCommit, NewEvent, Reached, Store};
use annals_embedded::EmbeddedStore;
use annals_embedded::disk::RealDisk;
use annals_mongodb::MongoStore;
use tokio::task::JoinSet;

use crate::row::Parts;

/// The first words of the command line that this file handles.
pub const OPTIONS: [&str; 4] = ["browse", "letters", "partners", "workflow"];

const USAGE: &str = "\
cargo xtask bench browse|letters|partners|workflow [OPTIONS]

  --events N   events or letters (100000); a tenth as many deliveries and saga steps, ten times as many deliveries that are pending
  --many N     partners, or sagas that wait (1000 partners, 100000 sagas and a tenth of them)
  --rounds N   rounds (3); the median is printed
  --url URL    a replica set, which is measured too
  --redis URL  a Redis, whose work queues are measured too
  --server P   the program annals, for the export over HTTP
  --only PART  of browse: commits, pages, archive or export
";

pub use workflow::streams;

/// Commits in flight.
const IN_FLIGHT: usize = 64;
/// How long a row waits for its result. After that the row counts as missed, and the next one begins.
const WAIT_MAX: Duration = Duration::from_secs(30 * 60);

struct Arguments {
    events: u64,
    many: Option<u64>,
    rounds: usize,
    url: Option<String>,
    redis: Option<String>,
    server: Option<PathBuf>,
    only: Option<String>,
}

impl Arguments {
    fn parse(words: &[&str]) -> Result<Option<Self>, String> {
        let mut arguments =
            Self { events: 100_000, many: None, rounds: 3, url: None, redis: None, server: None, only: None };
        let mut words = words.iter();
        while let Some(option) = words.next() {
            if matches!(*option, "--help" | "-h") {
                return Ok(None);
            }
            let value = *words.next().ok_or_else(|| format!("{option} needs a value"))?;
            let wrong = |_| format!("{option} takes a number, not {value:?}");
            match *option {
                "--events" => arguments.events = value.parse().map_err(wrong)?,
                "--many" => arguments.many = Some(value.parse().map_err(wrong)?),
                "--rounds" => arguments.rounds = value.parse().map_err(wrong)?,
                "--url" => arguments.url = Some(value.to_owned()),
                "--redis" => arguments.redis = Some(value.to_owned()),
                "--server" => arguments.server = Some(value.into()),
                "--only" if browse::PARTS.contains(&value) => arguments.only = Some(value.to_owned()),
                "--only" => return Err(format!("--only takes one of {}, not {value:?}", browse::PARTS.join(", "))),
                other => return Err(format!("there is no option {other:?}\n\n{USAGE}")),
            }
        }
        Ok(Some(arguments))
    }

    /// Returns whether a part of a bench is wanted.
    fn wants(&self, part: &str) -> bool {
        self.only.as_deref().is_none_or(|only| only == part)
    }
}

/// Measures what the command line selects, and prints it.
pub async fn run(part: &str, words: &[&str]) -> Result<(), String> {
    let Some(arguments) = Arguments::parse(words)? else {
        print!("{USAGE}");
        return Ok(());
    };
    let folder = tempfile::tempdir_in(".").map_err(text)?;
    let places = Places { folder: folder.path(), url: arguments.url.as_deref() };
    let mut parts = Parts::default();
    match part {
        "browse" => browse::measure(&places, &arguments, &mut parts).await,
        "letters" => letters::measure(&places, &arguments, &mut parts).await,
        "partners" => partners::measure(&places, &arguments, &mut parts).await,
        _ => workflow::measure(&places, &arguments, &mut parts).await,
    }
    parts.end()
}

/// Polls at the interval `every` until the result is true.
///
/// # Errors
/// `what` did not happen within [`WAIT_MAX`], or polling failed.
async fn until<F: Future<Output = Result<bool, String>>>(
    what: &str,
    every: Duration,
    mut question: impl FnMut() -> F,
) -> Result<(), String> {
    let began = Instant::now();
    while !question().await? {
        if began.elapsed() > WAIT_MAX {
            return Err(format!("{what} took longer than {} s", WAIT_MAX.as_secs()));
        }
        tokio::time::sleep(every).await;
    }
    Ok(())
}

/// Where stores are opened.
struct Places<'a> {
    folder: &'a Path,
    url: Option<&'a str>,
}

impl Places<'_> {
    /// Returns the backends to measure.
    fn backends(&self) -> Vec<&'static str> {
        let mongodb = self.url.map(|_| "mongodb");
        ["embedded"].into_iter().chain(mongodb).collect()
    }

    /// Opens a new store of this backend.
    async fn open(&self, backend: &str, name: &str) -> Result<Arc<dyn Store>, String> {
        let Some(url) = self.url.filter(|_| backend == "mongodb") else {
            let disk = Arc::new(RealDisk::new(self.folder.join(name)));
            return Ok(Arc::new(EmbeddedStore::open(disk, Default::default()).map_err(text)?));
        };
        let (place, query) = url.split_once('?').unwrap_or((url, ""));
        let place = place.trim_end_matches('/');
        let url = format!("{place}/annals_bench_{}_{name}?{query}", std::process::id());
        Ok(Arc::new(MongoStore::open(&url, Default::default()).await.map_err(text)?))
    }
}

/// Commits events one by one, each to an aggregate of its own, with 64 in flight. Returns events per second.
async fn commit_all(store: &dyn Store, prefix: &str, events: u64, data: impl Fn(u64) -> Data) -> Result<f64, String> {
    commit_until(Reached::Logged, store, prefix, events, data).await
}

/// Does the same, but counts a commit as done when it has reached this stage.
async fn commit_until(
    reached: Reached,
    store: &dyn Store,
    prefix: &str,
    events: u64,
    data: impl Fn(u64) -> Data,
) -> Result<f64, String> {
    let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).map_err(text)?;
    let mut writers: JoinSet<Result<(), String>> = JoinSet::new();
    let began = Instant::now();
    for n in 0..events {
        if writers.len() >= IN_FLIGHT {
            writers.join_next().await.ok_or("no writer")?.map_err(text)??;
        }
        let commit = NewCommit::new("order", format!("{prefix}-{n}")).event(NewEvent::new("order_placed", data(n)));
        let (log, commit) = (Arc::clone(&log), commit.wait_until(reached.clone()));
        writers.spawn(async move { log.commit(commit).await.map(drop).map_err(text) });
    }
    while let Some(written) = writers.join_next().await {
        written.map_err(text)??;
    }
    Ok(events as f64 / began.elapsed().as_secs_f64())
}

fn data(value: &serde_json::Value) -> Data {
    Data::from_value(value).unwrap_or_else(|_| Data::empty())
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied().unwrap_or(0.0)
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
