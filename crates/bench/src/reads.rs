//! Reading stored events: every store gets the same ones, is killed, and is then opened and read in processes of its own, in turn.

use std::path::Path;
use std::process::Stdio;

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use crate::corpus::{COMMIT_EVENTS, Corpus};
use crate::stored::{self, Kind, Task};

/// What one process found.
pub struct Found {
    pub round: usize,
    pub kind: Kind,
    /// The figures it has, by name.
    pub figures: std::collections::BTreeMap<String, f64>,
}

/// Fills a store of each kind with so many events, and reads them in so many rounds.
pub async fn measure(kinds: &[Kind], folder: &Path, events: usize, rounds: usize) -> Result<Vec<Found>, String> {
    let corpus = Corpus { events, commit_events: COMMIT_EVENTS };
    let mut found = Vec::new();
    let mut folders = Vec::new();
    for &kind in kinds {
        let folder = new_folder(folder)?;
        found.push(run(0, Task::Fill, kind, folder.path(), corpus).await?);
        folders.push((kind, folder));
    }
    for round in 0..rounds {
        for _ in kinds {
            let (kind, folder) = &folders[0];
            found.push(run(round, Task::Read, *kind, folder.path(), corpus).await?);
            folders.rotate_left(1);
        }
        // The next round begins with another.
        folders.rotate_left(1);
    }
    for (kind, folder) in folders {
        found.push(run(0, Task::Weigh, kind, folder.path(), corpus).await?);
        drop(folder);
    }
    let single = Corpus { events: events / 2, commit_events: 1 };
    for &kind in kinds {
        let folder = new_folder(folder)?;
        run(0, Task::Fill, kind, folder.path(), single).await?;
        found.push(run(0, Task::Weigh, kind, folder.path(), single).await?);
    }
    Ok(found)
}

fn new_folder(folder: &Path) -> Result<TempDir, String> {
    tempfile::tempdir_in(folder).map_err(|error| format!("{}: {error}", folder.display()))
}

/// Runs a process of this program, reads what it found and kills it: no store is ever closed in an orderly way before it is opened.
async fn run(round: usize, task: Task, kind: Kind, folder: &Path, corpus: Corpus) -> Result<Found, String> {
    eprintln!(
        "round {} {kind}: {} {} events, {} per commit",
        round + 1,
        task.word(),
        corpus.events,
        corpus.commit_events
    );
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    command.args([stored::OPTION, task.word(), &kind.to_string()]).arg(folder);
    command.args([corpus.events.to_string(), corpus.commit_events.to_string()]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut process = command.spawn().map_err(|error| error.to_string())?;
    let output = process.stdout.take().ok_or("a process without output")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line).await.map_err(|error| error.to_string())?;
    // SIGKILL. One that failed has ended already and said why.
    process.kill().await.map_err(|error| error.to_string())?;
    if line.is_empty() {
        return Err(format!("{kind} could not {} its events; what it says is above", task.word()));
    }
    Ok(Found { round, kind, figures: stored::answer(&line)? })
}
