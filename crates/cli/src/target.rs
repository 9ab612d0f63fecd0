//! The log that a command works on: in a store that it opens, or at a server.

use std::sync::Arc;
use std::time::Duration;

use annals::runtime::{Host, HostOptions};
use annals::{Client, Code, EventLog, HttpProducers, OpenOptions, Store, StoreError, UnknownLog};

use crate::config::Config;
use crate::context::Context;
use crate::failure::{Failure, Stop};

/// An open log and its place. Commands reach other ports there by [`Target::port`], in their own files.
pub struct Target {
    pub log: Arc<dyn EventLog>,
    pub tenant: String,
    pub scope: String,
    place: Place,
}

enum Place {
    Server(Box<Client>),
    /// A store that this process opened.
    Store(Opened),
}

/// A store that this process opened, with the task host on it.
pub struct Opened {
    pub store: Arc<dyn Store>,
    pub host: Host,
}

impl Target {
    /// Opens the log of a scope at the server of `context`, or else in its store.
    pub async fn open(context: &Context, scope: &str, must_exist: bool) -> Result<Self, Failure> {
        Self::open_with(context, scope, |config| open_options(config, must_exist)).await
    }

    /// Does the same with other options for the store.
    pub async fn open_with(
        context: &Context,
        scope: &str,
        options: impl FnOnce(&Config) -> OpenOptions,
    ) -> Result<Self, Failure> {
        let (tenant, scope) = (context.tenant.clone(), scope.to_owned());
        if let Some(server) = &context.server {
            let client = Client::with(server, &tenant, &scope, &context.client)?;
            let log = Arc::new(client.clone());
            return Ok(Self { log, tenant, scope, place: Place::Server(Box::new(client)) });
        }
        let store = opened(&context.config, options(&context.config)).await?;
        let log = store.log(&tenant, &scope)?;
        let queues = annals::open_queue(&context.config.queue.url)?;
        let options = HostOptions { queues, ..host_options(&context.config)? };
        let host = Host::start(Arc::clone(&store), options);
        context.config.broker.relays(&context.config.tenants.names)?.show(&host);
        Ok(Self { log, tenant, scope, place: Place::Store(Opened { store, host }) })
    }

    /// Returns a port of the product: from the client if the target is a server, or else from the opened store or its task host.
    pub fn port<P: ?Sized>(
        &self,
        at_server: impl FnOnce(&Client) -> Arc<P>,
        in_store: impl FnOnce(&Opened) -> Result<Arc<P>, UnknownLog>,
    ) -> Result<Arc<P>, Failure> {
        match &self.place {
            Place::Server(client) => Ok(at_server(client)),
            Place::Store(opened) => Ok(in_store(opened)?),
        }
    }

    /// Returns whether the target is a server.
    pub fn is_remote(&self) -> bool {
        matches!(self.place, Place::Server(_))
    }

    /// Returns the task host on the store, if this process has opened the store.
    pub fn host(&self) -> Option<&Host> {
        match &self.place {
            Place::Server(_) => None,
            Place::Store(opened) => Some(&opened.host),
        }
    }

    /// Runs a command's work on the target, then closes the target regardless of the outcome. On a damaged log even work without an error
    /// fails, because it saw only the part up to the damage.
    pub async fn run(self, work: impl AsyncFnOnce(&Self) -> Result<(), Stop>) -> Result<(), Stop> {
        let outcome = work(&self).await;
        let Place::Store(Opened { store, host }) = &self.place else { return outcome };
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

/// Returns the configured options of the task host.
pub fn host_options(config: &Config) -> Result<HostOptions, Failure> {
    let microservice = config.server.microservice.clone();
    let producers = HttpProducers { authorities: config.client.authorities().authorities };
    let partners = config.partners.options(config)?;
    let folder = |name: &str| (!name.is_empty()).then(|| name.into());
    let (exports, archive) = (folder(&config.server.exports), annals::open_archive(&config.server.archive)?);
    let replay_days = config.server.replay_retention_days;
    Ok(HostOptions {
        microservice,
        producers: Arc::new(producers),
        partners,
        exports,
        replay_retention: (replay_days > 0).then(|| Duration::from_secs(24 * 60 * 60) * replay_days),
        archive,
        topics: config.broker.topics()?,
        letter_retention: config.dead_letters.retention(),
        ..HostOptions::default()
    })
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
    note_recovery(&*store);
    Ok(store)
}

/// Prints what was repaired when the store was opened.
pub fn note_recovery(store: &dyn Store) {
    for log in store.status() {
        note_recovery_of(&log.tenant, &log.scope, &log.recovery);
    }
}

/// Prints what was repaired when a log was opened.
pub fn note_recovery_of(tenant: &str, scope: &str, lines: &[String]) {
    for line in lines {
        crate::failure::note(&format!("recovery of {tenant}/{scope}: {line}"));
    }
}

/// Returns the configured options of the store.
pub fn open_options(config: &Config, must_exist: bool) -> OpenOptions {
    warn_of_other_servers(config);
    OpenOptions {
        tenants: config.tenants.names.clone(),
        scopes: config.tenants.scopes.clone(),
        must_exist,
        // Commands that read also work on a disk that is full or read-only.
        read_only_on: if must_exist { &[Code::StoreReadOnly, Code::DiskFull] } else { &[] },
        min_free_disk_bytes: config.store.min_free_disk_bytes,
        mongodb: config.mongodb.options(),
    }
}

/// Warns of servers other than the store's. A store is on the cluster of its URL, but the Dolittle configuration may call the same
/// servers by other names, so this is not an error.
fn warn_of_other_servers(config: &Config) {
    let url = &config.store.url;
    let named = |server: &String| url.contains(&**server) || url.contains(server.trim_end_matches(":27017"));
    if !config.dolittle_servers.is_empty() && !config.dolittle_servers.iter().any(named) {
        let servers = config.dolittle_servers.iter().cloned().collect::<Vec<_>>().join(", ");
        let url = annals::shown_url(url);
        tracing::warn!(
            servers,
            url,
            "the Dolittle configuration names other servers than the URL of the store; using the URL of the store"
        );
    }
}
