//! UmaDB's server in a process of its own, over loopback gRPC, through its own asynchronous client: a connection per writer.

use std::path::Path;
use std::sync::Arc;

use umadb_client::{AsyncUmaDbClient, UmaDbClient};
use umadb_dcb::DcbEventStoreAsync;

use crate::cell::{Cell, Commits, Measured, run};
use crate::rival_server::RivalServer;
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

/// Measures a new store in `folder`.
pub async fn measure(row: &Row, cell: &Cell, folder: &Path, programs: &Path) -> Result<Measured, String> {
    let words = |address: std::net::SocketAddr| {
        let file = folder.join("uma.db").display().to_string();
        ["--listen", &address.to_string(), "--db-path", &file].map(str::to_owned).into()
    };
    let server = RivalServer::start(programs, "umadb", folder, words).await?;
    let payloads = Arc::new(payloads());
    let mut connections = Vec::new();
    for number in 0..row.writers {
        let client = UmaDbClient::new(format!("http://{}", server.address)).connect_async().await;
        connections.push(Connection {
            client: client.map_err(|error| error.to_string())?,
            payloads: Arc::clone(&payloads),
            writer: Writer::new(number, row),
            events: row.events,
        });
    }
    run(cell, connections).await
}
