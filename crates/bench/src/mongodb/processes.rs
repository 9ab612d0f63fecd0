//! Measures records of one tenant that one process or two processes put, each with several callers: processes of this program, on one
//! database.

use std::process::Stdio;

use annals_core::{Collection, DEFAULT_TENANT, RecordChange, Store};
use annals_mongodb::{MongoStore, Options};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use super::figures::Figures;
use super::records::{Documents, Ours};
use super::{Arguments, OPTION, Place, text};
use crate::cell::{self, Cell};
use crate::workload::Row;

/// The option of a process that writes. The URL with its database, its number, its callers and its seconds follow.
pub const WRITES: &str = "--write-records";
const PROCESSES: [usize; 2] = [1, 2];
/// Callers of each process.
pub const CALLERS: [usize; 3] = [1, 8, 64];

/// Returns the name of a figure.
pub fn figure(processes: usize, callers: usize) -> String {
    let processes = if processes == 1 { "1 process".to_owned() } else { format!("{processes} processes") };
    format!("record put/s by {processes} of {callers} callers")
}

/// A process that waits for the order to begin.
struct Writer {
    child: Child,
    says: Lines<BufReader<ChildStdout>>,
}

impl Writer {
    async fn start(url: &str, number: usize, callers: usize, seconds: f64) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(text)?;
        let mut command = Command::new(program);
        command.args([OPTION, WRITES, url, &number.to_string(), &callers.to_string(), &seconds.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().map_err(text)?;
        let says = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
        let mut writer = Self { child, says };
        writer.line().await?;
        Ok(writer)
    }

    async fn line(&mut self) -> Result<String, String> {
        let line = self.says.next_line().await.map_err(text)?;
        line.ok_or_else(|| "a process that writes has ended early".to_owned())
    }

    async fn begin(&mut self) -> Result<(), String> {
        let mut input = self.child.stdin.take().ok_or("no input")?;
        input.write_all(b"go\n").await.map_err(text)
    }
}

/// Runs such a process: reports that it is ready, waits for a line, writes, and reports the writes per second.
pub async fn obey(words: &[&str]) -> Result<(), String> {
    let [url, number, callers, seconds] = words else { return Err(format!("{WRITES} takes four words")) };
    let number: usize = number.parse().map_err(text)?;
    let callers: usize = callers.parse().map_err(text)?;
    let cell = Cell::new(seconds.parse().map_err(text)?);
    let store = MongoStore::open(url, Options::default()).await.map_err(|error| error.to_string())?;
    let records = store.records(DEFAULT_TENANT).map_err(text)?;
    let mut documents = (0..=callers).map(|caller| Documents::new(number * 1_000 + caller)).collect::<Vec<_>>();
    // Open connections and start the process's writer before the measurement.
    let first = documents.pop().map(|mut documents| RecordChange::put("orders", documents.next()));
    records.write(first.into_iter().collect()).await.map_err(text)?;
    println!("ready");
    let told = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
    told.await.map_err(text)?.map_err(text)?;
    let ours = documents.into_iter().map(|documents| Ours::new(records.clone(), documents)).collect();
    let measured = cell::run(&cell, ours).await?;
    println!("{}", measured.events_per_second(&Row { writers: callers, events: 1 }, &cell));
    store.close().await;
    Ok(())
}

pub async fn measure(place: &Place, round: usize, arguments: &Arguments, figures: &mut Figures) -> Result<(), String> {
    const DATABASE: &str = "annals_bench_processes";
    for callers in CALLERS {
        for turn in 0..PROCESSES.len() {
            let processes = PROCESSES[(round + turn) % PROCESSES.len()];
            let opened = place.store(DATABASE).await?;
            let records = opened.store.records(DEFAULT_TENANT).map_err(text)?;
            records.declare(Collection::new("orders")).await.map_err(text)?;
            // Closed, because it would be a third process that maintains the log and polls for what expires.
            opened.store.close().await;
            let mut writers = Vec::new();
            for number in 0..processes {
                let url = place.url_of(DATABASE);
                writers.push(Writer::start(&url, number, callers, arguments.seconds).await?);
            }
            for writer in &mut writers {
                writer.begin().await?;
            }
            let mut sum = 0.0;
            for writer in &mut writers {
                sum += writer.line().await?.parse::<f64>().map_err(text)?;
            }
            for writer in &mut writers {
                writer.child.wait().await.map_err(text)?;
            }
            figures.add(&figure(processes, callers), sum);
            place.close(opened).await?;
        }
    }
    Ok(())
}
