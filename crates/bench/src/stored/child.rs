//! The processes that fill, read and weigh stores: their arguments, their work and their results.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::time::Instant;

use tokio::task::JoinSet;

use super::annals::Annals;
use super::{Kind, Reads, Remote, Stored, figures, page_cache};
use crate::cell::percentile_us;
use crate::corpus::{COMMIT_EVENTS, Corpus, TAG};
use crate::served::Served;

/// The option that makes this program such a process. Task, store, folder, events, events of a commit, and the server's program or the
/// folder it is in follow.
pub const OPTION: &str = "--stored";

/// Commits in flight at once while filling.
const TOGETHER: usize = 256;
/// Aggregates of each kind whose reading is timed.
const AGGREGATES_READ: usize = 2_000;
/// Passes of the filtered read. The files are dropped from the page cache before each.
const TAGGED_PASSES: usize = 3;
/// Commits that a follower is timed for.
const FOLLOWED: usize = 2_000;

/// The purpose of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// Fills a new store.
    Fill,
    /// Opens the store until its background work is done. Only ours has any.
    Settle,
    /// Opens the store and does nothing more.
    Open,
    /// Opens the store and reads it.
    Read,
    /// Starts a server on the store and reads through it.
    Serve,
    /// Closes the store cleanly and weighs it.
    Weigh,
}

impl Task {
    const ALL: [Self; 6] = [Self::Fill, Self::Settle, Self::Open, Self::Read, Self::Serve, Self::Weigh];

    /// Returns its word on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Fill => "fill",
            Self::Settle => "settle",
            Self::Open => "open",
            Self::Read => "read",
            Self::Serve => "serve",
            Self::Weigh => "weigh",
        }
    }
}

/// Figures by name.
pub type Answer = BTreeMap<String, f64>;

/// Parses the output of a process.
pub fn answer(line: &str) -> Result<Answer, String> {
    serde_json::from_str(line).map_err(|error| format!("{line:?} is no answer: {error}"))
}

/// Runs the task of the arguments and writes the figures as one line of JSON. Keeps the store open until it is killed or its parent has
/// gone.
pub async fn obey(words: &[&str]) -> Result<(), String> {
    let [task, kind, folder, events, commit_events, program] = words else {
        return Err(format!("{OPTION} is for this program alone"));
    };
    let task = Task::ALL.into_iter().find(|known| known.word() == *task).ok_or("there is no such task")?;
    let number = |text: &str| text.parse().map_err(|error| format!("{text:?}: {error}"));
    let corpus = Corpus { events: number(events)?, commit_events: number(commit_events)? };
    let (folder, program) = (Path::new(*folder), Path::new(*program));
    match (Kind::parse(kind)?, task) {
        (Kind::Annals, Task::Settle) => {
            // Open until the process is killed.
            let _store = super::annals::settle(folder).await?;
            say(Vec::new())
        }
        (_, Task::Settle) => say(Vec::new()),
        (Kind::Annals, Task::Serve) => serve::<Annals>(folder, corpus, program).await,
        (Kind::Annals, _) => work::<Annals>(task, folder, corpus).await,
        #[cfg(feature = "rivals")]
        (Kind::Tephra, Task::Serve) => serve::<super::tephra_server::TephraServer>(folder, corpus, program).await,
        #[cfg(feature = "rivals")]
        (Kind::Tephra, _) => work::<super::tephra::Tephra>(task, folder, corpus).await,
        #[cfg(feature = "rivals")]
        (Kind::Umadb, Task::Serve) => serve::<super::umadb_server::UmadbServer>(folder, corpus, program).await,
        #[cfg(feature = "rivals")]
        (Kind::Umadb, _) => work::<super::umadb::Umadb>(task, folder, corpus).await,
        #[cfg(not(feature = "rivals"))]
        (Kind::Tephra | Kind::Umadb, _) => Err(crate::rivals::NOT_BUILT.to_owned()),
    }
}

async fn serve<S: Remote>(folder: &Path, corpus: Corpus, program: &Path) -> Result<(), String> {
    let started = Instant::now();
    let store = S::start(folder, program).await?;
    let answered = started.elapsed();
    let process = store.server().and_then(Served::process_id).ok_or("the server ended")?.to_string();
    let mut figures =
        vec![(figures::OPEN, answered.as_secs_f64() * 1_000.0), (figures::MEMORY, anonymous_memory(&process)? / MIB)];
    figures.extend(read(&store, folder, corpus).await?);
    figures.push((figures::MEMORY_READ, anonymous_memory(&process)? / MIB));
    figures.extend(follow(&store, corpus).await?);
    say(figures)
}

async fn work<S: Stored>(task: Task, folder: &Path, corpus: Corpus) -> Result<(), String> {
    let before = anonymous_memory("self")?;
    let started = Instant::now();
    let store = S::open(folder)?;
    let opened = started.elapsed();
    let figures = match task {
        Task::Fill => fill(&store, corpus).await?,
        Task::Open => figures_of_opening(opened, before)?,
        Task::Settle | Task::Read | Task::Serve => {
            let mut figures = figures_of_opening(opened, before)?;
            figures.extend(read(&store, folder, corpus).await?);
            figures.push((figures::MEMORY_READ, (anonymous_memory("self")? - before) / MIB));
            figures.extend(follow(&store, corpus).await?);
            figures
        }
        Task::Weigh => {
            let weight = store.clone().weigh(folder).await?;
            let name = figures::WEIGHT[usize::from(corpus.commit_events != COMMIT_EVENTS)];
            // Without events, too little was stored for a segment to be closed.
            (weight.events > 0).then(|| (name, weight.bytes as f64 / weight.events as f64)).into_iter().collect()
        }
    };
    say(figures)
}

fn figures_of_opening(opened: std::time::Duration, memory_before: f64) -> Result<Figures, String> {
    let memory = (anonymous_memory("self")? - memory_before) / MIB;
    Ok(vec![(figures::OPEN, opened.as_secs_f64() * 1_000.0), (figures::MEMORY, memory)])
}

/// Writes the figures and keeps running.
fn say(figures: Figures) -> Result<(), String> {
    let answer: Answer = figures.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    println!("{}", serde_json::to_string(&answer).map_err(|error| error.to_string())?);
    let until_nobody = || std::io::stdin().read_to_end(&mut Vec::new());
    until_nobody().map(drop).map_err(|error| error.to_string())
}

type Figures = Vec<(&'static str, f64)>;

async fn fill<S: Stored>(store: &S, corpus: Corpus) -> Result<Figures, String> {
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    let ended =
        |ended: Result<Result<(), String>, _>| ended.map_err(|error: tokio::task::JoinError| error.to_string())?;
    for number in 0..corpus.commits() {
        let store = store.clone();
        tasks.spawn(async move { store.append(corpus.commit(number)).await });
        if tasks.len() >= TOGETHER {
            tasks.join_next().await.map_or(Ok(()), ended)?;
        }
    }
    while let Some(last) = tasks.join_next().await {
        ended(last)?;
    }
    let per_second = corpus.events as f64 / started.elapsed().as_secs_f64();
    Ok(if corpus.commit_events == COMMIT_EVENTS { vec![(figures::FILL, per_second)] } else { Vec::new() })
}

async fn read<S: Reads>(store: &S, folder: &Path, corpus: Corpus) -> Result<Figures, String> {
    let mut figures = Vec::new();
    // The first pass also loads into memory what a fresh process lacks.
    store.read_all().await?;
    if store.gives() {
        figures.push((figures::READ_ALL, per_second(store.read_all(), corpus).await?));
    }
    if store.lends() {
        figures.push((figures::LEND_ALL, per_second(store.lend_all(), corpus).await?));
    }
    for (large, [p50, p99]) in figures::AGGREGATE.into_iter().enumerate() {
        let latencies = read_aggregates(store, corpus, large).await?;
        figures.extend([(p50, percentile_us(&latencies, 0.5)), (p99, percentile_us(&latencies, 0.99))]);
    }
    let mut passes = Vec::new();
    for _ in 0..TAGGED_PASSES {
        page_cache::drop_files(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let started = Instant::now();
        let events = store.read_tagged(TAG).await?;
        passes.push(events as f64 / started.elapsed().as_secs_f64());
        if events != corpus.tagged() {
            return Err(format!("{events} tagged events read instead of {}", corpus.tagged()));
        }
    }
    passes.sort_by(f64::total_cmp);
    figures.push((figures::TAGGED, passes[TAGGED_PASSES / 2]));
    // Fills the page cache again for the next reader.
    store.read_all().await?;
    Ok(figures)
}

/// Returns how many events per second `reading` reads.
async fn per_second(reading: impl Future<Output = Result<usize, String>>, corpus: Corpus) -> Result<f64, String> {
    let started = Instant::now();
    let events = reading.await?;
    let elapsed = started.elapsed();
    if events < corpus.events {
        return Err(format!("{events} events read instead of {}", corpus.events));
    }
    Ok(events as f64 / elapsed.as_secs_f64())
}

async fn read_aggregates<S: Reads>(store: &S, corpus: Corpus, large: usize) -> Result<Vec<u64>, String> {
    let mut random = fastrand::Rng::with_seed(5);
    let mut latencies = Vec::with_capacity(AGGREGATES_READ);
    for _ in 0..AGGREGATES_READ {
        let id = Corpus::aggregate_id(large > 0, random.usize(..corpus.aggregates()[large]));
        let started = Instant::now();
        let events = store.read_aggregate(&id).await?;
        latencies.push(started.elapsed().as_nanos() as u64);
        let expected = crate::corpus::AGGREGATE_EVENTS[large];
        if events != expected {
            return Err(format!("{events} events read of {id} instead of {expected}"));
        }
    }
    latencies.sort_unstable();
    Ok(latencies)
}

/// Measures the time from the start of a commit until it is acknowledged, and until a follower has its event.
async fn follow<S: Reads>(store: &S, corpus: Corpus) -> Result<Figures, String> {
    if !S::FOLLOWS {
        return Ok(Vec::new());
    }
    let (seen, mut arrivals) = tokio::sync::mpsc::unbounded_channel();
    let follower = store.clone();
    let following = tokio::spawn(async move { follower.follow(FOLLOWED, seen).await });
    arrivals.recv().await.ok_or("the follower ended")?;
    let (mut acknowledged, mut followed) = (Vec::new(), Vec::new());
    // After all commits of the corpus, and different for each process that reads.
    let first = corpus.commits() + std::process::id() as usize * FOLLOWED;
    for number in first..first + FOLLOWED {
        let one = Corpus { commit_events: 1, ..corpus };
        let commit =
            crate::corpus::Commit { aggregate_id: format!("followed-{number}"), tagged: false, ..one.commit(number) };
        let started = Instant::now();
        store.append(commit).await?;
        acknowledged.push(started.elapsed().as_nanos() as u64);
        let arrived = arrivals.recv().await.ok_or("the follower ended")?;
        followed.push(arrived.duration_since(started).as_nanos() as u64);
    }
    following.await.map_err(|error| error.to_string())??;
    acknowledged.sort_unstable();
    followed.sort_unstable();
    Ok(vec![
        (figures::ACKNOWLEDGED, percentile_us(&acknowledged, 0.5)),
        (figures::FOLLOWED[0], percentile_us(&followed, 0.5)),
        (figures::FOLLOWED[1], percentile_us(&followed, 0.99)),
    ])
}

const MIB: f64 = 1024.0 * 1024.0;

/// Returns the anonymous memory of a process, in bytes.
fn anonymous_memory(process: &str) -> Result<f64, String> {
    let file = format!("/proc/{process}/status");
    let text = std::fs::read_to_string(&file).map_err(|error| format!("{file}: {error}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib: Option<f64> = line.and_then(|line| line.trim().split(' ').next()?.parse().ok());
    kib.map(|kib| kib * 1024.0).ok_or_else(|| format!("{file} has no RssAnon"))
}
