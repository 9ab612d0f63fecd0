//! Measures UmaDB's server in a process of its own, over loopback gRPC, through its own asynchronous client, with a connection per
//! writer.

use std::path::Path;
use std::sync::Arc;

use tokio::process::Command;
use umadb_client::{AsyncUmaDbClient, UmaDbClient};
use umadb_dcb::DcbEventStoreAsync;

use crate::cell::{Cell, Commits, Measured, run};
use crate::served::Served;
use crate::umadb::request;
use crate::workload::{Row, Writer, payloads};

struct Connection {
    client: AsyncUmaDbClient,
    payloads: Arc<Vec<String>>,
    writer: Writer,
    events: usize,
}

impl Commits for Connection {
    async fn commit(&mut self) -> Result<(), String> {
        let turn = self.writer.turn();
        let (events, condition) = request(&turn, &self.payloads, self.events);
        let last = self.client.append(events, Some(condition), None).await.map_err(|error| error.to_string())?;
        self.writer.appended(&turn, last, self.events)
    }
}

/// Starts the server on the store in `folder`.
pub async fn start(folder: &Path, programs: &Path) -> Result<Served, String> {
    let command = |address: std::net::SocketAddr| {
        let mut command = Command::new(programs.join("umadb"));
        command.args(["--listen", &address.to_string(), "--db-path"]).arg(folder.join("uma.db"));
        command
    };
    Served::start(folder, command).await
}

/// Connects to the server.
pub async fn connect(server: &Served) -> Result<AsyncUmaDbClient, String> {
    let client = UmaDbClient::new(format!("http://{}", server.address)).connect_async().await;
    client.map_err(|error| error.to_string())
}

/// Measures a new store in `folder`.
pub async fn measure(row: &Row, cell: &Cell, folder: &Path, programs: &Path) -> Result<Measured, String> {
    let server = start(folder, programs).await?;
    let payloads = Arc::new(payloads());
    let mut connections = Vec::new();
    for number in 0..row.writers {
        connections.push(Connection {
            client: connect(&server).await?,
            payloads: Arc::clone(&payloads),
            writer: Writer::new(number, row),
            events: row.events,
        });
    }
    run(cell, connections).await
}
