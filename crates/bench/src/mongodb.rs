//! Measures the store on MongoDB beside the bare driver, on one mongod: one insert of the same document with the same five indexes, and
//! finds of the same documents. Rounds are interleaved, and the ratio is what is comparable across machines. Snapshots and queries are
//! also measured on the embedded store.

mod backends;
mod bare;
mod figures;
mod lag;
mod processes;
mod queries;
mod reads;
mod records;
mod sample;
mod snapshots;
mod steps;
mod writes;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use annals_core::{DEFAULT_SCOPE, DEFAULT_TENANT, EventLog, Store};
use annals_mongodb::{MongoStore, Options};
use mongodb::Client;
use mongodb::options::ClientOptions;

use crate::machine;
use figures::Figures;

/// The first word of the command line.
pub const OPTION: &str = "mongodb";

const USAGE: &str = "\
cargo xtask bench mongodb [OPTIONS]

  --rounds N     rounds of everything (5); medians are taken over them
  --seconds S    measured seconds of each cell (2)
  --corpus N     commits of the log that is read (40000)
  --snapshots N  snapshots that are queried (1000000)
  --history N    commits of an aggregate that is loaded (1000)
  --only LIST    only these parts: writes,lag,reads,records,processes,snapshots,queries
  --callers LIST callers of the part `writes` (1,8,64,256)
  --json FILE    every figure of every round
  --url URL      a replica set that may be written to, instead of a mongod of its own
";

/// Connections of the bare driver: at least as many as there are callers.
const POOL: u32 = 300;

/// The options of the command line.
pub struct Arguments {
    rounds: usize,
    seconds: f64,
    corpus: u64,
    snapshots: u64,
    history: u64,
    only: Vec<String>,
    callers: Vec<usize>,
    json: Option<PathBuf>,
    url: String,
}

impl Arguments {
    fn parse(words: &[&str]) -> Result<Option<Self>, String> {
        let only =
            ["writes", "lag", "reads", "records", "processes", "snapshots", "queries"].map(str::to_owned).to_vec();
        let callers = vec![1, 8, 64, 256];
        let (json, url) = (None, String::new());
        let (corpus, snapshots, history) = (40_000, 1_000_000, 1_000);
        let mut arguments = Self { rounds: 5, seconds: 2.0, corpus, snapshots, history, only, callers, json, url };
        let mut words = words.iter();
        while let Some(option) = words.next() {
            if matches!(*option, "--help" | "-h") {
                return Ok(None);
            }
            let value = *words.next().ok_or_else(|| format!("{option} needs a value"))?;
            let wrong = |_| format!("{option} takes a number, not {value:?}");
            match *option {
                "--rounds" => arguments.rounds = value.parse().map_err(wrong)?,
                "--seconds" => arguments.seconds = value.parse().map_err(|_| format!("{option}: {value:?}"))?,
                "--corpus" => arguments.corpus = value.parse().map_err(wrong)?,
                "--snapshots" => arguments.snapshots = value.parse().map_err(wrong)?,
                "--history" => arguments.history = value.parse().map_err(wrong)?,
                "--only" => arguments.only = value.split(',').map(str::to_owned).collect(),
                "--callers" => {
                    arguments.callers = value.split(',').map(str::parse).collect::<Result<_, _>>().map_err(wrong)?
                }
                "--json" => arguments.json = Some(value.into()),
                "--url" => arguments.url = value.to_owned(),
                other => return Err(format!("there is no option {other:?}\n\n{USAGE}")),
            }
        }
        if arguments.snapshots == 0 || arguments.history == 0 {
            return Err("--snapshots and --history take a number above 0".to_owned());
        }
        if arguments.url.is_empty() {
            return Err("no --url; `cargo xtask bench mongodb` starts a mongod and gives it".to_owned());
        }
        Ok(Some(arguments))
    }

    fn wants(&self, part: &str) -> bool {
        self.only.iter().any(|only| only == part)
    }

    fn time(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }
}

/// Measures what the command line selects, and prints it.
pub async fn run(words: &[&str]) -> Result<(), String> {
    if let Some((&processes::WRITES, words)) = words.split_first() {
        return processes::obey(words).await;
    }
    let Some(arguments) = Arguments::parse(words)? else {
        print!("{USAGE}");
        return Ok(());
    };
    let place = Place::connect(&arguments.url).await?;
    let mut figures = Figures::default();
    if arguments.wants("writes") {
        place.check_same_document().await?;
    }
    for round in 0..arguments.rounds {
        eprintln!("round {} of {}", round + 1, arguments.rounds);
        if arguments.wants("writes") {
            writes::measure(&place, round, &arguments, &mut figures).await?;
        }
        if arguments.wants("lag") {
            lag::measure(&place, round, &arguments, &mut figures).await?;
        }
        if arguments.wants("records") {
            records::measure(&place, round, &arguments, &mut figures).await?;
        }
        if arguments.wants("processes") {
            processes::measure(&place, round, &arguments, &mut figures).await?;
        }
        if arguments.wants("snapshots") {
            snapshots::measure(&place, round, &arguments, &mut figures).await?;
        }
    }
    if arguments.wants("reads") {
        reads::measure(&place, &arguments, &mut figures).await?;
    }
    if arguments.wants("queries") {
        queries::measure(&place, &arguments, &mut figures).await?;
    }
    let machine = machine::describe(std::path::Path::new("."));
    print!("{}", figures.markdown(&machine, &arguments));
    arguments.json.as_deref().map_or(Ok(()), |file| figures.write_json(file, &machine))
}

/// A mongod, and the databases that are created in it.
struct Place {
    client: Client,
    url: String,
}

impl Place {
    async fn connect(url: &str) -> Result<Self, String> {
        let mut options = ClientOptions::parse(url).await.map_err(text)?;
        options.max_pool_size = Some(POOL);
        let client = Client::with_options(options).map_err(text)?;
        Ok(Self { client, url: url.to_owned() })
    }

    /// Returns the URL with a database in it.
    fn url_of(&self, database: &str) -> String {
        let (place, query) = self.url.split_once('?').unwrap_or((&self.url, ""));
        format!("{}/{database}?{query}", place.trim_end_matches('/'))
    }

    /// Opens a store in a new database of this name, and waits until its sequencer works.
    async fn store(&self, name: &str) -> Result<Opened, String> {
        self.client.database(name).drop().await.map_err(text)?;
        let url = self.url_of(name);
        let store = MongoStore::open(&url, Options { at_step: steps::note, ..Options::default() })
            .await
            .map_err(|error| error.to_string())?;
        let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).map_err(|error| error.to_string())?;
        let first = sample::commit("warm-up", 0, 0).wait_until(annals_core::Reached::Logged);
        log.commit(first).await.map_err(|error| error.to_string())?;
        Ok(Opened { store, log, name: name.to_owned() })
    }

    /// Closes the store and drops its database.
    async fn close(&self, opened: Opened) -> Result<(), String> {
        opened.store.close().await;
        self.client.database(&opened.name).drop().await.map_err(text)
    }

    /// Checks that the bare insert writes what the store writes: the same fields in the same order, of the same size.
    async fn check_same_document(&self) -> Result<(), String> {
        let opened = self.store("annals_bench_same").await?;
        let commits = self.client.database(&opened.name).collection::<mongodb::bson::RawDocumentBuf>(bare::COLLECTION);
        let stored = commits.find_one(mongodb::bson::doc! {}).await.map_err(text)?.ok_or("nothing was stored")?;
        let ours = bare::document("warm-up", 1, 0)?;
        let names = |document: &mongodb::bson::RawDocument| {
            document.iter().flatten().map(|(key, _)| key.as_str().to_owned()).collect::<Vec<_>>()
        };
        let (is, due) = (names(&ours), names(&stored));
        if is != due || ours.as_bytes().len() != stored.as_bytes().len() {
            let sizes = (ours.as_bytes().len(), stored.as_bytes().len());
            return Err(format!("the bare document differs from the store's: {is:?} {due:?} {sizes:?}"));
        }
        eprintln!("a commit's document has {} bytes", ours.as_bytes().len());
        self.close(opened).await
    }
}

/// An open store.
struct Opened {
    store: MongoStore,
    log: Arc<dyn EventLog>,
    name: String,
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
