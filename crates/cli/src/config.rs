//! The configuration: defaults, then a TOML file, then the environment, then flags. Each value remembers its origin.

mod broker;
mod dead_letters;
mod layers;
mod mongodb;
mod partners;
mod queries;
mod queue;
mod security;
mod snapshots;
mod telemetry;

use std::collections::BTreeSet;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::cli::Cli;
use crate::failure::Failure;

pub use broker::BrokerSection;
pub use dead_letters::DeadLettersSection;
pub use layers::{Layers, Origins};
pub use mongodb::MongoDbSection;
pub use partners::PartnersSection;
pub use queries::QueriesSection;
pub use queue::QueueSection;
pub use security::{ClientSection, SecuritySection, TlsSection};
pub use snapshots::{DeclaredIndexes, SnapshotsSection};
pub use telemetry::TelemetrySection;

/// The file that is read when none is named.
const FILE: &str = "annals.toml";

/// The whole configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub struct Config {
    pub store: StoreSection,
    pub tenants: TenantsSection,
    pub mongodb: MongoDbSection,
    pub broker: BrokerSection,
    pub queue: QueueSection,
    pub partners: PartnersSection,
    pub dead_letters: DeadLettersSection,
    pub server: ServerSection,
    pub security: SecuritySection,
    pub tls: TlsSection,
    pub client: ClientSection,
    pub queries: QueriesSection,
    pub snapshots: SnapshotsSection,
    pub log: LogSection,
    pub telemetry: TelemetrySection,
    /// The servers that the Dolittle configuration names for the tenants' event stores.
    #[serde(skip)]
    pub dolittle_servers: BTreeSet<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreSection {
    /// The store that commands open and that `serve` serves.
    pub url: String,
    /// The free disk space, in bytes, below which commits are refused while reads continue; 0 for no limit.
    pub min_free_disk_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantsSection {
    /// The tenants; each has a store of its own.
    pub names: Vec<String>,
    /// The scopes that every tenant has besides `default`.
    pub scopes: Vec<String>,
    /// The `.dolittle` folder of a microservice, whose tenants are declared too, with their databases; empty for none.
    pub dolittle_folder: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerSection {
    /// The server that commands use instead of opening a store; empty for none.
    pub url: String,
    /// The address that `serve` listens on.
    pub listen: String,
    /// Whether `serve` requires no credentials; it then listens on loopback only.
    pub dev: bool,
    /// The host names under which the server may be called, besides `localhost` and IP addresses.
    pub names: Vec<String>,
    /// The origins of other sites whose pages may call the API, for example `https://app.example.com`.
    pub cors_origins: Vec<String>,
    /// Whether the server may listen without TLS on an address that other machines can reach.
    pub insecure_http: bool,
    /// Most followers (open streams of events) at once.
    pub followers_max: usize,
    /// The name of this server's microservice on the event horizon.
    pub microservice: String,
    /// The folder to which replays may write files, with a folder for each tenant; empty for none.
    pub exports: String,
    /// The number of days after which finished replays are removed; 0 keeps them.
    pub replay_retention_days: u32,
    /// The folder of archived events, or `s3://BUCKET/PREFIX`; empty for none.
    pub archive: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogSection {
    /// `error`, `warn`, `info`, `debug`, `trace`, or a list such as `info,annals_server=debug`.
    pub level: String,
    pub format: LogFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    Text,
    Json,
}

impl Default for StoreSection {
    fn default() -> Self {
        Self { url: "embedded:./data".to_owned(), min_free_disk_bytes: 64 * 1024 * 1024 }
    }
}

impl Default for TenantsSection {
    fn default() -> Self {
        Self { names: vec![annals::DEFAULT_TENANT.to_owned()], scopes: Vec::new(), dolittle_folder: String::new() }
    }
}

impl Default for ServerSection {
    fn default() -> Self {
        Self {
            url: String::new(),
            listen: "127.0.0.1:4000".to_owned(),
            dev: false,
            names: Vec::new(),
            cors_origins: Vec::new(),
            insecure_http: false,
            followers_max: 10_000,
            microservice: "default".to_owned(),
            exports: String::new(),
            replay_retention_days: 30,
            archive: String::new(),
        }
    }
}

impl Default for LogSection {
    fn default() -> Self {
        Self { level: "info".to_owned(), format: LogFormat::Text }
    }
}

/// The effective configuration.
pub struct Loaded {
    pub config: Config,
    pub origins: Origins,
}

impl Loaded {
    /// Reads all sources.
    pub fn read(cli: &Cli) -> Result<Self, Failure> {
        let mut layers = Layers::new(&Config::default())?;
        match &cli.global.config {
            Some(file) => layers.file(file)?,
            None if Path::new(FILE).exists() => layers.file(Path::new(FILE))?,
            None => {}
        }
        layers.environment(std::env::vars_os())?;
        flags(&mut layers, cli)?;
        let (mut config, mut origins) = layers.finish()?;
        mongodb::declare_dolittle_tenants(&mut config, &mut origins)?;
        Ok(Self { config, origins })
    }
}

fn flags(layers: &mut Layers, cli: &Cli) -> Result<(), Failure> {
    for (key, flag, value) in [
        ("store.url", "--store", &cli.global.store),
        ("server.url", "--server", &cli.global.server),
        ("client.credential_file", "--credential-file", &cli.global.credential_file),
        ("client.ca_file", "--ca", &cli.global.ca),
    ] {
        if let Some(value) = value {
            layers.flag(key, flag, value.clone().into())?;
        }
    }
    cli.command.configure(layers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_file_shows_every_key_with_its_default() {
        let text = include_str!("../annals.example.toml");
        let example: Config = toml::from_str(text).expect("the example is a configuration");
        assert_eq!(example, Config::default());
        let written: toml::Table = toml::from_str(text).expect("TOML");
        assert_eq!(written, toml::Table::try_from(Config::default()).expect("TOML"));
    }
}
