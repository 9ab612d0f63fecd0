//! Reads a map that no process has open, without changing a byte of its file: what opening would write is kept in memory.

use std::io;
use std::sync::Arc;

use annals_core::OpenError;
use redb::Database;

use super::dump::Held;
use super::file::MapFile;
use super::generation::Marks;
use super::journal::Torn;
use super::open::{self, Damage, FILE, Failure, Opened};
use super::snapshot::{Below, Snapshot};
use crate::disk::{Above, Disk, DiskFile, Open};
use crate::refused::cannot_open;

/// The outcome of looking at a map.
pub(crate) enum Looked {
    /// There is no map, and no journal either.
    Missing,
    /// The map or its journal is damaged.
    Damaged(Damage),
    /// The map can be read as long as this value lives.
    Open(Map),
}

/// A map that can be read.
pub(crate) struct Map {
    /// Its entries.
    pub(crate) view: Held,
    /// The bytes of its file.
    pub(crate) bytes: u64,
    /// Incomplete batches at the end of its journal.
    pub(crate) torn: Vec<Torn>,
    /// Keeps the map open.
    _database: Database,
}

/// Opens the map in this folder for reading. Verifies the checksum of every page, and the marks as far as they are known.
///
/// # Errors
/// `newer_format`, or why the file cannot be read.
pub(crate) fn look(disk: &dyn Disk, dir: &str, marks: &Marks) -> Result<Looked, OpenError> {
    let path = format!("{dir}/{FILE}");
    let looked = match disk.open(&path, Open::Read) {
        Ok(file) => opened(file, disk, dir, marks).map(Looked::Open),
        Err(error) if error.kind() == io::ErrorKind::NotFound => open::missing(disk, dir).map(|()| Looked::Missing),
        Err(error) => return Err(cannot_open(&path, &error)),
    };
    match looked {
        Ok(looked) => Ok(looked),
        Err(Failure::Damaged(damage)) => Ok(Looked::Damaged(damage)),
        Err(Failure::Refused(error)) => Err(error),
    }
}

fn opened(file: Arc<dyn DiskFile>, disk: &dyn Disk, dir: &str, marks: &Marks) -> Result<Map, Failure> {
    let path = &format!("{dir}/{FILE}");
    let refused = |error: io::Error| Failure::Refused(cannot_open(path, &error));
    let bytes = file.length().map_err(refused)?;
    let above = MapFile { file: Arc::new(Above::of(file).map_err(refused)?), patience: Arc::default() };
    if !above.is_whole().map_err(refused)? {
        return Err(open::damaged(path, "it was truncated"));
    }
    above.end_at_a_page().map_err(refused)?;
    let Opened { database, torn, .. } = open::on(above, disk, dir, marks)?;
    let below = Below::take(&database).map_err(|error| open::damaged(path, &error.to_string()))?;
    Ok(Map { view: Arc::new(Snapshot::of(below)), bytes, torn, _database: database })
}
