//! Measures CPU and memory of the server with followers over server-sent events, while events are committed at a steady rate.
//!
//! The followers are in this process and count the lines that they get. A row is complete once each follower has all its events. CPU is
//! divided by the seconds for which events were committed, however long delivery took. More than 100 % means that one core cannot sustain
//! the rate.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use annals::{Client, DEFAULT_SCOPE, DEFAULT_TENANT, Data, EventLog, NewCommit, NewEvent};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::{process, start, text};
use crate::library;
use crate::row::{self, Target, mebibytes};
use crate::usage::{Peak, cpu_seconds_of, raise_open_files};

const FOLLOWERS: u64 = 1_000;
const PER_SECOND: u64 = 1_000;
const SECONDS: u64 = 20;
/// Events are committed in portions, so that a timer of milliseconds can keep the rate.
const PORTION: u64 = 10;
/// Lines of an event: its id, its data, and an empty one.
pub(super) const EVENT_LINES: u64 = 3;
/// Lines of the comment that begins a stream.
pub(super) const GREETING_LINES: u64 = 2;
const ARRIVAL_MAX: Duration = Duration::from_secs(120);

/// Measures followers that each follow an aggregate of their own, so that an event goes to one of them.
pub async fn of_one_each(place: &Path, program: &Path) -> Result<(), String> {
    let name = format!("{FOLLOWERS} followers of one aggregate each at {PER_SECOND} events/s");
    let query = |n: u64| format!("from=0&aggregate=order/f-{n}");
    measure(place, program, "one-each", &name, PER_SECOND * SECONDS / FOLLOWERS, query, commit_to_each).await
}

/// Measures followers that each follow the whole log, so that an event goes to all of them.
pub async fn of_everything(place: &Path, program: &Path) -> Result<(), String> {
    let name = format!("{FOLLOWERS} followers of everything at {PER_SECOND} events/s, {PORTION} in a commit");
    measure(place, program, "everything", &name, PER_SECOND * SECONDS, |_| "from=0".to_owned(), commit_to_one).await
}

async fn measure(
    place: &Path,
    program: &Path,
    folder: &str,
    name: &str,
    events_of_each: u64,
    query: impl Fn(u64) -> String,
    commits_of: CommitsOf,
) -> Result<(), String> {
    raise_open_files().map_err(text)?;
    let folder = place.join(folder);
    std::fs::create_dir_all(&folder).map_err(text)?;
    let server = start(&folder, program).await?;
    let process = process(&server)?;
    let mut followers = JoinSet::new();
    for n in 0..FOLLOWERS {
        let stream = follow(server.address, &query(n)).await?;
        followers.spawn(drain(stream, EVENT_LINES * events_of_each + GREETING_LINES));
    }
    let client = Client::new(&format!("http://{}", server.address), DEFAULT_TENANT, DEFAULT_SCOPE).map_err(text)?;
    let (cpu, peak) = (cpu_seconds_of(process)?, Peak::watch(process));
    commit_paced(Arc::new(client), commits_of).await?;
    let arrived = tokio::time::timeout(ARRIVAL_MAX, async {
        while let Some(follower) = followers.join_next().await {
            follower.map_err(text)??;
        }
        Ok::<_, String>(())
    });
    arrived.await.map_err(|_| format!("the events did not arrive within {} s", ARRIVAL_MAX.as_secs()))??;
    let share = 100.0 * (cpu_seconds_of(process)? - cpu) / SECONDS as f64;
    row::figure(format!("{name}, CPU of the server"), "%", share, Target::AtMost(100.0));
    row::figure(format!("{name}, memory of the server"), "MiB", mebibytes(peak.end().await?), Target::AtMost(200.0));
    server.stop().await
}

/// A function that returns the commits of a portion, with the data of these events.
type CommitsOf = fn(u64, &[Data]) -> Vec<NewCommit>;

/// Returns a portion as one commit of one aggregate.
fn commit_to_one(portion: u64, data: &[Data]) -> Vec<NewCommit> {
    let data = data.iter().cloned().cycle().take(PORTION as usize);
    let events = data.map(|data| NewEvent::new("order_placed", data)).collect();
    vec![NewCommit { events, ..NewCommit::new("order", format!("o-{portion}")) }]
}

/// Returns a portion as commits to as many of the followed aggregates, which take turns.
fn commit_to_each(portion: u64, data: &[Data]) -> Vec<NewCommit> {
    let of_one = |(n, data): (u64, Data)| {
        NewCommit::new("order", format!("f-{}", n % FOLLOWERS)).event(NewEvent::new("order_placed", data))
    };
    (portion * PORTION..(portion + 1) * PORTION).zip(data.iter().cloned().cycle()).map(of_one).collect()
}

/// Commits portions at a steady rate, without waiting for responses.
async fn commit_paced(log: Arc<dyn EventLog>, commits_of: CommitsOf) -> Result<(), String> {
    let data = library::data()?;
    let mut pace = tokio::time::interval(Duration::from_millis(1_000 * PORTION / PER_SECOND));
    let mut commits: JoinSet<Result<(), String>> = JoinSet::new();
    for portion in 0..PER_SECOND * SECONDS / PORTION {
        pace.tick().await;
        for commit in commits_of(portion, &data) {
            let log = Arc::clone(&log);
            commits.spawn(async move { log.commit(commit).await.map(drop).map_err(text) });
        }
    }
    while let Some(commit) = commits.join_next().await {
        commit.map_err(text)??;
    }
    Ok(())
}

/// Opens a stream and reads its headers.
pub(super) async fn follow(address: SocketAddr, query: &str) -> Result<BufReader<TcpStream>, String> {
    let mut stream = TcpStream::connect(address).await.map_err(text)?;
    // HTTP/1.0 gets a response without chunks, so every line belongs to the stream.
    let request = format!("GET /v1/log/follow?{query} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n");
    stream.write_all(request.as_bytes()).await.map_err(text)?;
    let mut stream = BufReader::with_capacity(16 * 1024, stream);
    let mut status = String::new();
    stream.read_line(&mut status).await.map_err(text)?;
    if !status.contains(" 200 ") {
        return Err(format!("a follower was answered {status:?}"));
    }
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.map_err(text)? == 0 {
            return Err("a follower was answered without an end of the headers".to_owned());
        }
        if line.trim().is_empty() {
            return Ok(stream);
        }
    }
}

/// Reads this many lines.
pub(super) async fn drain(mut stream: BufReader<TcpStream>, lines: u64) -> Result<(), String> {
    let mut seen = 0;
    while seen < lines {
        let read = stream.fill_buf().await.map_err(text)?;
        if read.is_empty() {
            return Err(format!("a stream ended after {seen} of {lines} lines"));
        }
        seen += read.iter().filter(|byte| **byte == b'\n').count() as u64;
        let bytes = read.len();
        stream.consume(bytes);
    }
    Ok(())
}
