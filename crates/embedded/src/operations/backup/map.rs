//! A tenant's records and streams in a backup: the entries of one durable state of the engine's map.
//!
//! This state is held before the heads of the logs are read, so it depends on no event that the backup lacks. No stream was evaluated
//! further, and no record was written by a reader that had read further.

use std::sync::Arc;

use annals_core::StoreError;
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::invalid;
use super::manifest::{StoredFile, hex};
use crate::Options;
use crate::disk::{Disk, Open};
use crate::engine::{self, Dump, DumpFault, Engine, Entries, Held, Looked, Marks};
use crate::operations::survey::{self, Small};
use crate::operations::{OperationError, Outcome, unreadable, unwritable};
use crate::options::SeededBug;
use crate::records::entry_is_whole as record_is_whole;
use crate::refused::newer_format;
use crate::store::{ENGINE_DIR, TENANT_FILE, TenantFile};
use crate::streams::entry_is_whole as stream_is_whole;

/// The name of the file of entries in a folder that is being restored, until the map is created from it.
pub(super) const ENTRIES: &str = "map.entries";
/// How many digits of the hash of a file of entries are part of its name.
const NAMED_DIGITS: usize = 16;

/// A map at the moment a backup begins.
pub(crate) struct MapImage {
    /// Returns the state that is held, or `None` if nothing was ever written.
    state: Box<dyn FnOnce() -> Result<Option<Held>, StoreError> + Send>,
    /// The path of its file.
    pub(super) path: String,
}

impl MapImage {
    /// Holds the current durable state of a map.
    ///
    /// # Errors
    /// Why the map cannot be read.
    pub(crate) fn take(engine: &Arc<Engine>, options: &Options) -> Result<Self, StoreError> {
        let path = engine.path();
        if options.has(SeededBug::HoldMapAfterHeads) {
            let engine = engine.clone();
            return Ok(Self { state: Box::new(move || engine.held()), path });
        }
        let state = engine.held()?;
        Ok(Self { state: Box::new(move || Ok(state)), path })
    }

    /// Reads the whole state once to determine its length and hash, because an archive states the length of a file before its bytes, and
    /// the name contains both.
    ///
    /// # Errors
    /// [`StoreError::RecordsDamaged`] if an entry is not as written, so that no damage gets into a backup.
    pub(super) fn begin(self, tenant: &str) -> Result<Option<CurrentMap>, StoreError> {
        let Some(view) = (self.state)()? else { return Ok(None) };
        entries_are_whole(&view, &self.path)?;
        let (bytes, sha256) = measured(&view)?;
        let name = format!("tenants/{tenant}/{ENGINE_DIR}/map-{}-{bytes}.entries", &sha256[..NAMED_DIGITS]);
        Ok(Some(CurrentMap { file: StoredFile { name, bytes, sha256 }, dump: Dump::new(view) }))
    }
}

/// A map whose entries are being written.
pub(super) struct CurrentMap {
    pub(super) file: StoredFile,
    pub(super) dump: Dump,
}

fn entries_are_whole(view: &Held, path: &str) -> Result<(), StoreError> {
    for entry in view.ascending(&engine::Range::all())? {
        let (key, value) = entry?;
        if !record_is_whole(&key, &value) || !stream_is_whole(&key, &value) {
            let key = key.escape_ascii();
            return Err(StoreError::RecordsDamaged(format!("{path}: the entry under key {key} is damaged")));
        }
    }
    Ok(())
}

/// Returns the length and the SHA-256 of a map's file of entries.
fn measured(view: &Held) -> Result<(u64, String), StoreError> {
    let (mut dump, mut hasher, mut bytes) = (Dump::new(view.clone()), Sha256::new(), 0);
    while let Some(piece) = dump.next()? {
        hasher.update(&piece);
        bytes += piece.len() as u64;
    }
    Ok((bytes, hex(&hasher.finalize())))
}

/// The restored records and streams of a tenant.
#[derive(Debug, Clone, Serialize)]
pub struct RestoredMap {
    /// The tenant.
    pub tenant: String,
    /// The number of entries of its map: records, their index entries, notes of changes, and blocks of streams.
    pub entries: u64,
    /// The size of the file of entries in bytes.
    pub bytes: u64,
}

/// Creates a tenant's map from the file of entries in its folder, verifies it by reading it back, and removes the file.
pub(super) fn settle(
    disk: &Arc<dyn Disk>,
    tenant: &str,
    due: &StoredFile,
    verified: bool,
    options: &Options,
) -> Outcome<RestoredMap> {
    let dir = format!("tenants/{tenant}/{ENGINE_DIR}");
    let path = format!("{dir}/{ENTRIES}");
    let fault = |fault| not_made(&due.name, &dir, fault);
    let file = disk.open(&path, Open::Read).map_err(|error| unreadable(&path, &error))?;
    let owner = match survey::small::<TenantFile>(&**disk, &format!("tenants/{tenant}/{TENANT_FILE}"))? {
        Small::Whole(tenant) => tenant.map_marks().owner,
        Small::Missing | Small::Damaged => None,
    };
    let entries = engine::make(disk, &dir, Entries::new(&*file).map_err(fault)?, owner, options).map_err(fault)?;
    drop(file);
    if verified {
        let same = match engine::look(&**disk, &dir, &Marks::default())? {
            Looked::Open(map) => measured(&map.view)? == (due.bytes, due.sha256.clone()),
            Looked::Missing | Looked::Damaged(_) => false,
        };
        if !same {
            let message = format!("the restored map of {dir} differs from the backup's {}", due.name);
            return Err(invalid(message));
        }
    }
    let removed = disk.remove(&path).and_then(|()| disk.sync_dir(&dir));
    removed.map_err(|error| unwritable(&path, &error))?;
    Ok(RestoredMap { tenant: tenant.to_owned(), entries, bytes: due.bytes })
}

fn not_made(name: &str, dir: &str, fault: DumpFault) -> OperationError {
    match fault {
        DumpFault::Newer(version) => newer_format(name, version).into(),
        DumpFault::Damaged(what) => invalid(format!("{name} of the backup is damaged: {what}")),
        DumpFault::Io(error) => unwritable(dir, &error),
    }
}
