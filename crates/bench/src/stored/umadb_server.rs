//! UmaDB's server through its asynchronous client.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc::UnboundedSender;
use umadb_client::AsyncUmaDbClient;
use umadb_dcb::{DcbEventStoreAsync, DcbQuery};

use super::umadb::events;
use super::{Reads, Remote};
use crate::corpus::Commit;
use crate::served::Served;
use crate::umadb::query;
use crate::umadb_server::{connect, start};

/// The server and a connection to it.
#[derive(Clone)]
pub struct UmadbServer {
    server: Arc<Served>,
    client: Arc<AsyncUmaDbClient>,
}

impl UmadbServer {
    async fn count(&self, query: Option<DcbQuery>) -> Result<usize, String> {
        let mut response = self.client.read(query, None, false, None).await.map_err(|error| error.to_string())?;
        let mut events = 0;
        loop {
            let batch = response.next_batch().await.map_err(|error| error.to_string())?;
            if batch.is_empty() {
                return Ok(events);
            }
            events += batch.len();
        }
    }
}

impl Reads for UmadbServer {
    async fn append(&self, commit: Commit) -> Result<(), String> {
        self.client.append(events(&commit), None, None).await.map(drop).map_err(|error| error.to_string())
    }

    async fn read_all(&self) -> Result<usize, String> {
        self.count(None).await
    }

    async fn read_aggregate(&self, id: &str) -> Result<usize, String> {
        self.count(Some(query(id))).await
    }

    async fn read_tagged(&self, tag: &str) -> Result<usize, String> {
        self.count(Some(query(tag))).await
    }

    async fn follow(&self, events: usize, seen: UnboundedSender<Instant>) -> Result<(), String> {
        let head = self.client.head().await.map_err(|error| error.to_string())?;
        let client = connect(&self.server).await?;
        let mut subscription = client.subscribe(None, head).await.map_err(|error| error.to_string())?;
        let nobody = |_| "nobody waits for the follower".to_owned();
        seen.send(Instant::now()).map_err(nobody)?;
        let mut left = events;
        while left > 0 {
            let batch = subscription.next_batch().await.map_err(|error| error.to_string())?;
            left = left.saturating_sub(batch.len());
            for _ in batch {
                seen.send(Instant::now()).map_err(nobody)?;
            }
        }
        Ok(())
    }
}

impl Remote for UmadbServer {
    async fn start(folder: &Path, programs: &Path) -> Result<Self, String> {
        let server = start(folder, programs).await?;
        let client = connect(&server).await?;
        client.head().await.map_err(|error| error.to_string())?;
        Ok(Self { server: Arc::new(server), client: Arc::new(client) })
    }

    fn server(&self) -> Option<&Served> {
        Some(&self.server)
    }
}
