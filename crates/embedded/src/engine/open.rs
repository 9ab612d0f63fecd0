//! Opening the map's file, or making it.
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

/// The one table.
pub(super) const MAP: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("map");
/// What the map's file is called.
pub(crate) const FILE: &str = "map.redb";
/// Where the format stands.
pub(crate) const FORMAT_KEY: &[u8] = &[Space::Engine as u8, b'f'];
/// The format of the keys and values in the map, all spaces together, and of the journal before it. Format 1 had no journal, and who
/// knows only that one would not read it.
pub(super) const MAP_FORMAT: u32 = 2;
/// How much of the file is kept in memory.
const CACHE_BYTES: usize = 32 * 1024 * 1024;

/// Why a map could not be opened.
pub(crate) enum Failure {
    /// The store opens without it.
    Damaged(Damage),
    /// The store does not open.
    Refused(OpenError),
}

/// What is not what was written, of a map or the journal before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Damage {
    /// The file or the folder, below the store's folder.
    pub(crate) file: String,
    /// The byte in the file.
    pub(crate) offset: Option<u64>,
    /// What is wrong, about the file.
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
    /// Of a map that was made, and of which nothing is there.
    pub(crate) fn lost(dir: &str) -> Self {
        let what = "it is missing; records or streams were written, and tenant.json says that it was made";
        Self { file: format!("{dir}/{FILE}"), offset: None, what: what.to_owned() }
    }
}

impl From<Damage> for StoreError {
    fn from(damage: Damage) -> Self {
        Self::RecordsDamaged(damage.to_string())
    }
}

/// A map that holds all that its journal held, and no journal stands before it.
pub(super) struct Opened {
    pub(super) database: Database,
    /// The number of the last batch.
    pub(super) last: u64,
    /// The generation that the map holds now.
    pub(super) generation: u64,
    /// What was passed over at the end of the journal.
    pub(super) torn: Vec<Torn>,
}

/// Opens the map where there is one, moves into it what the journal holds, and removes that. Every page is read and its checksum
/// compared: damage is found now and never taken for data.
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
        return Err(damaged(&path, "it was cut"));
    }
    file.end_at_a_page().and_then(|()| file.make_durable_again()).map_err(|error| refused(&error))?;
    disk.sync_dir(dir).map_err(|error| refused(&error))?;
    let opened = on(file, &**disk, dir, marks)?;
    generation.opened(opened.generation, marks.generation).map_err(|error| refused(&error))?;
    journal::remove_all(&**disk, dir).map_err(|error| Failure::Refused(cannot_open(dir, &error)))?;
    Ok(Some(opened))
}

/// Where there is no map, nothing was ever written, unless there is a journal: that is made when the map is durable.
pub(super) fn missing(disk: &dyn Disk, dir: &str) -> Result<(), Failure> {
    let names = disk.list(dir).map_err(|error| Failure::Refused(cannot_open(dir, &error)))?;
    match names.iter().any(|name| journal::FILES.contains(&name.as_str())) {
        false => Ok(()),
        true => Err(damaged(&format!("{dir}/{FILE}"), "it is missing, but its journal is there")),
    }
}

/// Opens the map of this folder on this file, compares the checksum of every page, and moves the journal into it. The journal's files
/// stay, but the map does not name them any more.
///
/// A map of a version that did not say whose it is gets the mark with its next write.
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

/// Makes an empty map, under another name until it is whole.
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

/// Makes a map of an older format one of this format; nothing else in it changes.
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

/// What the system said, where that is what redb says: whoever is told of a full disk makes room.
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
        Ok(_) => Err(damaged(path, "it holds no format")),
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

/// redb's words for a file that is none of its own, and for one that is shorter than it says.
fn tells_of_damage(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
}

pub(super) fn damaged(path: &str, what: &str) -> Failure {
    Failure::Damaged(Damage { file: path.to_owned(), offset: None, what: what.to_owned() })
}

pub(super) fn unreadable(dir: &str, error: &StoreError) -> OpenError {
    OpenError::new(error.code(), format!("{dir}/{FILE}: {error}"))
}
