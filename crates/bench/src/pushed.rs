//! Measures how soon a follower of a server has an event, beside how soon its committer has the acknowledgement. The follower uses
//! server-sent events directly, or the Rust client.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use annals::{Client, DEFAULT_SCOPE, DEFAULT_TENANT, EventLog, Filter, Follower};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::cell::{Commits, percentile_us};
use crate::library;
use crate::server::{Connection, beside, serve};
use crate::workload::{Row, Writer, payloads};

/// Commits that are followed, one after the other.
const FOLLOWED: usize = 3_000;
const ROW: Row = Row { writers: 1, events: 1 };

/// Microseconds from the start of a commit until it is acknowledged, and until a follower has its event.
pub struct Pushed {
    pub acknowledged_p50: f64,
    pub acknowledged_p99: f64,
    pub followed_p50: f64,
    pub followed_p99: f64,
}

/// Measures over server-sent events, and through the client.
pub async fn measure(folder: &Path, program: &Path) -> Result<[Pushed; 2], String> {
    let folders = ["sse", "client"].map(|name| folder.join(name));
    for folder in &folders {
        std::fs::create_dir_all(folder).map_err(|error| error.to_string())?;
    }
    let [first, second] = &folders;
    Ok([
        beside(first, |address| serve(program, first, address), by_hand).await?,
        beside(second, |address| serve(program, second, address), by_client).await?,
    ])
}

async fn by_hand(address: SocketAddr) -> Result<Pushed, String> {
    let mut stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
    let request = b"GET /v1/log/follow?from=0 HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n";
    stream.write_all(request).await.map_err(|error| error.to_string())?;
    let (seen, arrivals) = unbounded_channel();
    let reading = tokio::spawn(read_events(stream, seen));
    let writer = Connection::open(address, &Arc::new(payloads()), Writer::new(0, &ROW), 1).await?;
    let pushed = follow(writer, arrivals).await;
    reading.abort();
    pushed
}

/// Reports when each event arrives.
async fn read_events(mut stream: TcpStream, seen: UnboundedSender<Instant>) -> Result<(), String> {
    const MARK: &[u8] = b"\nid: ";
    let mut received = Vec::new();
    loop {
        if stream.read_buf(&mut received).await.map_err(|error| error.to_string())? == 0 {
            return Err("the stream of events ended".to_owned());
        }
        let now = Instant::now();
        while let Some(place) = received.windows(MARK.len()).position(|part| part == MARK) {
            received.drain(..place + MARK.len());
            seen.send(now).map_err(|_| "nobody waits for the events".to_owned())?;
        }
    }
}

async fn by_client(address: SocketAddr) -> Result<Pushed, String> {
    let client = Client::new(&format!("http://{address}"), DEFAULT_TENANT, DEFAULT_SCOPE);
    let log: Arc<dyn EventLog> = Arc::new(client.map_err(|error| error.to_string())?);
    let (seen, arrivals) = unbounded_channel();
    let mut follower = Follower::new(Arc::clone(&log), 0, Filter::default());
    let reading = tokio::spawn(async move {
        while let Ok(events) = follower.next_page().await {
            let now = Instant::now();
            if events.iter().any(|_| seen.send(now).is_err()) {
                break;
            }
        }
    });
    let writer = library::writers(&log, &ROW)?.into_iter().next().ok_or("a row without writers")?;
    let pushed = follow(writer, arrivals).await;
    reading.abort();
    pushed
}

async fn follow(mut writer: impl Commits, mut arrivals: UnboundedReceiver<Instant>) -> Result<Pushed, String> {
    let (mut acknowledged, mut followed) = (Vec::new(), Vec::new());
    for _ in 0..FOLLOWED {
        let started = Instant::now();
        writer.commit().await?;
        acknowledged.push(started.elapsed().as_nanos() as u64);
        let arrived = arrivals.recv().await.ok_or("the follower ended")?;
        followed.push(arrived.duration_since(started).as_nanos() as u64);
    }
    acknowledged.sort_unstable();
    followed.sort_unstable();
    Ok(Pushed {
        acknowledged_p50: percentile_us(&acknowledged, 0.5),
        acknowledged_p99: percentile_us(&acknowledged, 0.99),
        followed_p50: percentile_us(&followed, 0.5),
        followed_p99: percentile_us(&followed, 0.99),
    })
}
