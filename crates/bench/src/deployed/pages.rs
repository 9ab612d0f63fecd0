//! Measures pages of the console on a large store. The time is that of a request over loopback, slightly more than the server's own.
//!
//! The browse view is off: building it for ten million events would take longer than all other rows, on the same two cores.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use annals::{Client, DEFAULT_SCOPE, DEFAULT_TENANT};
use annals_core::browse::{Browse, ViewBody, ViewSwitch};
use annals_core::{EventLog, NewCommit, NewEvent, Store};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::{median, process, start, text};
use crate::library;
use crate::row::{self, Target, mebibytes};
use crate::server;
use crate::usage::memory_of;

/// Events in one commit, and commits in flight, while the store is filled.
const FILL: (u64, usize) = (100, 64);
const RENDER_MILLISECONDS_MAX: f64 = 50.0;
/// How often each page is rendered; the median is reported.
const TIMES: usize = 21;

pub async fn measure(place: &Path, program: &Path, stored: u64) -> Result<(), String> {
    let folder = place.join("pages");
    std::fs::create_dir_all(&folder).map_err(text)?;
    without_view(&folder, program).await?;
    fill(&folder, stored).await?;
    let began = Instant::now();
    let server = start(&folder, program).await?;
    let took = began.elapsed().as_secs_f64();
    row::figure(format!("start of the server on {stored} events until it is ready"), "s", took, Target::Unset);
    let aggregate = format!("/console/aggregates?name=order&id=o-{}", stored / FILL.0 / 2);
    let pages = [
        ("overview", "/".to_owned()),
        ("newest events of the log", "/console/log".to_owned()),
        ("oldest events of the log", "/console/log?order=oldest".to_owned()),
        ("event in the middle", format!("/console/event?number={}", stored / 2)),
        ("aggregates", "/console/aggregates".to_owned()),
        ("one aggregate", aggregate),
        ("event types", "/console/types".to_owned()),
        ("handlers", "/console/handlers".to_owned()),
    ];
    let mut stream = TcpStream::connect(server.address).await.map_err(text)?;
    stream.set_nodelay(true).map_err(text)?;
    for (name, path) in pages {
        let mut took = Vec::new();
        for _ in 0..TIMES {
            let began = Instant::now();
            let status = server::get(&mut stream, &path).await?;
            took.push(1_000.0 * began.elapsed().as_secs_f64());
            if status != 200 {
                return Err(format!("{path} was answered {status}"));
            }
        }
        let row = format!("page on {stored} events: {name}");
        row::figure(row, "ms", median(took), Target::AtMost(RENDER_MILLISECONDS_MAX));
    }
    let memory = mebibytes(memory_of(process(&server)?)?);
    row::figure(format!("memory of the server on {stored} events, after these pages"), "MiB", memory, Target::Unset);
    server.stop().await
}

/// Creates a store whose browse view is off.
async fn without_view(folder: &Path, program: &Path) -> Result<(), String> {
    let server = start(folder, program).await?;
    let client = Client::new(&format!("http://{}", server.address), DEFAULT_TENANT, DEFAULT_SCOPE).map_err(text)?;
    let off = ViewBody::switched(Some(ViewSwitch::Off), "measured without it");
    client.browse().set_view(off).await.map_err(text)?;
    server.stop().await
}

async fn fill(folder: &Path, stored: u64) -> Result<(), String> {
    let store = library::open(folder)?;
    let log: Arc<dyn EventLog> = library::log(&store)?;
    let data = library::data()?;
    let mut writers: JoinSet<Result<(), String>> = JoinSet::new();
    for first in (0..stored).step_by(FILL.0 as usize) {
        if writers.len() >= FILL.1 {
            writers.join_next().await.ok_or("no writer")?.map_err(text)??;
        }
        let numbers = first..stored.min(first + FILL.0);
        let events = numbers.map(|n| NewEvent::new("order_placed", data[n as usize % data.len()].clone()));
        let commit = NewCommit { events: events.collect(), ..NewCommit::new("order", format!("o-{}", first / FILL.0)) };
        let log = Arc::clone(&log);
        writers.spawn(async move { log.commit(commit).await.map(drop).map_err(text) });
    }
    while let Some(written) = writers.join_next().await {
        written.map_err(text)??;
    }
    store.close().await;
    Ok(())
}
