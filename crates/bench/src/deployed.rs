//! Measures a server as it is deployed: the cost of credentials and TLS, the load of followers, commits beside the widest append
//! conditions, the time for pages of a large store, and the server's own footprint.

pub mod crowd;
mod followers;
mod pages;
pub mod silent;
mod weight;
mod wide;

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cell::Cell;
use crate::row::{self, Parts, Target};
use crate::served::Served;
use crate::server;
use crate::workload::Row;

/// The first word of the command line.
pub const OPTION: &str = "server";

const USAGE: &str = "\
cargo xtask bench server [OPTIONS]

  --rounds N     rounds of the rows about commits (5); the median is printed
  --seconds S    measured seconds of each cell (1.5)
  --stored N     events of the store whose pages are rendered (10000000)
  --server P     the program annals
";

struct Arguments {
    rounds: usize,
    seconds: f64,
    stored: u64,
    server: PathBuf,
}

impl Arguments {
    fn parse(words: &[&str]) -> Result<Option<Self>, String> {
        let mut arguments = Self { rounds: 5, seconds: 1.5, stored: 10_000_000, server: PathBuf::new() };
        let mut words = words.iter();
        while let Some(option) = words.next() {
            if matches!(*option, "--help" | "-h") {
                return Ok(None);
            }
            let value = *words.next().ok_or_else(|| format!("{option} needs a value"))?;
            let wrong = || format!("{option} takes a number, not {value:?}");
            match *option {
                "--rounds" => arguments.rounds = value.parse().map_err(|_| wrong())?,
                "--seconds" => arguments.seconds = value.parse().map_err(|_| wrong())?,
                "--stored" => arguments.stored = value.parse().map_err(|_| wrong())?,
                "--server" => arguments.server = value.into(),
                other => return Err(format!("there is no option {other:?}\n\n{USAGE}")),
            }
        }
        if arguments.server.as_os_str().is_empty() {
            return Err(format!("--server is missing\n\n{USAGE}"));
        }
        // The server runs in another folder, so its path must be absolute.
        let program = arguments.server.canonicalize();
        arguments.server = program.map_err(|error| format!("{}: {error}", arguments.server.display()))?;
        Ok(Some(arguments))
    }
}

/// Measures what the command line selects, and prints it.
pub async fn run(words: &[&str]) -> Result<(), String> {
    let Some(arguments) = Arguments::parse(words)? else {
        print!("{USAGE}");
        return Ok(());
    };
    let folder = tempfile::tempdir_in(".").map_err(text)?;
    let place = folder.path().canonicalize().map_err(text)?;
    let mut parts = Parts::default();
    parts.note("commits with credentials and TLS", commits(&place, &arguments).await);
    parts.note("weight of the server", weight::measure(&place, &arguments.server).await);
    parts.note("followers of one aggregate each", followers::of_one_each(&place, &arguments.server).await);
    parts.note("followers of everything", followers::of_everything(&place, &arguments.server).await);
    parts.note("followers up to the limit", crowd::measure(&place, &arguments.server).await);
    parts.note("connections that say nothing", silent::measure(&place, &arguments.server).await);
    parts.note("commits beside wide conditions", wide::measure(&place, &arguments.server).await);
    parts.note("pages", pages::measure(&place, &arguments.server, arguments.stored).await);
    parts.end()
}

/// How commits are sent to the server.
#[derive(Clone, Copy)]
enum Sent {
    Plain,
    WithKey,
    ByClient,
    OverTls,
}

/// Measures commits with a key beside commits without one, and commits over TLS beside those of the same client without it. All
/// alternate, so that a slow phase of the machine does not affect only one of them.
async fn commits(place: &Path, arguments: &Arguments) -> Result<(), String> {
    const ALL: [Sent; 4] = [Sent::Plain, Sent::WithKey, Sent::ByClient, Sent::OverTls];
    const ROW: Row = Row { writers: 64, events: 1 };
    let mut rates = ALL.map(|_| Vec::new());
    for round in 0..arguments.rounds {
        for turn in 0..ALL.len() {
            let of = (round + turn) % ALL.len();
            let folder = tempfile::tempdir_in(place).map_err(text)?;
            let (cell, folder, program) = (Cell::new(arguments.seconds), folder.path(), &arguments.server);
            let measured = match ALL[of] {
                Sent::Plain => server::measure(&ROW, &cell, folder, program).await?,
                Sent::WithKey => server::measure_keyed(&ROW, &cell, folder, program).await?,
                Sent::ByClient => server::measure_client(&ROW, &cell, folder, program).await?,
                Sent::OverTls => server::measure_tls(&ROW, &cell, folder, program).await?,
            };
            rates[of].push(measured.events_per_second(&ROW, &cell));
        }
    }
    let [plain, with_key, by_client, over_tls] = rates.map(median);
    let row = "commits over HTTP with a credential ÷ without, 64 connections";
    row::ratio(row, "per second", with_key, plain, Target::AtLeast(0.97));
    let row = "commits over TLS on connections that are kept ÷ without TLS, one client";
    row::ratio(row, "per second", over_tls, by_client, Target::AtLeast(0.85));
    Ok(())
}

/// Starts the server on the store in `folder`, and waits until it is ready.
async fn start(folder: &Path, program: &Path) -> Result<Served, String> {
    // Opening a large store after a kill takes seconds.
    const READY_TRIES: u32 = 60_000;
    let served = Served::start(folder, |address| server::serve(program, folder, address)).await?;
    for _ in 0..READY_TRIES {
        if server::ready(served.address).await.is_ok_and(|status| status == 200) {
            return Ok(served);
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Err(format!("the server at {} was not ready in time", served.address))
}

fn process(served: &Served) -> Result<u32, String> {
    served.process_id().ok_or_else(|| "the server has ended".to_owned())
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(0.0)
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
