//! One file per command.

mod adopt;
mod aggregate;
mod backup;
mod check;
mod commit;
mod config;
mod demo;
mod export;
mod import;
mod key;
mod log;
mod pack;
mod query;
mod record;
mod repair;
mod sequencer;
mod serve;
mod snapshot;
mod stats;
mod stream;
mod transact;

use crate::args::{Aggregate, Cli, Command, Config, Log, Stream};
use crate::config::Loaded;
use crate::failure::{Failure, Stop};

/// Runs the command that was given.
pub async fn run(cli: Cli, loaded: Loaded) -> Result<(), Stop> {
    let (global, config) = (&cli.global, &loaded.config);
    let on_files = matches!(
        cli.command,
        Command::Adopt(_)
            | Command::Check
            | Command::Pack
            | Command::Repair(_)
            | Command::Restore(_)
            | Command::Export(_)
    );
    let alone = matches!(cli.command, Command::Serve(_) | Command::Demo(_) | Command::Config(_));
    if global.server.is_some() && (on_files || alone) {
        let message = "--server only goes with commit, transact, aggregate, log, stream, record, snapshot, key, query, import, stats, backup, sequencer and held; the others work on a store";
        return Err(Failure::config(message).into());
    }
    match cli.command {
        Command::Demo(ref args) => demo::run(global, args).await,
        Command::Serve(_) => serve::run(config).await,
        Command::Commit(ref args) => commit::run(global, args, config).await,
        Command::Transact(ref args) => transact::run(global, args, config).await,
        Command::Aggregate(Aggregate::Read(ref args)) => aggregate::read(global, args, config).await,
        Command::Aggregate(Aggregate::List(ref args)) => aggregate::list(global, args, config).await,
        Command::Log(Log::Read(ref args)) => log::read(global, args, config).await,
        Command::Log(Log::Tail(ref args)) => log::tail(global, args, config).await,
        Command::Stream(Stream::List(ref args)) => stream::list(global, args, config).await,
        Command::Stream(Stream::Read(ref args)) => stream::read(global, args, config).await,
        Command::Record(ref args) => record::run(global, args, config).await,
        Command::Snapshot(ref args) => snapshot::run(global, args, config).await,
        Command::Query(ref args) => query::run(global, args, config).await,
        Command::Key(ref args) => key::run(global, args, config).await,
        Command::Import(ref args) if args.whole => export::import(global, args, config).await,
        Command::Import(ref args) => import::run(global, args, config).await,
        Command::Export(ref args) => export::export(global, args, config).await,
        Command::Stats(ref args) => stats::run(global, args, config).await,
        Command::Adopt(ref args) => adopt::run(global, args, config).await,
        Command::Check => check::run(global, config),
        Command::Repair(ref args) => repair::run(global, args, config),
        Command::Pack => pack::run(global, config),
        Command::Backup(ref args) => backup::backup(global, args, config).await,
        Command::Restore(ref args) => backup::restore(global, args, config),
        Command::Sequencer => sequencer::state(global, config).await,
        Command::Held(ref args) => sequencer::held(global, args, config).await,
        Command::Config(Config::Show) => config::show(global, &loaded),
    }
}
