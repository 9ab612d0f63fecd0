//! The binary `annals`: the command line over the library of the same name. It is a crate of its own so that the library does not
//! carry what only a terminal needs.

mod args;
mod commands;
mod config;
mod failure;
mod lines;
mod logging;
mod output;
mod pipeline;
mod progress;
mod requests;
mod signals;
mod target;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command};
use crate::config::Loaded;
use crate::failure::{Failure, Stop};

/// Commits are made by one thread and freed by another, in sizes that the system's allocator guards with locks.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match start(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(stop) => stop.report(),
    }
}

fn start(cli: Cli) -> Result<(), Stop> {
    let mut loaded = Loaded::read(&cli)?;
    if matches!(cli.command, Command::Demo(_)) && loaded.origins.get("log.level").is_some_and(|o| o == "default") {
        // Its own lines are the show.
        loaded.config.log.level = "warn".to_owned();
    }
    logging::start(&loaded.config.log)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::internal(format!("the async runtime does not start: {error}")))?;
    let outcome = runtime.block_on(commands::run(cli, loaded));
    // A thread that waits for standard input must not hold up the end.
    runtime.shutdown_background();
    outcome
}
