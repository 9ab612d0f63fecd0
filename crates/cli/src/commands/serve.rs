//! `annals serve`.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use annals::runtime::StoredCredentials;
use annals::{Code, OpenError, Store, SystemClock, server};
use clap::Args;
use tokio::net::TcpListener;

use super::Run;
use crate::config::{Config, DeclaredIndexes, Layers};
use crate::context::{Context, Reaches};
use crate::failure::{Failure, Stop};
use crate::output::Output;
use crate::{listen, signals, target};

/// How long to wait for the store to open before the server starts without it and reports that it is not ready.
const OPENING_MAX: Duration = Duration::from_secs(1);

/// Serve a store over HTTP until SIGTERM or Ctrl-C
#[derive(Debug, Args)]
#[command(
    after_help = "The server is ready when GET /health/ready answers 200. It stops within 10 s, or 17 s while a webhook has an event of a \
                  replay.\n\nExample:\n  annals serve --store embedded:./data --listen 127.0.0.1:4000 --dev"
)]
pub struct Serve {
    /// The address to listen on; port 0 picks a free port and prints it [default: 127.0.0.1:4000]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// The name of this server's microservice on the event horizon [default: default]
    #[arg(long, value_name = "NAME")]
    microservice: Option<String>,
    /// Where events are published: embedded, or kafka://HOST:PORT,HOST:PORT [default: embedded]
    #[arg(long, value_name = "URL")]
    broker: Option<String>,
    /// Where the items of work queues are stored: embedded, or redis://HOST:PORT [default: embedded]
    #[arg(long, value_name = "URL")]
    queue: Option<String>,
    /// Require no credentials, and listen on loopback only; without it, callers need a key (`annals credential create`)
    #[arg(long)]
    dev: bool,
    /// Serve without TLS on an address that other machines reach, for a proxy in front
    #[arg(long)]
    insecure_http: bool,
}

impl Run for Serve {
    const REACHES: Reaches = Reaches::Store;

    fn configure(&self, layers: &mut Layers) -> Result<(), Failure> {
        if let Some(listen) = &self.listen {
            layers.flag("server.listen", "--listen", listen.clone().into())?;
        }
        if let Some(broker) = &self.broker {
            layers.flag("broker.url", "--broker", broker.clone().into())?;
        }
        if let Some(queue) = &self.queue {
            layers.flag("queue.url", "--queue", queue.clone().into())?;
        }
        if let Some(microservice) = &self.microservice {
            layers.flag("server.microservice", "--microservice", microservice.clone().into())?;
        }
        if self.dev {
            layers.flag("server.dev", "--dev", true.into())?;
        }
        if self.insecure_http {
            layers.flag("server.insecure_http", "--insecure-http", true.into())?;
        }
        Ok(())
    }

    async fn run(&self, context: &Context) -> Result<(), Stop> {
        let config = &context.config;
        let address = address(config).await?;
        annals::valid_id("server.microservice", &config.server.microservice)?;
        if let Err(error) = server::raise_open_files() {
            tracing::warn!(%error, "could not raise the limit of open files");
        }
        let origins = server::Origins::read(&config.server.cors_origins);
        let origins = origins.map_err(|why| Failure::config(format!("server.cors_origins: {why}")))?;
        let indexes = config.snapshots.declared()?;
        let relays = config.broker.relays(&config.tenants.names)?;
        let queues = annals::open_queue(&config.queue.url)?;
        let listener = TcpListener::bind(address).await.map_err(|error| cannot_listen(address, &error))?;
        let tls = config.tls.options()?;
        let spans = config.telemetry.spans(&config.client)?;
        let mut tasks = target::host_options(config)?;
        tasks.spans = spans.clone().map(|spans| spans as Arc<dyn annals::trace::Spans>);
        let security = match config.server.dev {
            true => None,
            false => Some(config.security.options(&config.client)?),
        };
        let mut options = target::open_options(config, false);
        if security.is_some() {
            options = target::with_system_tenant(config, options);
            // A store without credentials would lock everyone out, so none is created.
            options.must_exist = !config.security.knows_without_keys();
        }
        // A server that was killed on a full disk starts again, and serves reads until there is room.
        options.read_only_on = &[Code::DiskFull];
        let obstacle = server::Obstacle::default();
        obstacle.say("it is being opened");
        let mut opening = Box::pin(async {
            let opened_store = annals::open_once_reachable(&config.store.url, options, |error| tell(&obstacle, error));
            let store = opened_store.await.map_err(|error| without_store(config, error))?;
            secured(&*store, config).await?;
            declare(&*store, &indexes).await.map(|()| opened(store))
        });
        // Most stores are open or refused by then, so the operator learns of a refusal before an address is printed.
        let first = match tokio::time::timeout(OPENING_MAX, &mut opening).await {
            Ok(store) => Some(store?),
            Err(_) => None,
        };
        let address = listener.local_addr().map_err(|error| Failure::internal(error.to_string()))?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        // Before the address is printed: a process that has read it may stop the server at once.
        let stopped = signals::caught()?;
        let mut output = Output::new(None);
        // The server runs even if nobody reads its output.
        let _ = output.text(format_args!(
            "Serving {} on {scheme}://{address} until Ctrl-C.",
            annals::shown_url(&config.store.url)
        ));
        let _ = output.flush();
        let mut limits = server::Options::default();
        // Without credentials every caller may do everything, and a browser can be made to call from any page.
        limits.callers = if security.is_some() { server::Callers::Named } else { server::Callers::ThisMachine };
        limits.names.clone_from(&config.server.names);
        limits.followers_max = config.server.followers_max;
        limits.cors_origins = origins;
        limits.security = security;
        limits.tls = tls;
        limits.relays = relays;
        limits.pages = Some(pages(context)?);
        limits.query_guard = config.queries.guard(config.server.dev);
        limits.tasks = tasks;
        limits.tasks.queues = queues;
        let opening = async {
            match first {
                Some(store) => Ok(store),
                None => opening.await,
            }
        };
        let served = server::serve_opening(listener, opening, obstacle.clone(), limits, stopped).await;
        if let Some(spans) = spans {
            spans.stop().await;
        }
        let ended = served.map_err(|error| Failure::internal(format!("the server failed: {error}")))?;
        ended.map_err(|error| Failure::from(error).into())
    }
}

/// Returns the console, which shows the configuration of this process.
fn pages(context: &Context) -> Result<server::Pages, Failure> {
    let mut settings = annals::console::Settings::default();
    settings.configuration = super::config::rows(context)?;
    Ok(annals::console::console(settings))
}

/// Adds the missing credential to the error for a missing store. The missing store comes first: its disk may not be mounted.
fn without_store(config: &Config, error: OpenError) -> OpenError {
    if config.server.dev || config.security.knows_without_keys() || error.code != Code::NotAStore {
        return error;
    }
    let first = no_credential(config);
    OpenError::new(first.code, format!("{}. For a new store: {}", error.message, first.message))
}

/// Refuses a store without an active credential, unless callers can be authenticated without one.
async fn secured(store: &dyn Store, config: &Config) -> Result<(), OpenError> {
    if config.server.dev || config.security.knows_without_keys() {
        return Ok(());
    }
    let any = match StoredCredentials::new(store, &config.security.tenant, Arc::new(SystemClock)) {
        Ok(credentials) => {
            credentials.any_active().await.map_err(|error| OpenError::new(error.code(), error.to_string()))
        }
        Err(error) => Err(OpenError::new(error.code(), error.to_string())),
    };
    let refused = match any {
        Ok(true) => return Ok(()),
        Ok(false) => no_credential(config),
        Err(error) => error,
    };
    store.close().await;
    Err(refused)
}

fn no_credential(config: &Config) -> OpenError {
    let url = annals::shown_url(&config.store.url);
    let message = format!(
        "callers need credentials, but this store has none yet. Create the first one with `annals credential create --store {url} \
         --name admin --role admin`, or configure security.issuers. With --dev (server.dev) the server needs no credentials, but listens \
         on loopback addresses only"
    );
    OpenError::new(Code::InvalidConfig, message)
}

/// Declares the configured indexes. If the store refuses them, it is closed and not served.
async fn declare(store: &dyn Store, indexes: &[DeclaredIndexes]) -> Result<(), OpenError> {
    for indexes in indexes {
        if let Err(error) = indexes.declare(store).await {
            store.close().await;
            return Err(error);
        }
    }
    Ok(())
}

/// Logs what recovery did.
fn opened(store: Arc<dyn Store>) -> Arc<dyn Store> {
    for log in store.status() {
        for line in &log.recovery {
            tracing::warn!(tenant = log.tenant, scope = log.scope, "recovery: {line}");
        }
    }
    store
}

fn tell(obstacle: &server::Obstacle, error: &OpenError) {
    tracing::warn!("the store cannot be opened yet: {error}");
    obstacle.say(error.to_string());
}

fn cannot_listen(address: SocketAddr, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            Failure::new(Code::AddressInUse, format!("server.listen: another process listens on {address}"))
        }
        _ => Failure::config(format!("server.listen: cannot listen on {address}: {error}")),
    }
}

/// Returns the address to listen on, and refuses one on which this configuration must not be served.
async fn address(config: &Config) -> Result<SocketAddr, Failure> {
    let listen = &config.server.listen;
    let address = listen::resolve("server.listen", listen, "127.0.0.1:4000").await?;
    if !config.server.dev {
        if address.ip().is_loopback() || !config.tls.certificate_file.is_empty() || config.server.insecure_http {
            return Ok(address);
        }
        let message = format!(
            "server.listen: without TLS, keys and events would cross the network to {address} in plain text; configure tls.certificate_file and tls.key_file, or add --insecure-http if a proxy in front of the server terminates TLS"
        );
        return Err(Failure::config(message));
    }
    if !address.ip().is_loopback() {
        let message = format!(
            "server.listen: with --dev, anyone who can reach {address} could read and commit; use a loopback address such as 127.0.0.1:{}",
            address.port()
        );
        return Err(Failure::config(message));
    }
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn refused(listen: &str, dev: bool) -> String {
        let mut config = Config::default();
        config.server.listen = listen.to_owned();
        config.server.dev = dev;
        let failure = address(&config).await.expect_err("refused");
        assert_eq!(failure.code, Code::InvalidConfig);
        failure.message
    }

    #[tokio::test]
    async fn without_tls_only_loopback_is_served_unless_insecure_http_is_spelled_out() {
        let mut config = Config::default();
        assert!(address(&config).await.is_ok());
        config.server.listen = "0.0.0.0:4000".to_owned();
        assert!(address(&config).await.is_err());
        config.server.insecure_http = true;
        assert!(address(&config).await.is_ok());
        (config.server.insecure_http, config.tls.certificate_file) = (false, "server.pem".to_owned());
        assert!(address(&config).await.is_ok());
    }

    #[tokio::test]
    async fn without_credentials_only_dev_on_loopback_is_served() {
        assert!(refused("0.0.0.0:4000", false).await.contains("--insecure-http"));
        assert!(refused("0.0.0.0:4000", true).await.contains("127.0.0.1:4000"));
        assert!(refused("[::]:4000", true).await.contains("loopback"));
        assert!(refused("localhost", true).await.contains("IP:PORT"));
        assert!(refused("localhost:http", true).await.contains("IP:PORT"));
    }

    #[tokio::test]
    async fn a_name_of_this_machine_is_an_address_to_listen_on() {
        let mut config = Config::default();
        (config.server.listen, config.server.dev) = ("localhost:4001".to_owned(), true);
        let address = address(&config).await.expect("an address");
        assert!(address.ip().is_loopback() && address.port() == 4001, "{address}");
    }
}
