//! The binary `annals`: the command line over the library of the same name. It is a separate crate so that the library does not depend on
//! what only a terminal needs.

mod cli;
mod commands;
mod config;
mod context;
mod failure;
#[cfg(test)]
mod guides;
mod lines;
mod listen;
mod logging;
mod output;
#[cfg(test)]
mod packaging;
mod pipeline;
mod printable;
mod progress;
mod reconnect;
mod requests;
mod selection;
mod signals;
mod target;
mod why;

use std::process::ExitCode;

use crate::cli::Cli;
use crate::config::Loaded;
use crate::context::Context;
use crate::failure::{Failure, Stop};

/// Commits are allocated by one thread and freed by another, in sizes that the system's allocator guards with locks.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match start(&cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(stop) => stop.report(),
    }
}

fn start(cli: &Cli) -> Result<(), Stop> {
    let loaded = Loaded::read(cli)?;
    logging::start(&loaded.config.log)?;
    let context = Context::new(cli, loaded)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::internal(format!("the async runtime cannot be started: {error}")))?;
    let outcome = runtime.block_on(async {
        signals::survive_large_files()?;
        cli.command.run(&context).await
    });
    // A thread that waits for standard input must not delay the exit.
    runtime.shutdown_background();
    outcome
}
