//! The client of a server keeps the contract of the log: it passes the suite that every store passes, over real connections.

mod filters;
mod key_fetcher;
mod keys_until;
mod moving;
mod moving_keys;
mod moving_maps;
mod partner_certificates;
mod partner_faults;
mod partner_retries;
mod partner_rotation;
mod partners;
mod producers;
mod records_until;
mod sharing;
mod snapshots_until;
mod streams_until;
mod until;
mod waiting;
mod webhooks;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::keys_until::KeysUntil;
use crate::records_until::RecordsUntil;
use crate::snapshots_until::{Ahead, SnapshotsUntil};
use crate::streams_until::StreamsUntil;
use crate::until::Until;
use annals::server::{Options, serve};
use annals::{
    Client, DEFAULT_SCOPE, DEFAULT_TENANT, EventLog, Identity, LogStatus, PrepareKeys, Queries, QueryGuard, Records,
    Snapshots, Store, Streams, UnknownLog,
};
use annals_conformance::{ManualClock, OTHER_TENANT, Subject};
use annals_embedded::EmbeddedStore;
use annals_embedded::disk::MemoryDisk;
use async_trait::async_trait;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

mod remote {
    annals_conformance::event_log!(crate::Remote::default());
}

mod remote_streams {
    annals_conformance::streams!(crate::Remote::default());
}

mod remote_records {
    annals_conformance::records!(crate::Remote::default());
}

mod remote_queries {
    annals_conformance::queries!(crate::Remote { ahead_past_server: true, ..crate::Remote::default() });
}

mod remote_snapshots {
    annals_conformance::snapshots!(crate::Remote::default());
}

mod remote_aggregates {
    annals_conformance::aggregates!(crate::Remote { ahead_past_server: true, ..crate::Remote::default() });
}

mod remote_keys {
    annals_conformance::prepare!(crate::Remote::default());
}

/// Opens its store behind a server, and shows it through clients.
#[derive(Default)]
struct Remote {
    disk: Arc<MemoryDisk>,
    clock: Arc<ManualClock>,
    /// Whether snapshots ahead of the log are saved past the server, instead of after commits.
    ahead_past_server: bool,
}

#[async_trait]
impl Subject for Remote {
    async fn open(&self) -> Arc<dyn Store> {
        let tenants = [DEFAULT_TENANT, OTHER_TENANT].map(str::to_owned).to_vec();
        let clock = self.clock.clone();
        // Looks for expired records so often that no test waits long.
        let expiry_every = Duration::from_millis(10);
        let options = annals_embedded::Options { tenants, clock, expiry_every, ..annals_embedded::Options::default() };
        let store: Arc<dyn Store> = Arc::new(EmbeddedStore::open(self.disk.clone(), options).expect("it opens"));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let (stop, stopped) = oneshot::channel::<()>();
        let served = Arc::clone(&store);
        let serving = tokio::spawn(async move {
            let stopped = async { stopped.await.unwrap_or_default() };
            // Whatever the port takes, as a server in development does.
            let mut options = Options::default();
            options.query_guard = QueryGuard::open();
            serve(listener, served, options, stopped).await.expect("it serves");
        });
        let ahead_past_server = self.ahead_past_server;
        Arc::new(Served {
            url,
            store,
            ahead_past_server,
            closed: Arc::default(),
            serving: Mutex::new(Some((stop, serving))),
        })
    }

    fn clock(&self) -> Arc<ManualClock> {
        self.clock.clone()
    }
}

/// A store whose logs are reached through its server only.
struct Served {
    url: String,
    store: Arc<dyn Store>,
    ahead_past_server: bool,
    closed: Arc<AtomicBool>,
    serving: Mutex<Option<(oneshot::Sender<()>, JoinHandle<()>)>>,
}

#[async_trait]
impl Store for Served {
    fn log(&self, tenant: &str, scope: &str) -> Result<Arc<dyn EventLog>, UnknownLog> {
        self.store.log(tenant, scope)?;
        let client = Client::new(&self.url, tenant, scope).expect("an address");
        Ok(Arc::new(Until { client, closed: Arc::clone(&self.closed) }))
    }

    fn streams(&self, tenant: &str, scope: &str) -> Result<Arc<dyn Streams>, UnknownLog> {
        self.store.streams(tenant, scope)?;
        let client = Client::new(&self.url, tenant, scope).expect("an address").streams();
        Ok(Arc::new(StreamsUntil { client, closed: Arc::clone(&self.closed) }))
    }

    fn records(&self, tenant: &str) -> Result<Arc<dyn Records>, UnknownLog> {
        self.store.records(tenant)?;
        let client = Client::new(&self.url, tenant, DEFAULT_SCOPE).expect("an address").records();
        Ok(Arc::new(RecordsUntil { client, closed: Arc::clone(&self.closed) }))
    }

    fn snapshots(&self, tenant: &str) -> Result<Arc<dyn Snapshots>, UnknownLog> {
        let client = Client::new(&self.url, tenant, DEFAULT_SCOPE).expect("an address").snapshots();
        let ahead = match self.ahead_past_server {
            true => Ahead::Direct(self.store.snapshots(tenant)?),
            false => Ahead::Commits(self.store.log(tenant, DEFAULT_SCOPE)?),
        };
        Ok(Arc::new(SnapshotsUntil { client, ahead }))
    }

    fn queries(&self, tenant: &str) -> Result<Arc<dyn Queries>, UnknownLog> {
        self.store.queries(tenant)?;
        Ok(Arc::new(Client::new(&self.url, tenant, DEFAULT_SCOPE).expect("an address").queries()))
    }

    fn prepare_keys(&self, tenant: &str) -> Result<Arc<dyn PrepareKeys>, UnknownLog> {
        self.store.prepare_keys(tenant)?;
        let client = Client::new(&self.url, tenant, DEFAULT_SCOPE).expect("an address").prepare_keys();
        Ok(Arc::new(KeysUntil { client, closed: Arc::clone(&self.closed) }))
    }

    fn tenants(&self) -> Vec<String> {
        self.store.tenants()
    }

    fn identity(&self, tenant: &str) -> Option<Identity> {
        self.store.identity(tenant)
    }

    fn status(&self) -> Vec<LogStatus> {
        self.store.status()
    }

    async fn close(&self) {
        let serving = self.serving.lock().expect("no test panics while it holds this").take();
        if let Some((stop, serving)) = serving {
            self.closed.store(true, Ordering::SeqCst);
            let _ = stop.send(());
            serving.await.expect("the server ends");
        }
    }
}
