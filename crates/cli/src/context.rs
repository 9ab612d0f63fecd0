//! The context that a command runs in: the global flags and the effective configuration.

use std::sync::Arc;

use annals::{ClientOptions, OpenOptions, Store};

use crate::cli::{Cli, Format};
use crate::config::{Config, Loaded, Origins};
use crate::failure::{Failure, Stop};
use crate::output::Output;
use crate::target::{self, Target};

/// What a command works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reaches {
    /// A server, or a store that the command opens.
    ServerOrStore,
    /// A store that the command opens.
    Store,
    /// The files of a store that no process has open.
    Files,
    /// Neither a server nor a store.
    Nothing,
}

/// The global flags and the effective configuration.
pub struct Context {
    /// The tenant to work on.
    pub tenant: String,
    /// Whether the command line names the tenant.
    pub names_tenant: bool,
    /// The output format, if one was given.
    pub format: Option<Format>,
    /// The server to call; `None` if the command opens a store.
    pub server: Option<String>,
    /// The options for calling the server.
    pub client: ClientOptions,
    pub config: Config,
    pub origins: Origins,
}

impl Context {
    /// Decides between server and store. Flags take precedence over the configuration. In the configuration, a server takes precedence
    /// over a store.
    ///
    /// # Errors
    /// `invalid_config` for `--server` with a command that cannot work through one.
    pub fn new(cli: &Cli, loaded: Loaded) -> Result<Self, Failure> {
        let Loaded { config, origins } = loaded;
        let (name, reaches) = (cli.command.name(), cli.command.reaches());
        let server = match reaches {
            Reaches::ServerOrStore if cli.global.store.is_some() => None,
            Reaches::ServerOrStore => Some(config.server.url.clone()).filter(|url| !url.is_empty()),
            _ if cli.global.server.is_some() => return Err(Failure::config(no_server(name, reaches))),
            _ => None,
        };
        let client = if server.is_some() { config.client.options()? } else { ClientOptions::default() };
        let names_tenant = cli.global.tenant.is_some();
        let tenant = cli.global.tenant.clone().unwrap_or_else(|| annals::DEFAULT_TENANT.to_owned());
        let format = cli.global.output;
        let context = Self { tenant, names_tenant, format, server, client, config, origins };
        if matches!(reaches, Reaches::Store | Reaches::Files) {
            context.note_passed_over_server(name);
        }
        Ok(context)
    }

    /// Prints a note that a configured server is not used, unless the store was chosen explicitly.
    fn note_passed_over_server(&self, name: &str) {
        let url = &self.config.server.url;
        if !url.is_empty() && self.is_default("store.url") {
            let origin = self.origins.get("server.url").map_or("configuration", String::as_str);
            let store = annals::shown_url(&self.config.store.url);
            crate::failure::note(&format!(
                "{name} does not work through a server; using the store {store} instead of {url} ({origin})"
            ));
        }
    }

    /// Returns whether a key of the configuration has its default value.
    pub fn is_default(&self, key: &str) -> bool {
        self.origins.get(key).is_none_or(|origin| origin == "default")
    }

    /// Returns an output in the requested format.
    pub fn output(&self) -> Output {
        Output::new(self.format)
    }

    /// Opens the default scope's log for writing. A store that does not exist yet is created.
    pub async fn to_write(&self) -> Result<Target, Failure> {
        Target::open(self, annals::DEFAULT_SCOPE, false).await
    }

    /// Opens the log of a scope for reading. A store that does not exist is an error, because a mistyped path would look like an empty
    /// store.
    pub async fn to_read(&self, scope: &str) -> Result<Target, Failure> {
        Target::open(self, scope, true).await
    }

    /// Opens the default scope's log for writing, in a store that must exist. It serves commands that read, but for which the opened
    /// store has to write.
    pub async fn to_write_existing(&self) -> Result<Target, Failure> {
        let options = |config: &Config| OpenOptions { must_exist: true, ..target::open_options(config, false) };
        Target::open_with(self, annals::DEFAULT_SCOPE, options).await
    }

    /// Reads from the log of a scope, and prints.
    pub async fn reading(
        &self,
        scope: &str,
        work: impl AsyncFnOnce(&Target, &mut Output) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        self.printing(self.to_read(scope).await?, work).await
    }

    /// Changes something of the tenant, and prints.
    pub async fn writing(&self, work: impl AsyncFnOnce(&Target, &mut Output) -> Result<(), Stop>) -> Result<(), Stop> {
        self.printing(self.to_write().await?, work).await
    }

    /// Does the same in a store that must exist; see [`to_write_existing`](Self::to_write_existing).
    pub async fn writing_existing(
        &self,
        work: impl AsyncFnOnce(&Target, &mut Output) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        self.printing(self.to_write_existing().await?, work).await
    }

    async fn printing(
        &self,
        target: Target,
        work: impl AsyncFnOnce(&Target, &mut Output) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        target
            .run(async |target| {
                let mut output = self.output();
                work(target, &mut output).await?;
                output.flush()
            })
            .await
    }

    /// Opens the configured store.
    pub async fn open_store(&self, must_exist: bool) -> Result<Arc<dyn Store>, Failure> {
        target::open_store(&self.config, must_exist).await
    }
}

fn no_server(name: &str, reaches: Reaches) -> String {
    let instead = match reaches {
        Reaches::Nothing => "omit --server",
        _ => "stop the server and name its store with --store",
    };
    format!(
        "--server: {name} does not work through a server; {instead}. Commands that do: {}",
        crate::commands::through_a_server()
    )
}
