//! The journal: every batch of writes, before it is moved into the map. One append and one sync make a batch durable.
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
//! Batches have the numbers 1, 2, 3 … without gaps for as long as the map lives, in whichever file they are. The map says up to which
//! batch it holds them, so what stands in a file may be older than that, and means nothing then. It also says which files there must be,
//! by the mark of this journal ([`Begun`]): one that is missing is damage, and never an empty journal.
//!
//! Invariants:
//! - The map names a file only when that is durable, at its full first size and under its name.
//! - A file is written from its beginning only when all that it holds was moved into the map, durably; and removed only when the map,
//!   durably, does not name it any more.
//! - At most one batch is being written, into room that is durable, and nobody was answered for it. So a batch that is not whole is the
//!   last, or the file is damaged.

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

/// What the journal's files are called.
pub(crate) const FILES: [&str; 2] = ["journal.0", "journal.1"];

/// Batches begin at multiples of this: what a disk writes whole or not at all.
const BLOCK: usize = 512;
/// A file is made with so many bytes.
const FIRST_BYTES: u64 = 64 * 1024;
/// It grows by as much as it is long, up to this, by zeros that are really there: so a sync seldom changes a length.
const GROWTH_MAX: u64 = 4 * 1024 * 1024;

/// What the map says of its journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Begun {
    /// What the heads of its files say, at random.
    pub(super) mark: u64,
    /// Which of [`FILES`] there are.
    pub(super) files: [bool; 2],
}

/// Why a batch is not in the journal.
#[derive(Debug)]
pub(super) enum Fault {
    /// Nothing was written: the next batch may be.
    Before(io::Error),
    /// What is written is unknown.
    Within(io::Error),
}

/// The journal of a map, to be written.
pub(super) struct Journal {
    disk: Arc<dyn Disk>,
    dir: String,
    mark: u64,
    files: [Option<File>; 2],
    /// The file that is written, and how far.
    current: usize,
    offset: u64,
    /// The number of the last batch.
    sequence: u64,
    /// The batch under way.
    out: Vec<u8>,
}

struct File {
    file: Arc<dyn DiskFile>,
    /// How long it is, durably.
    length: u64,
}

impl Journal {
    /// A journal that was not begun yet; the last batch of the one before had this number.
    pub(super) fn new(disk: Arc<dyn Disk>, dir: String, mark: u64, sequence: u64) -> Self {
        let (files, offset) = ([None, None], BLOCK as u64);
        Self { disk, dir, mark, files, current: 0, offset, sequence, out: Vec::new() }
    }

    /// The number of the last batch.
    pub(super) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Whether it has a file.
    pub(super) fn is_begun(&self) -> bool {
        self.files.iter().any(Option::is_some)
    }

    /// Makes the file that is written now, unless it is there: durable first, then `name` is to name it in the map.
    ///
    /// # Errors
    /// What the system says. Nothing may be appended then.
    pub(super) fn begin(&mut self, syncs: bool, name: impl FnOnce(Begun) -> io::Result<()>) -> Result<(), Fault> {
        self.make(self.current, syncs, name)
    }

    /// The same for the file that is written next.
    ///
    /// # Errors
    /// As there.
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
        // One that is there belongs to no journal: the map did not name it when it was opened.
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

    /// Appends a batch. It is durable then, unless the sync is left to chance.
    ///
    /// # Errors
    /// What the system says. Where it was not said before the batch was written, the batch may or may not be there, and nothing may be
    /// appended any more.
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

    /// Goes on in the other file, all of which was moved.
    pub(super) fn turn(&mut self) {
        self.current = 1 - self.current;
        self.offset = BLOCK as u64;
    }
}

impl File {
    /// Makes room up to `end`, durably before anything is written there: so a file that ends within a batch was cut.
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

/// Removes the files of a journal that the map does not name. Should they come back, they mean nothing.
pub(super) fn remove_all(disk: &dyn Disk, dir: &str) -> io::Result<()> {
    FILES.into_iter().try_for_each(|name| remove(disk, &format!("{dir}/{name}")))
}

fn remove(disk: &dyn Disk, path: &str) -> io::Result<()> {
    match disk.remove(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
