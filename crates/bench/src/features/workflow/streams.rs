//! Measures streams of events for browsers. The bridge of the execution service is in this process and its clients in another, with one
//! event for one client at a time. A client measures from the commit to the last byte of its event.

use std::io::{self, Read};
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use annals::SystemClock;
use annals_core::{DEFAULT_SCOPE, DEFAULT_TENANT, EventLog, NewCommit, NewEvent, Store};
use annals_example_execution::{NOTIFICATION_CREATED, Role, Settings};
use annals_runtime::types::TypedStore;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::super::{Places, data, text};
use crate::row::{self, Target, mebibytes};
use crate::usage::{cpu_seconds, memory, raise_open_files};

/// The first argument that makes this program run the clients. The address, the number of clients and the number of events follow.
pub const OPTION: &str = "--streams";

/// The server accepts 10,000 connections, and one stays free.
const CLIENTS: u64 = 9_999;
const PER_SECOND: u64 = 1_000;
const SECONDS: u64 = 20;
/// Commits begin in portions, so that a timer of milliseconds can keep the rate.
const PORTION: u64 = 10;
const ANSWER_MAX: Duration = Duration::from_secs(120);

pub(super) async fn measure(places: &Places<'_>) -> Result<(), String> {
    raise_open_files().map_err(text)?;
    let free = TcpListener::bind("127.0.0.1:0").await.and_then(|listener| listener.local_addr());
    let address = free.map_err(text)?;
    // The service registers its event types before it serves, and a store without a registry refuses them.
    let store = places.open("embedded", "streams").await?;
    let store: Arc<dyn Store> = Arc::new(TypedStore::new(store, Arc::new(SystemClock)));
    let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).map_err(text)?;
    let mut settings = Settings::new(store, "measured", places.folder.join("streams-work"), io::sink());
    (settings.roles, settings.listen) = ([Role::Sse].into(), Some(address));
    let (stop, stopped) = oneshot::channel::<()>();
    let mut serving = tokio::spawn(annals_example_execution::run(settings, async {
        let _ = stopped.await;
    }));
    tokio::select! {
        listening = until_listening(address) => listening?,
        ended = &mut serving => return Err(why_it_ended(ended)),
    }
    let idle = memory()?;
    let (mut clients, mut said) = start_clients(address).await?;
    next_line(&mut said).await?;
    let (cpu, began) = (cpu_seconds()?, std::time::Instant::now());
    commit_paced(&log).await?;
    let tails = next_line(&mut said).await?;
    let share = 100.0 * (cpu_seconds()? - cpu) / began.elapsed().as_secs_f64();
    let more = mebibytes(memory()?.saturating_sub(idle));
    let (p50, p99) = tails.split_once(' ').ok_or("the clients said something else than two times")?;
    let (p50, p99): (f64, f64) = (p50.parse().map_err(text)?, p99.parse().map_err(text)?);
    let name = format!("embedded: {CLIENTS} streams at {PER_SECOND} events/s");
    let delivered = format!("p50 {} ms, p99 {} ms", row::number(p50), row::number(p99));
    row::print(format!("{name}, ms from commit to client"), delivered, p99, Target::AtMost(1_000.0));
    row::figure(format!("{name}, memory of all"), "MiB", more, Target::AtMost(1_024.0));
    row::figure(format!("{name}, CPU of one core"), "%", share, Target::Unset);
    let _ = clients.kill().await;
    let _ = stop.send(());
    serving.await.map_err(text)?.map_err(text)
}

/// Returns why the service ended early.
fn why_it_ended(ended: Result<Result<(), annals_example_execution::Error>, tokio::task::JoinError>) -> String {
    match ended {
        Ok(Ok(())) => "the service stopped by itself".to_owned(),
        Ok(Err(error)) => format!("the service ended: {error}"),
        Err(error) => format!("the service ended: {error}"),
    }
}

async fn until_listening(address: SocketAddr) -> Result<(), String> {
    const TRIES: u32 = 5_000;
    for _ in 0..TRIES {
        if TcpStream::connect(address).await.is_ok() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Err(format!("nothing listens on {address}"))
}

async fn start_clients(address: SocketAddr) -> Result<(Child, tokio::io::Lines<BufReader<ChildStdout>>), String> {
    let mut command = Command::new(std::env::current_exe().map_err(text)?);
    command.args([OPTION, &address.to_string(), &CLIENTS.to_string(), &(PER_SECOND * SECONDS).to_string()]);
    let mut clients = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn().map_err(text)?;
    let said = clients.stdout.take().ok_or("the clients have no output")?;
    Ok((clients, BufReader::new(said).lines()))
}

async fn next_line(said: &mut tokio::io::Lines<BufReader<ChildStdout>>) -> Result<String, String> {
    let line = tokio::time::timeout(ANSWER_MAX, said.next_line()).await.map_err(|_| "the clients said nothing")?;
    line.map_err(text)?.ok_or_else(|| "the clients ended; what they said is above".to_owned())
}

/// Commits notifications at a steady rate, without waiting for responses.
async fn commit_paced(log: &Arc<dyn EventLog>) -> Result<(), String> {
    let mut pace = tokio::time::interval(Duration::from_millis(1_000 * PORTION / PER_SECOND));
    let mut commits: JoinSet<Result<(), String>> = JoinSet::new();
    for n in 0..PER_SECOND * SECONDS {
        if n % PORTION == 0 {
            pace.tick().await;
        }
        let log = Arc::clone(log);
        commits.spawn(async move {
            let created = serde_json::json!({
                "notification_id": n.to_string(), "user_id": user(n % CLIENTS), "subject": "measured",
                "body": now_us().to_string(), "severity": "low", "tags": [], "channels": ["in_app"],
            });
            let event = NewEvent::new(NOTIFICATION_CREATED, data(&created));
            log.commit(NewCommit::new("notification", n.to_string()).event(event)).await.map(drop).map_err(text)
        });
    }
    while let Some(commit) = commits.join_next().await {
        commit.map_err(text)??;
    }
    Ok(())
}

fn user(n: u64) -> String {
    format!("u-{n}")
}

/// Returns microseconds since 1970, by the clock that both processes share.
fn now_us() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros())
}

/// Runs the clients: reports when all are connected, and then p50 and p99 in milliseconds.
pub async fn obey(words: &[&str]) -> Result<(), String> {
    raise_open_files().map_err(text)?;
    let [address, clients, events] = words else { return Err(format!("{OPTION} is for this program alone")) };
    let address: SocketAddr = address.parse().map_err(text)?;
    let number = |word: &str| word.parse::<u64>().map_err(text);
    let (clients, events) = (number(clients)?, number(events)?);
    let (took, mut arrivals) = mpsc::unbounded_channel();
    let mut connecting: JoinSet<Result<TcpStream, String>> = JoinSet::new();
    let mut connected = Vec::new();
    for n in 0..clients {
        if connecting.len() >= 64 {
            connected.push(connecting.join_next().await.ok_or("no connection")?.map_err(text)??);
        }
        connecting.spawn(connect(address, n));
    }
    while let Some(stream) = connecting.join_next().await {
        connected.push(stream.map_err(text)??);
    }
    for stream in connected {
        tokio::spawn(listen(stream, took.clone()));
    }
    drop(took);
    println!("connected");
    let mut times = Vec::new();
    while (times.len() as u64) < events {
        times.push(arrivals.recv().await.ok_or("every stream has ended")?);
    }
    times.sort_unstable();
    let at = |percent: usize| times.get(times.len() * percent / 100).copied().unwrap_or(0) as f64 / 1_000.0;
    println!("{:.1} {:.1}", at(50), at(99));
    // The parent measures its memory while they are connected, and then ends this process.
    tokio::task::spawn_blocking(|| io::stdin().read(&mut [0])).await.map_err(text)?.map(drop).map_err(text)
}

/// Opens a stream and reads its headers.
async fn connect(address: SocketAddr, n: u64) -> Result<TcpStream, String> {
    let mut stream = TcpStream::connect(address).await.map_err(text)?;
    let request = format!("GET /notifications/stream HTTP/1.1\r\nHost: {address}\r\nX-User: {}\r\n\r\n", user(n));
    stream.write_all(request.as_bytes()).await.map_err(text)?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.map_err(text)?);
    }
    if head.starts_with(b"HTTP/1.1 200") { Ok(stream) } else { Err(String::from_utf8_lossy(&head).into_owned()) }
}

/// Reports the microseconds that each event took.
async fn listen(stream: TcpStream, took: mpsc::UnboundedSender<u128>) {
    const BODY: &str = r#""body":""#;
    let mut lines = BufReader::with_capacity(1_024, stream).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let sent = line.split_once(BODY).and_then(|(_, rest)| rest.split_once('"')?.0.parse::<u128>().ok());
        if let Some(sent) = sent {
            let _ = took.send(now_us().saturating_sub(sent));
        }
    }
}
