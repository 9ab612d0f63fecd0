//! The journal holds every batch of writes until it is moved into the map. One append and one sync make a batch durable.
//!
//! ```text
//! {dir}/journal.0 · {dir}/journal.1      filled in turns: while what one holds is moved into the map, the other is written
//!   head, 512 bytes:               0 magic "ANNALJNL" · 8 mark u64 · 16 which file it is u32 · 20 crc32c of bytes 0..20 u32 · zeros
//!   batch, at a multiple of 512:   0 length of the writes u32 · 4 crc32c of (mark, writes) u32 · 8 sequence u64 ·
//!                                  16 crc32c of (mark, bytes 0..16) u32 · 20 writes
//!   write:                         key's length · key · 0, it was removed, or 1 + value's length · value       lengths as varints
//!   behind the last batch:         512 zeros at least
//! ```
//!
//! Batches are numbered 1, 2, 3 … without gaps for the lifetime of the map, in whichever file they are. The map records the last batch
//! that it holds. A file may contain batches that are older, which are ignored. By the mark of the journal ([`Begun`]) the map also
//! records which files must exist, so a missing file is damage and never an empty journal.
//!
//! Invariants:
//! - The map names a file only once the file is durable, at its full initial size and under its name.
//! - A file is overwritten from its beginning only once its whole content was durably moved into the map. It is removed only once the map
//!   durably no longer names it.
//! - At most one batch is being written, into space that is already durable, and no caller has been answered for it. An incomplete batch
//!   is therefore the last one, or the file is damaged.

mod batch;
mod read;

#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;

pub(crate) use self::read::Torn;
pub(super) use self::read::{check_unnamed, read};

use super::recent::Write;
use crate::disk::{Disk, DiskFile, Open};

/// The names of the journal's files.
pub(crate) const FILES: [&str; 2] = ["journal.0", "journal.1"];

/// Batches begin at multiples of this size, which a disk writes completely or not at all.
const BLOCK: usize = 512;
/// The initial size of a file.
const FIRST_BYTES: u64 = 64 * 1024;
/// A file doubles in size, but grows by at most this much. It grows by real zeros, so that a sync rarely changes a file length.
const GROWTH_MAX: u64 = 4 * 1024 * 1024;

/// What the map records about its journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Begun {
    /// The random mark in the heads of its files.
    pub(super) mark: u64,
    /// Which of [`FILES`] exist.
    pub(super) files: [bool; 2],
}

/// Why a batch is not in the journal.
#[derive(Debug)]
pub(super) enum Fault {
    /// Nothing was written, so the next batch may be appended.
    Before(io::Error),
    /// It is unknown what was written.
    Within(io::Error),
}

/// The journal of a map, open for writing.
pub(super) struct Journal {
    disk: Arc<dyn Disk>,
    dir: String,
    mark: u64,
    files: [Option<File>; 2],
    /// The index of the file being written, and the offset of the next batch.
    current: usize,
    offset: u64,
    /// The number of the last batch.
    sequence: u64,
    /// The encoded bytes of the current batch.
    out: Vec<u8>,
}

struct File {
    file: Arc<dyn DiskFile>,
    /// Its durable length in bytes.
    length: u64,
}

impl Journal {
    /// Creates a journal that has no files yet. `sequence` is the number of the last batch of the previous one.
    pub(super) fn new(disk: Arc<dyn Disk>, dir: String, mark: u64, sequence: u64) -> Self {
        let (files, offset) = ([None, None], BLOCK as u64);
        Self { disk, dir, mark, files, current: 0, offset, sequence, out: Vec::new() }
    }

    /// Returns the number of the last batch.
    pub(super) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Returns whether the journal has a file.
    pub(super) fn is_begun(&self) -> bool {
        self.files.iter().any(Option::is_some)
    }

    /// Creates the current file unless it exists. It is made durable first; then `name` must record it in the map.
    ///
    /// # Errors
    /// Errors of the operating system. Nothing may be appended after one.
    pub(super) fn begin(&mut self, syncs: bool, name: impl FnOnce(Begun) -> io::Result<()>) -> Result<(), Fault> {
        self.make(self.current, syncs, name)
    }

    /// Does the same for the other file, which is written next.
    ///
    /// # Errors
    /// As for [`begin`](Self::begin).
    pub(super) fn begin_other(&mut self, syncs: bool, name: impl FnOnce(Begun) -> io::Result<()>) -> Result<(), Fault> {
        self.make(1 - self.current, syncs, name)
    }

    fn make(&mut self, place: usize, syncs: bool, name: impl FnOnce(Begun) -> io::Result<()>) -> Result<(), Fault> {
        if self.files[place].is_some() {
            return Ok(());
        }
        let file = self.make_file(place, syncs).map_err(Fault::Before)?;
        let mut files = self.files.each_ref().map(Option::is_some);
        files[place] = true;
        name(Begun { mark: self.mark, files }).map_err(Fault::Within)?;
        self.files[place] = Some(File { file, length: FIRST_BYTES });
        Ok(())
    }

    fn make_file(&self, place: usize, syncs: bool) -> io::Result<Arc<dyn DiskFile>> {
        let path = format!("{}/{}", self.dir, FILES[place]);
        // A file with this name belongs to no journal: the map did not name it when it was opened.
        remove(&*self.disk, &path)?;
        let file = self.disk.open(&path, Open::Create)?;
        let mut bytes = vec![0; FIRST_BYTES as usize];
        bytes[..BLOCK].copy_from_slice(&batch::head(self.mark, place));
        file.write_at(&bytes, 0)?;
        if syncs {
            file.sync()?;
            self.disk.sync_dir(&self.dir)?;
        }
        Ok(file)
    }

    /// Appends a batch, and makes it durable if `syncs` is set.
    ///
    /// # Errors
    /// Errors of the operating system. After [`Fault::Within`] the batch may or may not be present, and nothing more may be appended.
    pub(super) fn append(&mut self, writes: &[Write], syncs: bool) -> Result<(), Fault> {
        let length = batch::encode(&mut self.out, self.mark, self.sequence + 1, writes).map_err(Fault::Before)?;
        let file = self.files[self.current].as_mut();
        let file = file.ok_or_else(|| Fault::Within(io::Error::other("the journal was not begun")))?;
        file.grow(self.offset + self.out.len() as u64)?;
        file.file.write_at(&self.out, self.offset).map_err(Fault::Within)?;
        if syncs {
            file.file.sync().map_err(Fault::Within)?; // ◀── durable here
        }
        self.offset += length as u64;
        self.sequence += 1;
        Ok(())
    }

    /// Continues in the other file, whose whole content was moved.
    pub(super) fn turn(&mut self) {
        self.current = 1 - self.current;
        self.offset = BLOCK as u64;
    }
}

impl File {
    /// Extends the file to `end`, durably, before anything is written there. A file that ends within a batch was therefore cut.
    fn grow(&mut self, end: u64) -> Result<(), Fault> {
        let mut length = self.length;
        while length < end {
            let zeros = vec![0; length.min(GROWTH_MAX) as usize];
            self.file.write_at(&zeros, length).map_err(Fault::Before)?;
            length += zeros.len() as u64;
        }
        if length > self.length {
            self.file.sync().map_err(Fault::Within)?;
            self.length = length;
        }
        Ok(())
    }
}

/// Removes the files of a journal that the map does not name. If they reappear, they are ignored.
pub(super) fn remove_all(disk: &dyn Disk, dir: &str) -> io::Result<()> {
    FILES.into_iter().try_for_each(|name| remove(disk, &format!("{dir}/{name}")))
}

fn remove(disk: &dyn Disk, path: &str) -> io::Result<()> {
    match disk.remove(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
