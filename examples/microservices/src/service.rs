//! The parts that both services have: a store with an inbox, a server, and a task host.

use std::sync::Arc;

use annals::filters::FilterDefinition;
use annals::horizon::{Consent, SubscriptionDefinition};
use annals::runtime::{Host, HostOptions};
use annals::server::{Options, Stop, serve};
use annals::{DEFAULT_SCOPE, DEFAULT_TENANT, EventLog, HttpProducers, OpenOptions};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// The scope that receives the events of other services.
pub(crate) const INBOX: &str = "inbox";

/// An error that ends the example early.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A running service.
pub struct Service {
    /// The URL at which other services reach it.
    pub url: String,
    /// The log of its events.
    pub log: Arc<dyn EventLog>,
    pub(crate) host: Host,
    stop: Stop,
    server: JoinHandle<std::io::Result<()>>,
}

impl Service {
    /// Opens the store of a service, and serves it on a free port of this machine.
    pub(crate) async fn start(name: &str, store: &str) -> Result<Self, Failure> {
        let open = OpenOptions { scopes: vec![INBOX.to_owned()], ..OpenOptions::default() };
        let store = annals::open_with(store, open).await?;
        let microservice = name.to_owned();
        let options =
            HostOptions { microservice, producers: Arc::new(HttpProducers::default()), ..HostOptions::default() };
        let host = Host::start(Arc::clone(&store), options);
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let (mut options, stop) = (Options::default(), Stop::default());
        options.host = Some(host.clone());
        let (served, stopped) = (Arc::clone(&store), stop.clone());
        let server =
            tokio::spawn(async move { serve(listener, served, options, async { stopped.stopped().await }).await });
        Ok(Self { url, log: store.log(DEFAULT_TENANT, DEFAULT_SCOPE)?, host, stop, server })
    }

    /// Offers events of a type as a public stream to one other service.
    pub(crate) async fn offer(&self, stream: &'static str, event_type: &'static str, to: &str) -> Result<(), Failure> {
        let filter = FilterDefinition::new(stream).types([event_type]).public();
        self.host.filters(DEFAULT_TENANT)?.put(filter).await?;
        let consent = Consent::new(to.to_owned(), stream).to(to.to_owned(), DEFAULT_TENANT);
        self.host.horizon(DEFAULT_TENANT)?.put_consent(consent).await?;
        Ok(())
    }

    /// Receives a public stream of the service at `url` into the inbox.
    pub(crate) async fn receive(&self, stream: &'static str, url: &str) -> Result<(), Failure> {
        let subscription = SubscriptionDefinition::new(stream, url.to_owned(), stream, INBOX);
        self.host.horizon(DEFAULT_TENANT)?.put_subscription(subscription).await?;
        Ok(())
    }

    /// Stops the server, its tasks and the store.
    ///
    /// # Errors
    /// When the server ended with an error.
    pub async fn stop(self) -> Result<(), Failure> {
        self.stop.stop();
        self.server.await??;
        Ok(())
    }
}
