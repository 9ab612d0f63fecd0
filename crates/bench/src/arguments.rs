//! The command line.

use std::path::PathBuf;

use crate::System;
use crate::workload::{Row, WRITERS};

/// The output of `--help`.
pub const USAGE: &str = "\
cargo xtask bench [OPTIONS]
cargo xtask bench conditions --no-server     commits of others beside the widest append conditions
cargo xtask bench PART --help                mongodb, processing, workflow, partners, letters, browse, kafka or server
cargo xtask bench features [PARTS]           all of these but mongodb, and fills docs/benchmarks-features.md

  --rounds N       rounds of all rows and systems (5); medians are taken over them
  --seconds S      measured seconds of each cell, behind a fifth of it to warm up (1.5)
  --rest S         seconds of rest before each cell (0), for a disk whose allowance for bursts runs out
  --rows LIST      writers x events of a commit, for example 1x1,64x10 (1x1,1x10,8x1,8x10,64x1,64x10)
  --folder PATH    where the stores are put (beside the build); the disk under it is what is measured
  --json FILE      every cell of every round
  --no-reads       leave reading, opening and following out
  --no-server      leave everything over HTTP out
  --systems LIST   only these, for example library,server (probe,bare,library,empty,server,keyed,client,tls; with --stored, grown; with --rivals,
                   tephra,tephra-threads,tephra-server,tephra-socket,umadb,umadb-server)
  --corpus N       events that are stored and read, a multiple of 2,000 (2,000,000)
  --opened LIST    also open stores of so many events, for example 10000000,40000000
  --stored N       also the library behind N events, a multiple of 2,000
  --rivals         also Tephra and UmaDB; the first time this takes long, because they are built
";

/// The checked options.
pub struct Arguments {
    pub rounds: usize,
    pub seconds: f64,
    pub rest: f64,
    pub rows: Vec<Row>,
    pub folder: PathBuf,
    pub json: Option<PathBuf>,
    pub reads: bool,
    /// The path of the program `annals`.
    pub server: Option<PathBuf>,
    /// Events in the log that is read.
    pub corpus: usize,
    /// Events in the stores that are only opened.
    pub opened: Vec<usize>,
    /// Events in the store after which the library is measured; `None` leaves this out.
    pub stored: Option<usize>,
    /// The folder of the rivals' programs; `None` leaves the rivals out.
    pub rivals: Option<PathBuf>,
    pub systems: Vec<System>,
}

/// [`Arguments::corpus`] is a multiple of this, so that every aggregate that is read is complete.
const CORPUS_STEP: usize = 2_000;

impl Arguments {
    /// Parses the options. Returns `None` if help is requested.
    pub fn parse(mut words: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut arguments = Self {
            rounds: 5,
            seconds: 1.5,
            rest: 0.0,
            rows: WRITERS.iter().flat_map(|&writers| [1, 10].map(|events| Row { writers, events })).collect(),
            folder: beside_the_build(),
            json: None,
            reads: true,
            server: None,
            corpus: 2_000_000,
            opened: Vec::new(),
            stored: None,
            rivals: None,
            systems: System::all(),
        };
        let mut without_server = false;
        while let Some(option) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{option} needs a value"));
            match option.as_str() {
                "--help" | "-h" => return Ok(None),
                "--rounds" => arguments.rounds = positive(&option, &value()?)?,
                "--seconds" => arguments.seconds = positive(&option, &value()?)?,
                "--rest" => arguments.rest = positive(&option, &value()?)?,
                "--rows" => arguments.rows = value()?.split(',').map(Row::parse).collect::<Result<_, _>>()?,
                "--folder" => arguments.folder = value()?.into(),
                "--json" => arguments.json = Some(value()?.into()),
                // The server runs in another folder, so its path must be absolute.
                "--server" => {
                    arguments.server = Some(existing(&value()?)?);
                }
                "--rivals" => arguments.rivals = Some(existing(&value()?)?),
                "--corpus" => arguments.corpus = whole(&option, &value()?)?,
                "--opened" => {
                    arguments.opened =
                        value()?.split(',').map(|text| whole(&option, text)).collect::<Result<_, _>>()?;
                }
                "--stored" => arguments.stored = Some(whole(&option, &value()?)?),
                "--systems" => {
                    arguments.systems = value()?.split(',').map(System::parse).collect::<Result<_, _>>()?;
                }
                "--no-reads" => arguments.reads = false,
                "--no-server" => without_server = true,
                other => return Err(format!("there is no option {other:?}\n\n{USAGE}")),
            }
        }
        if without_server {
            arguments.server = None;
        }
        Ok(Some(arguments))
    }
}

fn positive<T: std::str::FromStr + PartialOrd + Default>(option: &str, text: &str) -> Result<T, String> {
    let number: Option<T> = text.parse().ok().filter(|number| *number > T::default());
    number.ok_or_else(|| format!("{option} takes a number above 0, not {text:?}"))
}

/// Parses a number of events that makes every aggregate of the corpus complete.
fn whole(option: &str, text: &str) -> Result<usize, String> {
    let events: usize = positive(option, text)?;
    if events.is_multiple_of(CORPUS_STEP) {
        Ok(events)
    } else {
        Err(format!("{option} takes a multiple of {CORPUS_STEP}, not {events}"))
    }
}

fn existing(path: &str) -> Result<PathBuf, String> {
    std::fs::canonicalize(path).map_err(|error| format!("{path}: {error}"))
}

fn beside_the_build() -> PathBuf {
    let program = std::env::current_exe().ok();
    program.as_deref().and_then(std::path::Path::parent).map_or_else(|| PathBuf::from("."), PathBuf::from)
}
