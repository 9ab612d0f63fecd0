//! Measures how long a commit on a new connection takes while more clients than the server accepts connect and say nothing, or begin a
//! request that they never finish.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::crowd::{next_line, start_clients, until_ended};
use super::{start, text};
use crate::cell::Commits;
use crate::row::{self, Target};
use crate::server::Connection;
use crate::usage::raise_open_files;
use crate::workload::{Row, Writer, payloads};

/// The first argument that makes this program run the clients. The address and their number follow.
pub const OPTION: &str = "--silent";

/// More than the 10,000 connections that the server accepts, so that those of the others have to wait for a place.
const SILENT: usize = 10_500;
const ROW: Row = Row { writers: 1, events: 1 };
const SECONDS: Duration = Duration::from_secs(10);
/// Between two commits. Each has a connection of its own, and the system has few ports for them beside those of the others.
const PAUSE: Duration = Duration::from_millis(20);
const MILLISECONDS_MAX: f64 = 2_000.0;

pub async fn measure(place: &Path, program: &Path) -> Result<(), String> {
    let folder = place.join("silent");
    std::fs::create_dir_all(&folder).map_err(text)?;
    let server = start(&folder, program).await?;
    let (mut clients, mut said) = start_clients(&[OPTION, &server.address.to_string(), &SILENT.to_string()])?;
    let payloads = Arc::new(payloads());
    let (began, mut longest, mut commits) = (Instant::now(), 0.0_f64, 0);
    // From the first of the silent clients on, as the worst moment is when all have just come.
    while began.elapsed() < SECONDS {
        let begun = Instant::now();
        let writer = Writer::new(commits, &ROW);
        Connection::open(server.address, &payloads, writer, ROW.events).await?.commit().await?;
        longest = longest.max(1_000.0 * begun.elapsed().as_secs_f64());
        commits += 1;
        tokio::time::sleep(PAUSE).await;
    }
    next_line(&mut said).await?;
    let _ = clients.kill().await;
    let name =
        format!("longest of {commits} commits on new connections beside {SILENT} that say nothing or never finish");
    row::figure(name, "ms", longest, Target::AtMost(MILLISECONDS_MAX));
    server.stop().await
}

/// Runs the clients: reports when all have connected.
pub async fn obey(words: &[&str]) -> Result<(), String> {
    raise_open_files().map_err(text)?;
    let [address, clients] = words else { return Err(format!("{OPTION} is for this program alone")) };
    let address: SocketAddr = address.parse().map_err(text)?;
    let unfinished = b"POST /v1/commits HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 100\r\n\r\n{";
    let mut connected = Vec::new();
    for n in 0..clients.parse::<usize>().map_err(text)? {
        let mut stream = TcpStream::connect(address).await.map_err(text)?;
        if n % 2 == 0 {
            // It may have lost its place already.
            let _ = stream.write_all(unfinished).await;
        }
        connected.push(stream);
    }
    println!("connected");
    until_ended().await
}
