//! Measures an export over HTTP beside reading the log over HTTP, and its memory in a server in a process of its own.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Instant;

use annals::{Client, DEFAULT_SCOPE, DEFAULT_TENANT, EventLog, LogQuery, NewCommit, NewEvent, limits};
use annals_core::browse::{Browse, ViewSwitch};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::super::{Arguments, Places, text};
use crate::row::{self, Target, mebibytes};
use crate::served::Served;
use crate::server;
use crate::usage::{Peak, memory_of};

/// Events in one commit while the log is filled.
const FILL: u64 = 100;

pub async fn measure(program: &Path, places: &Places<'_>, arguments: &Arguments) -> Result<(), String> {
    let folder = places.folder.canonicalize().map_err(text)?.join("served");
    std::fs::create_dir_all(&folder).map_err(text)?;
    let server = Served::start(&folder, |address| server::serve(program, &folder, address)).await?;
    let process = server.process_id().ok_or("the server has ended")?;
    let client = Client::new(&format!("http://{}", server.address), DEFAULT_TENANT, DEFAULT_SCOPE).map_err(text)?;
    for first in (0..arguments.events).step_by(FILL as usize) {
        let events =
            (first..arguments.events.min(first + FILL)).map(|n| NewEvent::new("order_placed", super::event(n)));
        let commit = NewCommit { events: events.collect(), ..NewCommit::new("order", format!("x-{first}")) };
        client.commit(commit).await.map_err(text)?;
    }
    let browse = client.browse();
    // Reading the view's state does not build the view, unlike requesting its events.
    super::switch(&browse, ViewSwitch::On).await?;
    super::behind(&browse as &dyn Browse).await?;
    let (mut exported, mut read, mut more) = (Vec::new(), Vec::new(), 0);
    for _ in 0..arguments.rounds {
        let idle = memory_of(process)?;
        let (began, peak) = (Instant::now(), Peak::watch(process));
        let lines = export(server.address).await?;
        exported.push(arguments.events as f64 / began.elapsed().as_secs_f64());
        more = more.max(peak.end().await?.saturating_sub(idle));
        if lines != arguments.events {
            return Err(format!("{lines} lines of {} events were exported", arguments.events));
        }
        let (began, mut next) = (Instant::now(), 0);
        while next < arguments.events {
            let query = LogQuery { from: Some(next), limit: limits::PAGE_MAX, ..LogQuery::default() };
            next = client.read(query).await.map_err(text)?.next;
        }
        read.push(arguments.events as f64 / began.elapsed().as_secs_f64());
    }
    let (exported, read) = (super::median(exported), super::median(read));
    let name = format!("http: export of {} rows as JSON lines ÷ reading the log", arguments.events);
    row::ratio(name, "events/s", exported, read, Target::AtLeast(0.3));
    row::figure("http: more memory at the server during this export", "MiB", mebibytes(more), Target::AtMost(64.0));
    Ok(())
}

/// Exports everything as JSON lines. Returns how many lines arrived.
async fn export(address: SocketAddr) -> Result<u64, String> {
    let mut stream = TcpStream::connect(address).await.map_err(text)?;
    // HTTP/1.0 gets a response without chunks that ends with the connection.
    let request = format!("GET /v1/events/export?format=jsonl HTTP/1.0\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.map_err(text)?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.map_err(text)?);
    }
    if !head.starts_with(b"HTTP/1.0 200") {
        return Err(String::from_utf8_lossy(&head).into_owned());
    }
    let (mut buffer, mut lines) = (vec![0; 64 * 1024], 0);
    loop {
        let count = stream.read(&mut buffer).await.map_err(text)?;
        if count == 0 {
            return Ok(lines);
        }
        lines += buffer[..count].iter().filter(|byte| **byte == b'\n').count() as u64;
    }
}
