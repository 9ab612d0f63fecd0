//! Opens the map's file, or creates it.
//!
//! ```text
//! tenants/{tenant}/_engine/map.redb                   no scope can be called _engine: names begin with a letter or digit
//!                          journal.0 · journal.1      what is to be moved into it, as journal.rs says; none after a clean end, when
//!                                                     the map does not name them any more
//! ```

use std::fmt;
use std::io;
use std::sync::Arc;

use annals_core::{OpenError, StoreError};
use redb::{Database, DatabaseError, ReadableDatabase, StorageError, TableDefinition, TableError};

use super::file::{MapFile, Patience};
use super::generation::{self, Generation, Marks};
use super::journal::Torn;
use super::recent::Recent;
use super::{Space, journal, moves};
use crate::disk::{Disk, Open};
use crate::refused::{cannot_open, newer_format};
use crate::whole::UNFINISHED;

/// The only table of entries.
pub(super) const MAP: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("map");
/// The name of the map's file.
pub(crate) const FILE: &str = "map.redb";
/// The key that holds the format.
pub(crate) const FORMAT_KEY: &[u8] = &[Space::Engine as u8, b'f'];
/// The format of the map's keys and values, of all spaces together, and of its journal. Format 1 had no journal, so a version that knows
/// only format 1 would not read it.
pub(super) const MAP_FORMAT: u32 = 2;
/// How much of the file is cached in memory.
const CACHE_BYTES: usize = 32 * 1024 * 1024;

/// Why a map could not be opened.
pub(crate) enum Failure {
    /// The map is damaged; the store opens without it.
    Damaged(Damage),
    /// The store does not open.
    Refused(OpenError),
}

/// Damage of a map or its journal: bytes that are missing or not as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Damage {
    /// The file or the folder, relative to the store's folder.
    pub(crate) file: String,
    /// The offset in the file.
    pub(crate) offset: Option<u64>,
    /// What is wrong, as a clause about the file.
    pub(crate) what: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.offset {
            Some(offset) => write!(f, "{} at offset {offset}: {}", self.file, self.what),
            None => write!(f, "{}: {}", self.file, self.what),
        }
    }
}

impl Damage {
    /// Returns the damage of a map that was created and no longer exists.
    pub(crate) fn lost(dir: &str) -> Self {
        let what = "it is missing; records or streams were written, and tenant.json says that it was created";
        Self { file: format!("{dir}/{FILE}"), offset: None, what: what.to_owned() }
    }
}

impl From<Damage> for StoreError {
    fn from(damage: Damage) -> Self {
        Self::RecordsDamaged(damage.to_string())
    }
}

/// An open map that holds everything its journal held. No journal precedes it any more.
pub(super) struct Opened {
    pub(super) database: Database,
    /// The number of the last batch.
    pub(super) last: u64,
    /// The generation that the map now holds.
    pub(super) generation: u64,
    /// What was skipped at the end of the journal.
    pub(super) torn: Vec<Torn>,
}

/// Opens the map if there is one, moves the journal's content into it, and removes the journal. Every page is read and its checksum
/// verified, so damage is found now and never mistaken for data.
pub(super) fn existing(
    disk: &Arc<dyn Disk>,
    dir: &str,
    marks: &Marks,
    generation: &Generation,
    patience: &Arc<Patience>,
) -> Result<Option<Opened>, Failure> {
    let path = format!("{dir}/{FILE}");
    let refused = |error: &io::Error| Failure::Refused(cannot_open(&path, error));
    let file = match disk.open(&path, Open::Write) {
        Ok(file) => MapFile { file, patience: patience.clone() },
        Err(error) if error.kind() == io::ErrorKind::NotFound => return missing(&**disk, dir).map(|()| None),
        Err(error) => return Err(refused(&error)),
    };
    if !file.is_whole().map_err(|error| refused(&error))? {
        return Err(damaged(&path, "it was truncated"));
    }
    file.end_at_a_page().and_then(|()| file.make_durable_again()).map_err(|error| refused(&error))?;
    // A copy that was interrupted while the map was given a name of its own (disk/real/links.rs).
    let _ = disk.remove(&format!("{path}{UNFINISHED}"));
    disk.sync_dir(dir).map_err(|error| refused(&error))?;
    let opened = on(file, &**disk, dir, marks)?;
    generation.opened(opened.generation, marks.generation).map_err(|error| refused(&error))?;
    journal::remove_all(&**disk, dir).map_err(|error| Failure::Refused(cannot_open(dir, &error)))?;
    Ok(Some(opened))
}

/// Checks that nothing was ever written if there is no map. A journal is created only after the map is durable, so a journal without a
/// map is damage.
pub(super) fn missing(disk: &dyn Disk, dir: &str) -> Result<(), Failure> {
    let names = disk.list(dir).map_err(|error| Failure::Refused(cannot_open(dir, &error)))?;
    match names.iter().any(|name| journal::FILES.contains(&name.as_str())) {
        false => Ok(()),
        true => Err(damaged(&format!("{dir}/{FILE}"), "it is missing, but its journal is there")),
    }
}

/// Opens the map of this folder on this file, verifies the checksum of every page, and moves the journal into it. The journal's files
/// remain, but the map no longer names them.
///
/// A map whose version recorded no owner gets the mark with its next write.
pub(super) fn on(
    file: impl redb::StorageBackend,
    disk: &dyn Disk,
    dir: &str,
    marks: &Marks,
) -> Result<Opened, Failure> {
    let path = &format!("{dir}/{FILE}");
    let database = Database::builder()
        .set_cache_size(CACHE_BYTES)
        .set_check_integrity_on_open(true)
        .create_with_backend(file)
        .map_err(|error| not_opened(path, error))?;
    check_format(path, &database)?;
    let noted = moves::noted(&database).map_err(|error| damaged(path, &error.to_string()))?;
    if let Some(why) = marks.refused(noted.owner, noted.generation) {
        return Err(damaged(path, &why));
    }
    let found = journal::read(disk, dir, noted.begun, noted.moved)?;
    journal::check_unnamed(disk, dir, noted.begun, found.last)?;
    let mut generation = noted.generation;
    if noted.begun.is_some() {
        let next = marks.generation.map(generation::next);
        generation = next.unwrap_or(generation);
        let mut newest = Recent::default();
        found.writes.iter().for_each(|write| drop(newest.set(write)));
        moves::end(&database, newest.iter(), found.last, next).map_err(|error| match io_error(error) {
            error if error.kind() == io::ErrorKind::Other => damaged(path, &error.to_string()),
            error => Failure::Refused(cannot_open(path, &error)),
        })?;
    }
    Ok(Opened { database, last: found.last, generation, torn: found.torn })
}

/// Creates an empty map, under a temporary name until it is complete.
pub(super) fn new(disk: &Arc<dyn Disk>, dir: &str, patience: &Arc<Patience>) -> io::Result<Database> {
    let path = format!("{dir}/{FILE}");
    let unfinished = format!("{path}{UNFINISHED}");
    disk.create_dir(dir)?;
    match disk.remove(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = disk.open(&unfinished, Open::Create)?;
    let file = MapFile { file, patience: patience.clone() };
    let database = Database::builder().set_cache_size(CACHE_BYTES).create_with_backend(file).map_err(io_error)?;
    note_format(&database).map_err(io_error)?;
    disk.rename(&unfinished, &path)?;
    disk.sync_dir(dir)?;
    Ok(database)
}

/// Upgrades a map of an older format to the current one; nothing else in it changes.
pub(super) fn upgrade(database: &Database) -> io::Result<()> {
    match format(database).map_err(io_error)? {
        Some(MAP_FORMAT) => Ok(()),
        _ => note_format(database).map_err(io_error),
    }
}

fn note_format(database: &Database) -> Result<(), redb::Error> {
    let mut write = database.begin_write()?;
    write.set_two_phase_commit(true);
    write.open_table(MAP)?.insert(FORMAT_KEY, &MAP_FORMAT.to_be_bytes()[..])?;
    write.commit()?;
    Ok(())
}

/// Returns the I/O error inside redb's error, if there is one: a caller that learns of a full disk can make room.
pub(super) fn io_error(error: impl Into<redb::Error>) -> io::Error {
    match error.into() {
        redb::Error::Io(error) => error,
        other => io::Error::other(other.to_string()),
    }
}

fn format(database: &Database) -> Result<Option<u32>, redb::Error> {
    let map = match database.begin_read()?.open_table(MAP) {
        Err(TableError::TableDoesNotExist(_)) => return Ok(None),
        map => map?,
    };
    let found = redb::ReadableTable::get(&map, FORMAT_KEY)?;
    Ok(found.and_then(|value| value.value().try_into().ok()).map(u32::from_be_bytes))
}

fn check_format(path: &str, database: &Database) -> Result<(), Failure> {
    match format(database) {
        Ok(Some(1..=MAP_FORMAT)) => Ok(()),
        Ok(Some(newer)) if newer > MAP_FORMAT => Err(Failure::Refused(newer_format(path, newer))),
        Ok(_) => Err(damaged(path, "it does not state its format")),
        Err(error) => Err(damaged(path, &error.to_string())),
    }
}

fn not_opened(path: &str, error: DatabaseError) -> Failure {
    match error {
        DatabaseError::UpgradeRequired(found) => Failure::Refused(newer_format(path, found.into())),
        DatabaseError::Storage(StorageError::Io(error)) if !tells_of_damage(&error) => {
            Failure::Refused(cannot_open(path, &error))
        }
        other => damaged(path, &other.to_string()),
    }
}

/// Returns whether redb's error means that the file is not a map of its own, or is shorter than it says.
fn tells_of_damage(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
}

pub(super) fn damaged(path: &str, what: &str) -> Failure {
    Failure::Damaged(Damage { file: path.to_owned(), offset: None, what: what.to_owned() })
}

pub(super) fn unreadable(dir: &str, error: &StoreError) -> OpenError {
    OpenError::new(error.code(), format!("{dir}/{FILE}: {error}"))
}
