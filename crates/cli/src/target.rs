//! The log that a command works on: in a store that it opens, or at a server.

use std::sync::Arc;

use annals::filters::Filters;
use annals::handlers::Handlers;
use annals::horizon::Horizon;
use annals::projections::Projections;
use annals::runtime::{Host, HostOptions};
use annals::types::EventTypes;
use annals::{
    Client, Code, EventLog, HttpProducers, OpenOptions, PrepareKeys, Queries, Records, Sequencing, Snapshots, Store,
    StoreError, Streams, Topics,
};

use crate::config::Config;
use crate::context::Context;
use crate::failure::{Failure, Stop};

/// An open log, and the store it is in if this process opened one.
pub struct Target {
    pub log: Arc<dyn EventLog>,
    /// The streams of the same scope.
    pub streams: Arc<dyn Streams>,
    /// The records of the tenant.
    pub records: Arc<dyn Records>,
    /// The snapshots of the tenant.
    pub snapshots: Arc<dyn Snapshots>,
    /// The queries of the tenant's snapshots and commits.
    pub queries: Arc<dyn Queries>,
    /// The prepare keys of the tenant.
    pub keys: Arc<dyn PrepareKeys>,
    /// The filters of the tenant.
    pub filters: Arc<dyn Filters>,
    /// The handlers of the tenant.
    pub handlers: Arc<dyn Handlers>,
    /// The projections of the tenant.
    pub projections: Arc<dyn Projections>,
    /// The event types of the tenant.
    pub types: Arc<dyn EventTypes>,
    /// The topics of the tenant.
    pub topics: Arc<dyn Topics>,
    /// The consents and subscriptions of the tenant.
    pub horizon: Arc<dyn Horizon>,
    /// What gives the tenant's commits their numbers, where that is not the log itself.
    pub sequencing: Arc<dyn Sequencing>,
    pub tenant: String,
    pub scope: String,
    store: Option<(Arc<dyn Store>, Host)>,
}

impl Target {
    /// Opens the log of a scope at the server of `context`, or else in its store.
    pub async fn open(context: &Context, scope: &str, must_exist: bool) -> Result<Self, Failure> {
        let (tenant, scope) = (context.tenant.clone(), scope.to_owned());
        if let Some(server) = &context.server {
            let client = Client::with(server, &tenant, &scope, &context.client)?;
            let (streams, records) = (Arc::new(client.streams()), Arc::new(client.records()));
            let (sequencing, snapshots) = (Arc::new(client.sequencing()), Arc::new(client.snapshots()));
            let (keys, queries) = (Arc::new(client.prepare_keys()), Arc::new(client.queries()));
            let (filters, handlers) = (Arc::new(client.filters()), Arc::new(client.handlers()));
            let (projections, types) = (Arc::new(client.projections()), Arc::new(client.event_types()));
            let (topics, horizon) = (Arc::new(client.topics()), Arc::new(client.horizon()));
            let (log, store) = (Arc::new(client), None);
            return Ok(Self {
                log,
                streams,
                records,
                snapshots,
                keys,
                queries,
                filters,
                handlers,
                projections,
                types,
                topics,
                horizon,
                sequencing,
                tenant,
                scope,
                store,
            });
        }
        let store = context.open_store(must_exist).await?;
        let (log, streams) = (store.log(&tenant, &scope)?, store.streams(&tenant, &scope)?);
        let (records, snapshots) = (store.records(&tenant)?, store.snapshots(&tenant)?);
        let (keys, queries) = (store.prepare_keys(&tenant)?, store.queries(&tenant)?);
        let (sequencing, types) = (store.sequencing(&tenant)?, store.event_types(&tenant)?);
        let host = Host::start(Arc::clone(&store), host_options(&context.config));
        let (filters, handlers) = (host.filters(&tenant)?, host.handlers(&tenant)?);
        let (projections, topics) = (host.projections(&tenant)?, host.topics(&tenant)?);
        let horizon = host.horizon(&tenant)?;
        let store = Some((store, host));
        Ok(Self {
            log,
            streams,
            records,
            snapshots,
            keys,
            queries,
            filters,
            handlers,
            projections,
            types,
            topics,
            horizon,
            sequencing,
            tenant,
            scope,
            store,
        })
    }

    /// Whether it is behind a server.
    pub fn is_remote(&self) -> bool {
        self.store.is_none()
    }

    /// The task host on the store, where this process has opened it.
    pub fn host(&self) -> Option<&Host> {
        self.store.as_ref().map(|(_, host)| host)
    }

    /// Runs a command's work on it, then closes it whatever came of that. Work on a damaged log does not end well even if it met no
    /// error, because what it saw is only the part up to the damage.
    pub async fn run(self, work: impl AsyncFnOnce(&Self) -> Result<(), Stop>) -> Result<(), Stop> {
        let outcome = work(&self).await;
        let Some((store, host)) = &self.store else { return outcome };
        host.drain().await;
        let damage = self.damage(&**store);
        store.close().await;
        outcome?;
        damage.map_or(Ok(()), |error| Err(Failure::new(error.code(), error.to_string()).into()))
    }

    fn damage(&self, store: &dyn Store) -> Option<StoreError> {
        let logs = store.status();
        let log = logs.into_iter().find(|log| log.tenant == self.tenant && log.scope == self.scope)?;
        log.refusing.filter(|error| matches!(error, StoreError::Damaged(_)))
    }
}

/// What is configured of the task host.
pub fn host_options(config: &Config) -> HostOptions {
    let microservice = config.server.microservice.clone();
    let producers = HttpProducers { authorities: config.client.authorities().authorities };
    HostOptions { microservice, producers: Arc::new(producers), ..HostOptions::default() }
}

/// Opens the configured store.
pub async fn open_store(config: &Config, must_exist: bool) -> Result<Arc<dyn Store>, Failure> {
    opened(config, open_options(config, must_exist)).await
}

/// Opens the configured store with the tenant that holds credentials and the audit log.
pub async fn open_system_store(config: &Config, must_exist: bool) -> Result<Arc<dyn Store>, Failure> {
    opened(config, with_system_tenant(config, open_options(config, must_exist))).await
}

/// Declares the tenant that holds credentials and the audit log.
pub fn with_system_tenant(config: &Config, mut options: OpenOptions) -> OpenOptions {
    let tenant = &config.security.tenant;
    if !options.tenants.contains(tenant) {
        options.tenants.push(tenant.clone());
    }
    options
}

async fn opened(config: &Config, options: OpenOptions) -> Result<Arc<dyn Store>, Failure> {
    let store = annals::open_with(&config.store.url, options).await?;
    for log in store.status() {
        for line in &log.recovery {
            crate::failure::note(&format!("recovery of {}/{}: {line}", log.tenant, log.scope));
        }
    }
    Ok(store)
}

/// What is configured of the store.
pub fn open_options(config: &Config, must_exist: bool) -> OpenOptions {
    warn_of_other_servers(config);
    OpenOptions {
        tenants: config.tenants.names.clone(),
        scopes: config.tenants.scopes.clone(),
        must_exist,
        // Whoever reads is served from a disk that is full or may not be written, too.
        read_only_on: if must_exist { &[Code::StoreReadOnly, Code::DiskFull] } else { &[] },
        min_free_disk_bytes: config.store.min_free_disk_bytes,
        mongodb: config.mongodb.options(),
    }
}

/// A store is on the cluster of its URL. The Dolittle configuration may name the same by other names, so this is no error.
fn warn_of_other_servers(config: &Config) {
    let url = &config.store.url;
    let named = |server: &String| url.contains(&**server) || url.contains(server.trim_end_matches(":27017"));
    if !config.dolittle_servers.is_empty() && !config.dolittle_servers.iter().any(named) {
        let servers = config.dolittle_servers.iter().cloned().collect::<Vec<_>>().join(", ");
        let url = annals::shown_url(url);
        tracing::warn!(
            servers,
            url,
            "the Dolittle configuration names other servers than the store's URL, which is used"
        );
    }
}
