//! Measures Tephra's server in a process of its own, over loopback, through its own clients: the blocking one with a socket and a thread
//! for each writer, and the asynchronous one whose socket all writers share.

use std::path::Path;
use std::sync::Arc;

use tephra::EventType;
use tephra_client::{AsyncClient, Client, Event};
use tokio::process::Command;

use crate::cell::{Cell, Commits, Measured, run, run_threads};
use crate::served::Served;
use crate::tephra::{condition, event_type, tags};
use crate::workload::{Row, Turn, Writer, payloads};

/// The commits of a writer, for either client.
struct Sender {
    event_type: EventType,
    payloads: Arc<Vec<String>>,
    writer: Writer,
    events: usize,
}

impl Sender {
    fn new(number: usize, row: &Row, payloads: &Arc<Vec<String>>) -> Result<Self, String> {
        let writer = Writer::new(number, row);
        Ok(Self { event_type: event_type()?, payloads: Arc::clone(payloads), writer, events: row.events })
    }

    fn next(&mut self) -> Result<(Turn, Vec<Event>, tephra::AppendCondition), String> {
        let turn = self.writer.turn();
        let condition = condition(&self.event_type, &tags([turn.aggregate_id.as_str()])?, &turn);
        let payload = |offset: usize| self.payloads[(turn.payload + offset) % self.payloads.len()].as_bytes();
        let event =
            |offset| Event::new(self.event_type.as_str(), [turn.aggregate_id.as_str()], payload(offset).to_vec());
        let events: Result<_, _> = (0..self.events).map(event).collect();
        Ok((turn, events.map_err(|error| error.to_string())?, condition))
    }
}

struct Socket {
    client: Client,
    sender: Sender,
}

impl Commits for Socket {
    async fn commit(&mut self) -> Result<(), String> {
        let (turn, events, condition) = self.sender.next()?;
        let result = self.client.append(events, Some(condition)).map_err(|error| error.to_string())?;
        self.sender.writer.appended(&turn, result.last.get(), self.sender.events)
    }
}

struct Shared {
    client: AsyncClient,
    sender: Sender,
}

impl Commits for Shared {
    async fn commit(&mut self) -> Result<(), String> {
        let (turn, events, condition) = self.sender.next()?;
        let result = self.client.append(events, Some(condition)).await.map_err(|error| error.to_string())?;
        self.sender.writer.appended(&turn, result.last.get(), self.sender.events)
    }
}

/// Starts the server on the store in `folder`.
pub async fn start(folder: &Path, programs: &Path) -> Result<Served, String> {
    let command = |address: std::net::SocketAddr| {
        let mut command = Command::new(programs.join("tephra-server"));
        command.args(["--bind", &address.to_string(), "--log", "warn", "--data-dir"]).arg(folder.join("tephra"));
        command
    };
    Served::start(folder, command).await
}

/// Measures a new store in `folder`, with a socket per writer.
pub async fn measure(row: &Row, cell: &Cell, folder: &Path, programs: &Path) -> Result<Measured, String> {
    let server = start(folder, programs).await?;
    let payloads = Arc::new(payloads());
    let mut sockets = Vec::new();
    for number in 0..row.writers {
        let client = Client::connect(server.address).map_err(|error| error.to_string())?;
        sockets.push(Socket { client, sender: Sender::new(number, row, &payloads)? });
    }
    run_threads(cell, sockets).await
}

/// Measures a new store in `folder`, with one client for all writers.
pub async fn measure_shared(row: &Row, cell: &Cell, folder: &Path, programs: &Path) -> Result<Measured, String> {
    let server = start(folder, programs).await?;
    let payloads = Arc::new(payloads());
    let client = AsyncClient::connect(server.address).await.map_err(|error| error.to_string())?;
    let mut writers = Vec::new();
    for number in 0..row.writers {
        writers.push(Shared { client: client.clone(), sender: Sender::new(number, row, &payloads)? });
    }
    run(cell, writers).await
}
