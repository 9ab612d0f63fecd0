//! `annals demo`.

use std::io;
use std::path::Path;

use annals_example_execution::{DemoFolder, FolderError, Settings};
use clap::Args;

use super::Run;
use crate::config::Layers;
use crate::context::{Context, Reaches};
use crate::failure::{Failure, Stop};
use crate::{listen, signals};

/// Where the demo keeps its store from run to run.
const FOLDER: &str = "./demo-data";

/// Run the demo: a code-execution service on an event store, with a web page that shows its events
#[derive(Debug, Args)]
#[command(
    after_help = "Its store stays in ./demo-data (or at --store, with the folders of programs beside it in NAME.demo), and the next run continues with it.\n\nExample:\n  annals demo --fresh"
)]
pub struct Demo {
    /// Delete what earlier runs stored in ./demo-data first; not with --store
    #[arg(long)]
    fresh: bool,
    /// The address of the page [default: 127.0.0.1:7171, or a free port]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
}

impl Run for Demo {
    const REACHES: Reaches = Reaches::Nothing;

    fn configure(&self, layers: &mut Layers) -> Result<(), Failure> {
        // Its own lines are the show.
        if layers.is_default("log.level") { layers.flag("log.level", "demo", "warn".into()) } else { Ok(()) }
    }

    async fn run(&self, context: &Context) -> Result<(), Stop> {
        // A configured store is not the demo's; only one that is named is.
        let named = context.origins.get("store.url").is_some_and(|origin| origin == "--store");
        let store = named.then(|| context.config.store.url.clone());
        let listen = match &self.listen {
            Some(text) => Some(listen::resolve("--listen", text, "127.0.0.1:7171").await?),
            None => None,
        };
        if let Some(url) = store.as_ref().filter(|_| self.fresh) {
            let message = format!(
                "--fresh: it empties the demo's own store in {FOLDER} and nothing else, so it does not go with --store {url}; \
                 name a new store, or leave one of the two out"
            );
            return Err(Failure::config(message).into());
        }
        // A store of its own has a folder of its own beside it, so that a demo on the usual one does not lock it out.
        let beside = store.as_ref().and_then(|url| url.strip_prefix("embedded:"));
        let folder = beside.map_or_else(|| FOLDER.to_owned(), |path| format!("{}.demo", path.trim_end_matches('/')));
        let folder = DemoFolder::claim(Path::new(&folder), self.fresh).await?;
        let url = store.unwrap_or_else(|| folder.store_url());
        let store = annals::open(&url).await?;
        let mut settings = Settings::new(store, url, folder.work(), io::stdout());
        settings.listen = listen;
        let stopped = signals::caught()?;
        let ended = annals_example_execution::run(settings, stopped).await;
        ended.map_err(|error| Failure::new(error.code(), error.to_string()).into())
    }
}

impl From<FolderError> for Failure {
    fn from(error: FolderError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}
