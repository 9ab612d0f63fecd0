//! Surveys a store's folder without opening the store.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use annals_core::{Code, OpenError};
use serde::de::DeserializeOwned;

use super::{OperationError, Outcome, unreadable};
use crate::disk::{Disk, Open};
use crate::format::{FORMAT, SEGMENT_HEADER, SegmentHeader, SegmentHeaderFault};
use crate::log::{SegmentFile, names};
use crate::packed::Packed;
use crate::refused::newer_format;
pub(super) use crate::store::TENANTS;
use crate::store::{STORE_FILE, StoreFile, TENANT_FILE, TenantFile};
use crate::whole::{SEALED_BYTES_MAX, format_of, read_whole, unseal};

/// The store's lock, held as long as this value lives.
pub(super) struct Locked {
    /// Released first, as by a store that was open.
    _folders: Vec<Box<dyn Send + Sync>>,
    _guard: Option<Box<dyn Send + Sync>>,
}

/// Takes the lock of an existing store. In a folder that this process cannot write, it takes a shared lock instead.
pub(super) fn lock(disk: &dyn Disk) -> Outcome<Locked> {
    let names = disk.list("").map_err(|error| unreadable("the store", &error))?;
    if !names.iter().any(|name| name == STORE_FILE) {
        let message = "the folder holds no store.json, so there is no store; name the folder of a store";
        return Err(OperationError::new(Code::NotAStore, message));
    }
    let mut folders = Vec::new();
    let locked = match disk.lock() {
        Ok(guard) => {
            folders = lock_folders(disk)?;
            Ok(guard)
        }
        Err(error) => match error.kind() {
            io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => disk.lock_to_read(),
            _ => Err(error),
        },
    };
    match locked {
        Ok(guard) => Ok(Locked { _folders: folders, _guard: Some(guard) }),
        Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {
            Ok(Locked { _folders: folders, _guard: None })
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(OperationError::new(
            Code::StoreLocked,
            "another process has this store open; stop it, or work on a backup that is taken from it",
        )),
        Err(error) => Err(unreadable("the store's lock", &error)),
    }
}

/// Locks the folders that another store may contain by a link or a mount, as a store does that is opened.
fn lock_folders(disk: &dyn Disk) -> Outcome<Vec<Box<dyn Send + Sync>>> {
    let mut locks = Vec::new();
    for tenant in tenants(disk)? {
        let logs = tenant.scopes.iter().map(|scope| tenant.log_dir(scope));
        for dir in std::iter::once(tenant.dir.clone()).chain(logs) {
            match disk.lock_dir(&dir) {
                Ok(lock) => locks.extend(lock),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let message = format!("another process has {dir} open by another path; stop it");
                    return Err(OperationError::new(Code::StoreLocked, message));
                }
                Err(error) => return Err(unreadable(&dir, &error)),
            }
        }
    }
    Ok(locks)
}

/// A small file of a store.
pub(super) enum Small<T> {
    Whole(T),
    Damaged,
    Missing,
}

/// Reads a small file. A newer format is an error, because nothing can be said about the file.
pub(super) fn small<T: DeserializeOwned>(disk: &dyn Disk, path: &str) -> Outcome<Small<T>> {
    let bytes = match read_whole(disk, path, SEALED_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Small::Missing),
        Err(error) => return Err(unreadable(path, &error)),
    };
    if let Some(newer) = format_of(&bytes).filter(|format| *format > FORMAT) {
        return Err(newer_format(path, newer).into());
    }
    Ok(unseal(&bytes).map_or(Small::Damaged, Small::Whole))
}

pub(super) fn store_file(disk: &dyn Disk) -> Outcome<Small<StoreFile>> {
    small(disk, STORE_FILE)
}

/// A tenant's folder.
pub(super) struct TenantFolder {
    pub(super) name: String,
    pub(super) dir: String,
    /// The folders in it that hold a log.
    pub(super) scopes: Vec<String>,
}

impl TenantFolder {
    pub(super) fn file(&self, disk: &dyn Disk) -> Outcome<Small<TenantFile>> {
        small(disk, &self.file_path())
    }

    /// Adds the scopes that once held a log and no longer do.
    pub(super) fn add_begun(&mut self, disk: &dyn Disk) -> Outcome<()> {
        if let Small::Whole(file) = self.file(disk)? {
            let lost = file.begun_scopes().filter(|scope| !self.scopes.contains(scope));
            let lost: Vec<String> = lost.cloned().collect();
            self.scopes.extend(lost);
        }
        Ok(())
    }

    pub(super) fn file_path(&self) -> String {
        format!("{}/{TENANT_FILE}", self.dir)
    }

    pub(super) fn log_dir(&self, scope: &str) -> String {
        format!("{}/{scope}", self.dir)
    }
}

/// Adds the tenants that were begun and no longer have a folder.
pub(super) fn add_lost(tenants: &mut Vec<TenantFolder>, begun: &BTreeSet<String>) {
    for name in begun {
        if !tenants.iter().any(|tenant| tenant.name == *name) {
            let (name, dir) = (name.clone(), format!("{TENANTS}/{name}"));
            tenants.push(TenantFolder { name, dir, scopes: Vec::new() });
        }
    }
}

/// Returns every tenant that has a folder, declared or not, ordered by name.
pub(super) fn tenants(disk: &dyn Disk) -> Outcome<Vec<TenantFolder>> {
    let mut tenants = Vec::new();
    for name in sorted(disk, TENANTS)? {
        let dir = format!("{TENANTS}/{name}");
        let mut scopes = Vec::new();
        for scope in sorted(disk, &dir)? {
            let names = sorted(disk, &format!("{dir}/{scope}"))?;
            if names.iter().any(|name| names::segment_number(name).is_some() || name == names::CHECKPOINT) {
                scopes.push(scope);
            }
        }
        tenants.push(TenantFolder { name, dir, scopes });
    }
    Ok(tenants)
}

/// Returns the names in a folder, sorted; empty if it is not a folder.
pub(super) fn sorted(disk: &dyn Disk, dir: &str) -> Outcome<Vec<String>> {
    match disk.list(dir) {
        Ok(mut names) => {
            names.sort_unstable();
            Ok(names)
        }
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Ok(Vec::new()),
        Err(error) => Err(unreadable(dir, &error)),
    }
}

/// Returns the numbers of the segments in a log's folder, ascending.
pub(super) fn segment_numbers(names: &[String]) -> Vec<u64> {
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| names::segment_number(name)).collect();
    numbers.sort_unstable();
    numbers
}

/// A segment's file, with the values of its header.
pub(super) struct OpenSegment {
    pub(super) at: SegmentFile,
    pub(super) capacity: u64,
    pub(super) length: u64,
    /// The owner in its header.
    pub(super) owner: u64,
}

/// Opens a segment for reading. Returns its file as the inner error if the header, or the dictionary of a packed segment, is not as
/// written for a segment with this number.
pub(super) fn segment(
    disk: &dyn Disk,
    dir: &str,
    number: u64,
) -> Outcome<Result<OpenSegment, Arc<dyn crate::disk::DiskFile>>> {
    let name = names::segment(dir, number);
    let fail = |error: io::Error| unreadable(&name, &error);
    let file = disk.open(&name, Open::Read).map_err(fail)?;
    let mut header = [0; SEGMENT_HEADER as usize];
    file.read_at(&mut header, 0).map_err(fail)?;
    match SegmentHeader::decode(&header) {
        Ok(header) if header.number == number => {
            let length = file.length().map_err(fail)?;
            let packed = match header.packed_from {
                Some(first) => match Packed::open(&*file, &header, first).map_err(fail)? {
                    Some(packed) => Some(Arc::new(packed)),
                    None => return Ok(Err(file)),
                },
                None => None,
            };
            let at = SegmentFile { number, salt: header.salt, name, file, packed };
            Ok(Ok(OpenSegment { at, capacity: header.capacity, length, owner: header.owner }))
        }
        Err(SegmentHeaderFault::Newer(format)) => {
            let newer: OpenError = newer_format(&name, format);
            Err(newer.into())
        }
        _ => Ok(Err(file)),
    }
}
