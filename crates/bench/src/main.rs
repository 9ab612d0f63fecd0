//! Measures the library and the server beside the bare disk, in interleaved rounds on one machine.
//!
//! Nothing here is asserted, because absolute figures depend on the machine. What is comparable across machines is the ratio to the
//! probe, which only does the write and the sync that any durable store must do.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command for people at a terminal")]

mod arguments;
mod bare_log;
mod cell;
mod conditions;
mod corpus;
#[cfg(feature = "mongodb")]
mod deployed;
mod disk;
mod empty;
#[cfg(feature = "mongodb")]
mod features;
mod http;
#[cfg(feature = "kafka")]
mod kafka;
mod library;
mod machine;
#[cfg(feature = "mongodb")]
mod mongodb;
mod probe;
#[cfg(feature = "mongodb")]
mod processing;
mod pushed;
mod reads;
mod report;
mod rivals;
#[cfg(any(feature = "kafka", feature = "mongodb"))]
mod row;
mod served;
mod server;
mod stored;
#[cfg(feature = "rivals")]
mod tephra;
#[cfg(feature = "rivals")]
mod tephra_server;
#[cfg(feature = "rivals")]
mod umadb;
#[cfg(feature = "rivals")]
mod umadb_server;
#[cfg(feature = "mongodb")]
mod usage;
mod workload;

use std::path::Path;
use std::process::ExitCode;

use arguments::Arguments;
use bare_log::{Checked, Unchecked};
use cell::{Cell, Measured};
use rivals::Rival;
use stored::Kind;
use workload::Row;

/// The allocator of the product's binary, which every system in this process uses.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        [empty::OPTION, address] => {
            return ended(runtime().and_then(|runtime| runtime.block_on(empty::serve(address))));
        }
        [conditions::OPTION, ..] => return ended(runtime().and_then(|runtime| runtime.block_on(conditions::run()))),
        [stored::OPTION, ref task @ ..] => {
            return ended(runtime().and_then(|runtime| runtime.block_on(stored::obey(task))));
        }
        #[cfg(feature = "mongodb")]
        [mongodb::OPTION, ref options @ ..] => {
            return ended(runtime().and_then(|runtime| runtime.block_on(mongodb::run(options))));
        }
        #[cfg(feature = "kafka")]
        [kafka::OPTION, ref options @ ..] => {
            return ended(runtime().and_then(|runtime| runtime.block_on(kafka::run(options))));
        }
        #[cfg(feature = "mongodb")]
        [processing::OPTION, ref options @ ..] => {
            return ended(runtime().and_then(|runtime| runtime.block_on(processing::run(options))));
        }
        #[cfg(feature = "mongodb")]
        [features::streams::OPTION, ref told @ ..] => {
            return ended(runtime().and_then(|runtime| runtime.block_on(features::streams::obey(told))));
        }
        #[cfg(feature = "mongodb")]
        [deployed::crowd::OPTION, ref told @ ..] => {
            return ended(runtime().and_then(|runtime| runtime.block_on(deployed::crowd::obey(told))));
        }
        #[cfg(feature = "mongodb")]
        [deployed::silent::OPTION, ref told @ ..] => {
            return ended(runtime().and_then(|runtime| runtime.block_on(deployed::silent::obey(told))));
        }
        #[cfg(feature = "mongodb")]
        [part, ref options @ ..] if features::OPTIONS.contains(&part) => {
            return ended(runtime().and_then(|runtime| runtime.block_on(features::run(part, options))));
        }
        #[cfg(feature = "mongodb")]
        [deployed::OPTION, ref options @ ..] => {
            return ended(runtime().and_then(|runtime| runtime.block_on(deployed::run(options))));
        }
        [machine::OPTION] => {
            println!("{}", machine::describe(Path::new(".")));
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    let arguments = match Arguments::parse(words.into_iter().map(str::to_owned)) {
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

/// Measures one round: every system in every row.
async fn bench(arguments: &Arguments) -> Result<(), String> {
    std::fs::create_dir_all(&arguments.folder).map_err(|error| format!("{}: {error}", arguments.folder.display()))?;
    let mut measured = Vec::new();
    let mut disk = Vec::new();
    let grown = reads::grown(arguments).await?;
    let mut writers = 0;
    for round in 0..arguments.rounds {
        disk.extend(disk::measure(round, &arguments.folder, arguments.seconds / 3.0)?);
        for row in &arguments.rows {
            for system in turn(arguments, round) {
                let folder = tempfile::tempdir_in(&arguments.folder)
                    .map_err(|error| format!("{}: {error}", arguments.folder.display()))?;
                tokio::time::sleep(std::time::Duration::from_secs_f64(arguments.rest)).await;
                let cell = Cell::new(arguments.seconds);
                let outcome = match (system, &grown) {
                    (System::Grown, Some(grown)) => {
                        // Writers that the store has not seen, because their aggregates must be at version 0.
                        let first = writers;
                        writers += row.writers;
                        library::measure_behind(row, &cell, grown.folder(), first).await?
                    }
                    _ => system.measure(row, &cell, folder.path(), arguments).await?,
                };
                eprintln!("round {} {row} {system}: {:.0} events/s", round + 1, outcome.events_per_second(row, &cell));
                measured.push(report::Entry::new(round, *row, system, &outcome, &cell));
            }
        }
    }
    let kinds = if arguments.rivals.is_some() { &Kind::ALL[..] } else { &[Kind::Annals] };
    let reads = if arguments.reads { reads::measure(kinds, arguments).await? } else { Vec::new() };
    let opened = reads::opened(kinds, arguments).await?;
    let pushed = match &arguments.server {
        Some(program) if arguments.reads => {
            let folder = tempfile::tempdir_in(&arguments.folder).map_err(|error| error.to_string())?;
            Some(pushed::measure(folder.path(), program).await?)
        }
        _ => None,
    };
    let machine = machine::describe(&arguments.folder);
    let report = report::Report { machine, arguments, disk, cells: measured, reads, opened, pushed };
    print!("{}", report.markdown());
    arguments.json.as_deref().map_or(Ok(()), |file| report.write_json(file))
}

/// Returns the systems in the order of this round. Over the rounds, each has every place equally often.
fn turn(arguments: &Arguments, round: usize) -> Vec<System> {
    let mut systems = arguments.systems.clone();
    systems.retain(|system| match system {
        System::Empty | System::Server | System::Keyed | System::Client | System::Tls => arguments.server.is_some(),
        System::Rival(_) => arguments.rivals.is_some(),
        System::Grown => arguments.stored.is_some(),
        System::Probe | System::BareLog | System::Library => true,
    });
    let first = round % systems.len().max(1);
    systems.rotate_left(first);
    systems
}

/// A system to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum System {
    /// Only write and sync.
    Probe,
    /// The probe with checksums, version checks and request checks.
    BareLog,
    /// The embedded store in this process.
    Library,
    /// The same on a store that already has many events.
    Grown,
    /// A handler that only reads and responds, in a process of its own, over loopback.
    Empty,
    /// The real server in a process of its own, over loopback, with a connection per writer.
    Server,
    /// The same with credentials: every request has a key.
    Keyed,
    /// The server through one Rust client that all writers share.
    Client,
    /// The same over TLS, on persistent connections.
    Tls,
    /// Another event store.
    Rival(Rival),
}

impl System {
    const OURS: [Self; 9] = [
        Self::Probe,
        Self::BareLog,
        Self::Library,
        Self::Grown,
        Self::Empty,
        Self::Server,
        Self::Keyed,
        Self::Client,
        Self::Tls,
    ];

    /// Returns all systems, in the order of the tables.
    fn all() -> Vec<Self> {
        Self::OURS.into_iter().chain(Rival::ALL.map(Self::Rival)).collect()
    }

    /// Returns its name on the command line.
    fn word(self) -> &'static str {
        match self {
            Self::Probe => "probe",
            Self::BareLog => "bare",
            Self::Library => "library",
            Self::Grown => "grown",
            Self::Empty => "empty",
            Self::Server => "server",
            Self::Keyed => "keyed",
            Self::Client => "client",
            Self::Tls => "tls",
            Self::Rival(rival) => rival.word(),
        }
    }

    /// Parses its name.
    fn parse(word: &str) -> Result<Self, String> {
        let found = Self::all().into_iter().find(|system| system.word() == word);
        found.ok_or_else(|| format!("there is no system {word:?}"))
    }

    async fn measure(self, row: &Row, cell: &Cell, folder: &Path, arguments: &Arguments) -> Result<Measured, String> {
        match (self, &arguments.server) {
            (Self::Probe, _) => probe::measure(row, cell, folder, Unchecked).await,
            (Self::BareLog, _) => probe::measure(row, cell, folder, Checked::default()).await,
            (Self::Library, _) => library::measure(row, cell, folder).await,
            (Self::Grown, _) => Err("there is no store with events".to_owned()),
            (Self::Empty, _) => empty::measure(row, cell, folder).await,
            (Self::Server, Some(program)) => server::measure(row, cell, folder, program).await,
            (Self::Keyed, Some(program)) => server::measure_keyed(row, cell, folder, program).await,
            (Self::Tls, Some(program)) => server::measure_tls(row, cell, folder, program).await,
            (Self::Client, Some(program)) => server::measure_client(row, cell, folder, program).await,
            (Self::Server | Self::Keyed | Self::Client | Self::Tls, None) => {
                Err("the server's program is not known".to_owned())
            }
            (Self::Rival(rival), _) => match &arguments.rivals {
                Some(programs) => rival.measure(row, cell, folder, programs).await,
                None => Err("the rivals' programs are not known".to_owned()),
            },
        }
    }
}

impl std::fmt::Display for System {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Rival(rival) => return rival.fmt(f),
            Self::Probe => "probe",
            Self::BareLog => "bare log",
            Self::Library => "library",
            Self::Grown => "library, many events stored",
            Self::Empty => "empty handler",
            Self::Server => "server",
            Self::Keyed => "server, with a key",
            Self::Client => "client, shared by all",
            Self::Tls => "client, over TLS",
        })
    }
}
