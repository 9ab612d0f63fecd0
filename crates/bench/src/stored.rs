//! Measures a store that is filled, killed, opened and read in processes of its own, so that what one measurement leaves in memory does
//! not affect the next. [`crate::reads`] starts them and collects their figures.

mod annals;
mod child;
mod figures;
mod page_cache;
#[cfg(feature = "rivals")]
mod tephra;
#[cfg(feature = "rivals")]
mod tephra_server;
#[cfg(feature = "rivals")]
mod umadb;
#[cfg(feature = "rivals")]
mod umadb_server;

use std::path::Path;
use std::time::Instant;

use tokio::sync::mpsc::UnboundedSender;

use crate::corpus::Commit;
use crate::served::Served;

pub use child::{OPTION, Task, answer, obey};
pub use figures::{FIGURES, Figure, MEMORY, OPEN};

/// The operations that a store must have, in this process or over loopback. Everything that is read is converted to the form that a
/// caller gets.
pub trait Reads: Clone + Send + Sync + 'static {
    /// Whether [`follow`](Self::follow) is implemented.
    const FOLLOWS: bool = true;

    /// Commits, and returns when the commit is durable.
    fn append(&self, commit: Commit) -> impl Future<Output = Result<(), String>> + Send;

    /// Reads everything, with owned events for the caller if the store can. Returns the number of events.
    fn read_all(&self) -> impl Future<Output = Result<usize, String>> + Send;

    /// Returns whether [`read_all`](Self::read_all) gives the caller owned events.
    fn gives(&self) -> bool {
        true
    }

    /// Returns whether [`lend_all`](Self::lend_all) is implemented.
    fn lends(&self) -> bool {
        false
    }

    /// Reads everything, with each event borrowed until the next one. Returns the number of events.
    fn lend_all(&self) -> impl Future<Output = Result<usize, String>> + Send {
        self.read_all()
    }

    /// Reads one aggregate. Returns the number of its events.
    fn read_aggregate(&self, id: &str) -> impl Future<Output = Result<usize, String>> + Send;

    /// Reads the events with this tag. Returns their number.
    fn read_tagged(&self, tag: &str) -> impl Future<Output = Result<usize, String>> + Send;

    /// Follows from the current end. Reports once when it is in place, and then the arrival of each of `events` events.
    fn follow(&self, events: usize, seen: UnboundedSender<Instant>) -> impl Future<Output = Result<(), String>> + Send;
}

/// A store in this process.
pub trait Stored: Reads {
    /// Opens the store in `folder`, or creates it.
    fn open(folder: &Path) -> Result<Self, String>;

    /// Closes the store. Returns how many events its closed part has, and its bytes on disk with all indexes. A store without a closed
    /// part returns all of it.
    fn weigh(self, folder: &Path) -> impl Future<Output = Result<Weight, String>> + Send;
}

/// A store behind its server.
pub trait Remote: Reads {
    /// Starts the server on the store in `folder`, with its program or the folder it is in, and requests nothing before it responds.
    fn start(folder: &Path, program: &Path) -> impl Future<Output = Result<Self, String>> + Send;

    /// Returns the server.
    fn server(&self) -> Option<&Served>;
}

/// Events and the bytes they take.
pub struct Weight {
    pub events: u64,
    pub bytes: u64,
}

/// The kind of a store that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Annals.
    Annals,
    /// Tephra as a library.
    Tephra,
    /// UmaDB's engine.
    Umadb,
}

impl Kind {
    /// Our store and its rivals.
    pub const ALL: [Self; 3] = [Self::Annals, Self::Tephra, Self::Umadb];

    /// Parses the name.
    pub fn parse(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|kind| kind.to_string() == name);
        found.ok_or_else(|| format!("there is no store {name:?}"))
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Annals => "Annals",
            Self::Tephra => "Tephra",
            Self::Umadb => "UmaDB",
        })
    }
}

/// Returns the bytes on disk of all files under `folder` that `counts` selects.
fn disk_bytes(folder: &Path, counts: &impl Fn(&str) -> bool) -> std::io::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    /// The unit in which the system counts blocks, whatever the file system's own is.
    const BLOCK: u64 = 512;
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            bytes += disk_bytes(&entry.path(), counts)?;
        } else if entry.file_name().to_str().is_some_and(counts) {
            bytes += entry.metadata()?.blocks() * BLOCK;
        }
    }
    Ok(bytes)
}
