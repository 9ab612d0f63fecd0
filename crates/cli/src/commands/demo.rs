//! `annals demo`: the service of `examples/execution`, in a folder of its own.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use annals_example_execution::{DemoFolder, FolderError, Settings};

use crate::args::{Demo, Global};
use crate::failure::{Failure, Stop};
use crate::signals;

/// Where the demo keeps its store from run to run.
const FOLDER: &str = "./demo-data";

pub async fn run(global: &Global, args: &Demo) -> Result<(), Stop> {
    let listen = args.listen.as_deref().map(address).transpose()?;
    if let Some(url) = global.store.as_ref().filter(|_| args.fresh) {
        let message = format!(
            "--fresh: it empties the demo's own store in {FOLDER} and nothing else, so it does not go with --store {url}; \
             name a new store, or leave one of the two out"
        );
        return Err(Failure::config(message).into());
    }
    let folder = DemoFolder::claim(Path::new(FOLDER), args.fresh).await?;
    let url = global.store.clone().unwrap_or_else(|| folder.store_url());
    let store = annals::open(&url).await?;
    let mut settings = Settings::new(store, url, folder.work(), io::stdout());
    settings.listen = listen;
    let stopped = async {
        if let Err(failure) = signals::stop().await {
            failure.print();
        }
    };
    let ended = annals_example_execution::run(settings, stopped).await;
    ended.map_err(|error| Failure::new(error.code(), error.to_string()).into())
}

fn address(text: &str) -> Result<SocketAddr, Failure> {
    text.parse().map_err(|_| {
        Failure::config(format!("--listen: {text:?} is not an address; write IP:PORT, for example 127.0.0.1:7171"))
    })
}

impl From<FolderError> for Failure {
    fn from(error: FolderError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}
