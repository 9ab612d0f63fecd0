//! Measures small commits over HTTP beside clients that send transactions with the widest append conditions that the limits allow, one
//! after the other.
//!
//! The rows beside one such client have a target: others do not wait for the worst request. Those beside several show what is left of the
//! cores, which this process shares with the server.
//!
//! A round lasts as long for every load, however long a wide transaction takes: one that is not answered in the round is given up with its
//! connection, so it counts for the small commits beside it and not as one of the transactions per second. Those refused as overloaded are
//! counted apart: if most are, the small commits were hardly beside anything.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use annals_core::{Store, wire};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::{median, start, text};
use crate::cell::{Commits, percentile_us};
use crate::conditions::{self, Beside};
use crate::library;
use crate::row::{self, Target};
use crate::server::{self, Connection};
use crate::workload::{Row, Writer, payloads};

/// What is sent beside the small commits, and by how many clients.
const LOADS: [(Beside, u64); 9] = [
    (Beside::Nobody, 0),
    (Beside::WholeLog, 1),
    (Beside::SinceTheLast, 1),
    (Beside::ManyTerms, 1),
    (Beside::LongTerms, 1),
    (Beside::WholeLog, 8),
    (Beside::SinceTheLast, 8),
    (Beside::ManyTerms, 8),
    (Beside::LongTerms, 8),
];
/// The clients with small commits, whose latency is measured.
const OTHERS: Row = Row { writers: 8, events: 1 };
/// Between two commits of a client, as in clients that also do other work.
const PAUSE: Duration = Duration::from_millis(1);
const SECONDS: Duration = Duration::from_secs(3);
const ROUNDS: usize = 3;
/// After a round with wide transactions, for what the server still does for those given up: the next round would measure it as its own.
const UNTIL_GIVEN_UP: Duration = Duration::from_secs(1);
const P99_MILLISECONDS_MAX: f64 = 50.0;

/// Milliseconds of the small commits of a round, and per second beside them the transactions stored and those refused as overloaded.
struct Round {
    p50: f64,
    p99: f64,
    slowest: f64,
    stored: f64,
    overloaded: f64,
}

/// How many transactions were answered.
#[derive(Default)]
struct Answered {
    stored: AtomicU64,
    overloaded: AtomicU64,
}

pub async fn measure(place: &Path, program: &Path) -> Result<(), String> {
    let folder = place.join("wide");
    std::fs::create_dir_all(&folder).map_err(text)?;
    let store = library::open(&folder)?;
    conditions::fill(&library::log(&store)?).await?;
    store.close().await;
    let server = start(&folder, program).await?;
    let mut rounds = LOADS.map(|_| Vec::new());
    let mut writers = 0;
    for _ in 0..ROUNDS {
        for (load, rounds) in LOADS.into_iter().zip(&mut rounds) {
            // Writers that the store has not seen, because their aggregates must be at version 0.
            rounds.push(round(server.address, load, writers).await?);
            writers += OTHERS.writers;
            if load.1 > 0 {
                tokio::time::sleep(UNTIL_GIVEN_UP).await;
            }
        }
    }
    for ((beside, clients), rounds) in LOADS.into_iter().zip(&rounds) {
        let middle = |figure: fn(&Round) -> f64| median(rounds.iter().map(figure).collect());
        let p99 = middle(|round| round.p99);
        let number = |figure: fn(&Round) -> f64| row::number(middle(figure));
        let (p50, slowest) = (number(|round| round.p50), number(|round| round.slowest));
        let mut measured = format!("p50 {p50} ms, p99 {} ms, slowest {slowest} ms", row::number(p99));
        if clients > 0 {
            let (stored, overloaded) = (number(|round| round.stored), number(|round| round.overloaded));
            measured += &format!(", beside {stored} transactions/s and {overloaded} refused as overloaded");
        }
        let target = if clients == 1 { Target::AtMost(P99_MILLISECONDS_MAX) } else { Target::Unset };
        let of = OTHERS.writers;
        row::print(
            format!("small commits of {of} clients over HTTP {}", named(beside, clients)),
            measured,
            p99,
            target,
        );
    }
    server.stop().await
}

fn named(beside: Beside, clients: u64) -> String {
    let conditions = match beside {
        Beside::Nobody => return "alone".to_owned(),
        Beside::WholeLog => "on the whole log",
        Beside::SinceTheLast => "on what follows the last commit",
        Beside::ManyTerms => "on the whole log with all types and tags that a pattern may have",
        Beside::LongTerms => "of the largest request, 23 MB",
    };
    format!("beside {clients} with 16 x 64 conditions {conditions}")
}

async fn round(address: SocketAddr, (beside, clients): (Beside, u64), first: usize) -> Result<Round, String> {
    let (ended, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(Answered::default()));
    let mut greedy = JoinSet::new();
    for client in 0..clients {
        greedy.spawn(send(address, beside, client, Arc::clone(&answered)));
    }
    let payloads = Arc::new(payloads());
    let mut others = JoinSet::new();
    for number in first..first + OTHERS.writers {
        let writer = Writer::new(number, &OTHERS);
        let connection = Connection::open(address, &payloads, writer, OTHERS.events).await?;
        others.spawn(commit(connection, Arc::clone(&ended)));
    }
    tokio::time::sleep(SECONDS).await;
    ended.store(true, Ordering::Relaxed);
    let per_second = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64 / SECONDS.as_secs_f64();
    let (stored, overloaded) = (per_second(&answered.stored), per_second(&answered.overloaded));
    let mut took = Vec::new();
    while let Some(done) = others.join_next().await {
        took.extend(done.map_err(text)??);
    }
    greedy.abort_all();
    while let Some(done) = greedy.join_next().await {
        match done {
            Ok(Err(failed)) => return Err(failed),
            Err(given_up) if given_up.is_cancelled() => {}
            Err(panicked) => return Err(text(panicked)),
        }
    }
    took.sort_unstable();
    let milliseconds = |share: f64| percentile_us(&took, share) / 1_000.0;
    Ok(Round { p50: milliseconds(0.5), p99: milliseconds(0.99), slowest: milliseconds(1.0), stored, overloaded })
}

/// Commits once and again. Returns the nanoseconds that each commit took.
async fn commit(mut connection: Connection, ended: Arc<AtomicBool>) -> Result<Vec<u64>, String> {
    let mut took = Vec::new();
    while !ended.load(Ordering::Relaxed) {
        let begun = Instant::now();
        connection.commit().await?;
        took.push(begun.elapsed().as_nanos() as u64);
        tokio::time::sleep(PAUSE).await;
    }
    Ok(took)
}

/// Sends one transaction after the other until it is aborted. Where the condition stays the same, so does the request: writing it takes no
/// time of the cores.
async fn send(address: SocketAddr, beside: Beside, client: u64, answered: Arc<Answered>) -> Result<Infallible, String> {
    let mut stream = TcpStream::connect(address).await.map_err(text)?;
    stream.set_nodelay(true).map_err(text)?;
    let mut buffer = Vec::new();
    let mut request = written(beside, client, 0)?;
    loop {
        stream.write_all(&request).await.map_err(text)?;
        let (status, body) = server::answer(&mut stream, &mut buffer).await?;
        let count = match status {
            201 => &answered.stored,
            429 => &answered.overloaded,
            _ => return Err(format!("wide conditions were answered {status}: {}", String::from_utf8_lossy(body))),
        };
        count.fetch_add(1, Ordering::Relaxed);
        if beside == Beside::SinceTheLast
            && let Some(last) = last_number(body)
        {
            request = written(beside, client, last + 1)?;
        }
    }
}

fn written(beside: Beside, client: u64, head: u64) -> Result<Vec<u8>, String> {
    let body = wire::TransactionBody::from(conditions::transaction(beside, client, head));
    let body = serde_json::to_vec(&body).map_err(text)?;
    let start = format!(
        "POST /v1/transactions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    Ok([start.into_bytes(), body].concat())
}

/// Returns the sequence number of the last event that an answer names.
fn last_number(answer: &[u8]) -> Option<u64> {
    let (_, last) = std::str::from_utf8(answer).ok()?.rsplit_once(r#""sequence_number":"#)?;
    last.split(|character: char| !character.is_ascii_digit()).next()?.parse().ok()
}
