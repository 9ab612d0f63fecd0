//! The library and the server beside the bare disk, in interleaved rounds on one machine.
//!
//! Nothing here is asserted: absolute figures belong to a machine. What travels is the ratio to the probe, which does nothing but
//! the write and the sync that any durable store must do.

mod arguments;
mod bare_log;
mod cell;
mod empty;
mod follow;
mod library;
mod machine;
mod probe;
mod pushed;
mod report;
mod server;
mod workload;

use std::path::Path;
use std::process::ExitCode;

use arguments::Arguments;
use bare_log::{Checked, Unchecked};
use cell::{Cell, Measured};
use workload::Row;

/// The allocator of the product's binary; every system in this process has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [empty::OPTION, address] = words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        return ended(runtime().and_then(|runtime| runtime.block_on(empty::serve(address))));
    }
    let arguments = match Arguments::parse(words.into_iter()) {
        Ok(Some(arguments)) => arguments,
        Ok(None) => {
            print!("{}", arguments::USAGE);
            return ExitCode::SUCCESS;
        }
        Err(sentence) => return failed(&sentence),
    };
    ended(runtime().and_then(|runtime| runtime.block_on(bench(&arguments))))
}

fn runtime() -> Result<tokio::runtime::Runtime, String> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|error| error.to_string())
}

fn ended(outcome: Result<(), String>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => failed(&sentence),
    }
}

fn failed(sentence: &str) -> ExitCode {
    eprintln!("bench: {sentence}");
    ExitCode::FAILURE
}

/// What is measured in one round: every system in every row.
async fn bench(arguments: &Arguments) -> Result<(), String> {
    let mut measured = Vec::new();
    for round in 0..arguments.rounds {
        for row in &arguments.rows {
            for system in turn(arguments, round) {
                let folder = tempfile::tempdir_in(&arguments.folder)
                    .map_err(|error| format!("{}: {error}", arguments.folder.display()))?;
                let cell = Cell::new(arguments.seconds);
                let outcome = system.measure(row, &cell, folder.path(), arguments).await?;
                eprintln!("round {} {row} {system}: {:.0} events/s", round + 1, outcome.events_per_second(row, &cell));
                measured.push(report::Entry::new(round, *row, system, &outcome, &cell));
            }
        }
    }
    let reads = match arguments.reads {
        true => Some(follow::measure(&arguments.folder).await?),
        false => None,
    };
    let pushed = match &arguments.server {
        Some(program) if arguments.reads => {
            let folder = tempfile::tempdir_in(&arguments.folder).map_err(|error| error.to_string())?;
            Some(pushed::measure(folder.path(), program).await?)
        }
        _ => None,
    };
    let machine = machine::describe(&arguments.folder);
    print!("{}", report::markdown(&machine, arguments, &measured, reads.as_ref()));
    pushed.iter().for_each(|pushed| print!("{}", report::pushed_table(pushed)));
    match &arguments.json {
        Some(file) => report::write_json(file, &machine, arguments, &measured, reads.as_ref()),
        None => Ok(()),
    }
}

/// The systems in the order of this round: each is first, second and so on equally often.
fn turn(arguments: &Arguments, round: usize) -> Vec<System> {
    let mut systems = arguments.systems.clone();
    systems.retain(|system| !System::OVER_HTTP.contains(system) || arguments.server.is_some());
    let first = round % systems.len().max(1);
    systems.rotate_left(first);
    systems
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum System {
    /// Write and sync, nothing else.
    Probe,
    /// The probe with checksums, version checks and request checks.
    BareLog,
    /// The embedded store in this process.
    Library,
    /// A handler that only reads and answers, in a process of its own, over loopback.
    Empty,
    /// The real server in a process of its own, over loopback, with a connection per writer.
    Server,
    /// The same through one Rust client that all writers share.
    Client,
}

impl System {
    const ALL: [Self; 6] = [Self::Probe, Self::BareLog, Self::Library, Self::Empty, Self::Server, Self::Client];
    const OVER_HTTP: [Self; 3] = [Self::Empty, Self::Server, Self::Client];

    /// Reads the first word of a system's name.
    fn parse(word: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|system| system.to_string().split([' ', ',']).next() == Some(word));
        found.ok_or_else(|| format!("there is no system {word:?}"))
    }

    async fn measure(self, row: &Row, cell: &Cell, folder: &Path, arguments: &Arguments) -> Result<Measured, String> {
        match (self, &arguments.server) {
            (Self::Probe, _) => probe::measure(row, cell, folder, Unchecked).await,
            (Self::BareLog, _) => probe::measure(row, cell, folder, Checked::default()).await,
            (Self::Library, _) => library::measure(row, cell, folder).await,
            (Self::Empty, _) => empty::measure(row, cell, folder).await,
            (Self::Server, Some(program)) => server::measure(row, cell, folder, program).await,
            (Self::Client, Some(program)) => server::measure_client(row, cell, folder, program).await,
            (Self::Server | Self::Client, None) => Err("the server's program is not known".to_owned()),
        }
    }
}

impl std::fmt::Display for System {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Probe => "probe",
            Self::BareLog => "bare log",
            Self::Library => "library",
            Self::Empty => "empty handler",
            Self::Server => "server",
            Self::Client => "client, shared by all",
        })
    }
}
