//! Measures reads of stored events. Every store gets the same events and is killed. It is then opened and read in processes of its own,
//! in turn.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use crate::arguments::Arguments;
use crate::corpus::{COMMIT_EVENTS, Corpus};
use crate::stored::{self, Kind, Task};

/// The figures of one process.
pub struct Found {
    pub round: usize,
    pub kind: Kind,
    /// Whether the store was read through its server.
    pub served: bool,
    /// Events in the store.
    pub events: usize,
    /// The figures it has, by name.
    pub figures: std::collections::BTreeMap<String, f64>,
}

/// Fills a store of each kind and reads it in each round, as a library and through its server.
pub async fn measure(kinds: &[Kind], arguments: &Arguments) -> Result<Vec<Found>, String> {
    let corpus = Corpus { events: arguments.corpus, commit_events: COMMIT_EVENTS };
    let mut found = Vec::new();
    let mut stores = Vec::new();
    for &kind in kinds {
        let store = Filled::new(kind, corpus, arguments)?;
        found.push(store.run(0, Task::Fill).await?);
        store.run(0, Task::Settle).await?;
        stores.push(store);
    }
    for round in 0..arguments.rounds {
        for store in &stores {
            found.push(store.run(round, Task::Read).await?);
            if store.program.is_some() {
                found.push(store.run(round, Task::Serve).await?);
            }
        }
        // The next round begins with another store.
        stores.rotate_left(1);
    }
    for store in stores {
        found.push(store.run(0, Task::Weigh).await?);
    }
    let single = Corpus { events: arguments.corpus / 2, commit_events: 1 };
    for &kind in kinds {
        let store = Filled::new(kind, single, arguments)?;
        store.run(0, Task::Fill).await?;
        found.push(store.run(0, Task::Weigh).await?);
    }
    Ok(found)
}

/// Opens stores of each size of [`Arguments::opened`] in each round. UmaDB is left out: it reads nothing before the first request.
pub async fn opened(kinds: &[Kind], arguments: &Arguments) -> Result<Vec<Found>, String> {
    let mut found = Vec::new();
    for &events in &arguments.opened {
        for &kind in kinds.iter().filter(|kind| **kind != Kind::Umadb) {
            let store = Filled::new(kind, Corpus { events, commit_events: COMMIT_EVENTS }, arguments)?;
            store.run(0, Task::Fill).await?;
            store.run(0, Task::Settle).await?;
            for round in 0..arguments.rounds {
                found.push(store.run(round, Task::Open).await?);
            }
        }
    }
    Ok(found)
}

/// Returns a store of ours with as many events as [`Arguments::stored`] says.
pub async fn grown(arguments: &Arguments) -> Result<Option<Filled>, String> {
    let Some(events) = arguments.stored else { return Ok(None) };
    let store = Filled::new(Kind::Annals, Corpus { events, commit_events: COMMIT_EVENTS }, arguments)?;
    store.run(0, Task::Fill).await?;
    store.run(0, Task::Settle).await?;
    Ok(Some(store))
}

/// A store with its content.
pub struct Filled {
    kind: Kind,
    corpus: Corpus,
    folder: TempDir,
    /// The program of its server, if that is measured.
    program: Option<PathBuf>,
}

impl Filled {
    fn new(kind: Kind, corpus: Corpus, arguments: &Arguments) -> Result<Self, String> {
        let folder = &arguments.folder;
        let folder = tempfile::tempdir_in(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let program = if kind == Kind::Annals { &arguments.server } else { &arguments.rivals };
        Ok(Self { kind, corpus, folder, program: program.clone() })
    }

    /// Returns its folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs a process of this program, reads its figures and kills it: no store is ever closed cleanly before it is opened.
    async fn run(&self, round: usize, task: Task) -> Result<Found, String> {
        let Self { kind, corpus, .. } = self;
        eprintln!(
            "round {} {kind}: {} {} events, {} per commit",
            round + 1,
            task.word(),
            corpus.events,
            corpus.commit_events
        );
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = Command::new(program);
        command.args([stored::OPTION, task.word(), &kind.to_string()]).arg(self.folder.path());
        command.args([corpus.events.to_string(), corpus.commit_events.to_string()]);
        command.arg(self.program.as_deref().unwrap_or(Path::new("")));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().map_err(|error| error.to_string())?;
        let output = process.stdout.take().ok_or("a process without output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).await.map_err(|error| error.to_string())?;
        if task == Task::Serve {
            // The process has a server to kill, and does so when its input ends.
            drop(process.stdin.take());
            process.wait().await.map_err(|error| error.to_string())?;
        } else {
            // SIGKILL. A process that failed has already ended and reported why.
            process.kill().await.map_err(|error| error.to_string())?;
        }
        if line.is_empty() {
            return Err(format!("{kind} could not {} its events; what it says is above", task.word()));
        }
        let (served, events) = (task == Task::Serve, corpus.events);
        Ok(Found { round, kind: *kind, served, events, figures: stored::answer(&line)? })
    }
}
