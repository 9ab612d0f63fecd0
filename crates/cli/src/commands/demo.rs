//! `annals demo`.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use annals::DEFAULT_TENANT;
use annals_example_execution::{DemoFolder, FolderError, Role, Settings, Users};
use clap::Args;

use super::Run;
use crate::config::Layers;
use crate::context::{Context, Reaches};
use crate::failure::{Failure, Stop};
use crate::{listen, signals, target};

/// The folder in which the demo keeps its store between runs.
const FOLDER: &str = "./demo-data";

/// Run the demo: a code-execution service on an event store, with a web page that shows its events
#[derive(Debug, Args)]
#[command(
    after_help = "The demo keeps its store in ./demo-data, and the next run continues with it. With --store it uses that store; beside an embedded store NAME, the folder NAME.demo then holds the files of the programs.\n\nThe parts of the service can run in separate processes that share a store on MongoDB: api, saga-orchestrator, worker, result-processor, notification-service, sse-bridge.\n\nExample:\n  annals demo --fresh\n  annals demo --role worker --store mongodb://127.0.0.1:27017/demo?replicaSet=rs0 --queue redis://127.0.0.1:6379"
)]
pub struct Demo {
    /// First delete what earlier runs stored in ./demo-data; cannot be combined with --store
    #[arg(long)]
    fresh: bool,
    /// The address to listen on [default: 127.0.0.1:7171, or a free port]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Run only this part of the service; may be repeated [default: all parts]
    #[arg(long, value_name = "ROLE")]
    role: Vec<Role>,
    /// Where events are published: embedded, or kafka://HOST:PORT,HOST:PORT [default: embedded]
    #[arg(long, value_name = "URL")]
    broker: Option<String>,
    /// Where the work queue is stored: embedded, or redis://HOST:PORT [default: embedded]
    #[arg(long, value_name = "URL")]
    queue: Option<String>,
    /// A JSON file of users with their tokens, `[{"name", "token", "admin"}]`; without it, callers on this machine may use any name
    #[arg(long, value_name = "FILE")]
    users: Option<PathBuf>,
}

impl Run for Demo {
    const REACHES: Reaches = Reaches::Nothing;

    fn configure(&self, layers: &mut Layers) -> Result<(), Failure> {
        if let Some(broker) = &self.broker {
            layers.flag("broker.url", "--broker", broker.clone().into())?;
        }
        if let Some(queue) = &self.queue {
            layers.flag("queue.url", "--queue", queue.clone().into())?;
        }
        // The demo's own lines are its output, so logs below `warn` are hidden.
        if layers.is_default("log.level") { layers.flag("log.level", "demo", "warn".into()) } else { Ok(()) }
    }

    async fn run(&self, context: &Context) -> Result<(), Stop> {
        // The demo ignores a configured store; it uses only one that is named with `--store`.
        let named = context.origins.get("store.url").is_some_and(|origin| origin == "--store");
        let store = named.then(|| context.config.store.url.clone());
        let listen = match &self.listen {
            Some(text) => Some(listen::resolve("--listen", text, "127.0.0.1:7171").await?),
            None => None,
        };
        if let Some(url) = store.as_ref().filter(|_| self.fresh) {
            let message = format!(
                "--fresh: deletes only the demo's own store in {FOLDER}, so it cannot be combined with --store {url}; omit --fresh and name a new store, or omit --store"
            );
            return Err(Failure::config(message).into());
        }
        let roles = self.roles(store.as_deref())?;
        let users = self.users.as_ref().map(|path| Users::read(path).map_err(|error| unreadable(path, &error)));
        let users = users.transpose()?;
        let broker = context.config.broker.relay_of(DEFAULT_TENANT, &context.config.tenants.names)?;
        let queues = annals::open_queue(&context.config.queue.url)?;
        let folder = DemoFolder::claim(Path::new(&folder(store.as_deref(), &self.role)), self.fresh).await?;
        let url = store.unwrap_or_else(|| folder.store_url());
        let store = annals::open(&url).await?;
        target::note_recovery(&*store);
        let mut settings = Settings::new(store, annals::shown_url(&url), folder.work(), io::stdout());
        settings.listen = listen;
        settings.roles = roles;
        settings.users = users.unwrap_or_default();
        settings.broker = broker;
        settings.tasks = target::host_options(&context.config)?;
        settings.tasks.queues = queues;
        let stopped = signals::caught()?;
        let ended = annals_example_execution::run(settings, stopped).await;
        ended.map_err(|error| Failure::new(error.code(), error.to_string()).into())
    }
}

impl Demo {
    /// Returns the roles of this process. Running several processes requires a store that they share.
    fn roles(&self, store: Option<&str>) -> Result<BTreeSet<Role>, Failure> {
        let shared = store.is_some_and(|url| url.starts_with("mongodb"));
        if self.role.is_empty() {
            return Ok(Role::ALL.into());
        }
        if shared || self.role.len() == Role::ALL.len() {
            return Ok(self.role.iter().copied().collect());
        }
        let message = "--role: to run parts of the service in separate processes, the processes must share a store; add --store mongodb://HOST/DATABASE, or omit --role to run all parts in one process";
        Err(Failure::config(message))
    }
}

/// Returns the folder for the programs' files, and for the store unless another one is named. Each combination of roles, and each named
/// embedded store, has a folder of its own, so that demos do not lock each other out.
fn folder(store: Option<&str>, roles: &[Role]) -> String {
    if let Some(path) = store.and_then(|url| url.strip_prefix("embedded:")) {
        return format!("{}.demo", path.trim_end_matches('/'));
    }
    let roles: BTreeSet<_> = roles.iter().map(|role| role.name()).collect();
    roles.into_iter().fold(FOLDER.to_owned(), |folder, role| format!("{folder}-{role}"))
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    let message = format!(
        "--users: {} cannot be read: {error}; provide a JSON array of {{\"name\", \"token\", \"admin\"}}",
        path.display()
    );
    Failure::new(annals::Code::UnreadableInput, message)
}

impl From<FolderError> for Failure {
    fn from(error: FolderError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}
