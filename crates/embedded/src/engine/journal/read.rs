//! Reads a journal that a process left behind, without changing a byte of it.
//!
//! Every file that the map names must exist with its head, at least at its initial size; anything less is damage. In a file, batches
//! follow each other, and then zeros. Anything else is an incomplete batch. It is the last one, for which as far as can be determined no
//! caller was answered. It is damage if anything shows that more was written after it or must be there.

use std::collections::BTreeMap;
use std::fmt;
use std::io;

use super::batch::{self, Batch, Header};
use super::{BLOCK, Begun, FILES, FIRST_BYTES};
use crate::disk::{Disk, DiskFile, Open};
use crate::engine::open::{Damage, Failure};
use crate::engine::recent::Write;
use crate::refused::cannot_open;

/// The content of a journal after the last batch that was moved.
#[derive(Default)]
pub(in crate::engine) struct Found {
    /// The number of the last batch.
    pub(in crate::engine) last: u64,
    /// All writes, oldest first.
    pub(in crate::engine) writes: Vec<Write>,
    /// What is skipped.
    pub(in crate::engine) torn: Vec<Torn>,
}

/// An incomplete batch at the end of a journal file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Torn {
    /// The file, relative to the store's folder.
    pub(crate) file: String,
    /// The offset at which the batch begins.
    pub(crate) offset: u64,
}

impl fmt::Display for Torn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} at offset {}: the last batch of writes is incomplete; it was never acknowledged unless the disk lost \
             synced data",
            self.file, self.offset
        )
    }
}

/// Reads what the journal in this folder holds after batch number `moved`. Returns nothing if no journal was begun.
///
/// # Errors
/// [`Failure::Damaged`] if a part of it is missing, or is not as written although more was written after it; otherwise why a file cannot
/// be read.
pub(in crate::engine) fn read(disk: &dyn Disk, dir: &str, begun: Option<Begun>, moved: u64) -> Result<Found, Failure> {
    let (mut batches, mut found) = (BTreeMap::new(), Found { last: moved, ..Found::default() });
    for (place, begun) in begun.iter().flat_map(|begun| (0..FILES.len()).map(move |place| (place, begun))) {
        if !begun.files[place] {
            continue;
        }
        let path = format!("{dir}/{}", FILES[place]);
        let bytes = bytes_of(disk, &path)?;
        let file = File { path: &path, bytes: &bytes, mark: begun.mark };
        file.check_head(place)?;
        batches.extend(file.batches(moved, &mut found.torn)?);
    }
    for (sequence, of_batch) in batches {
        if sequence != found.last + 1 {
            let what = format!("batch {} is missing in the journal", found.last + 1);
            return Err(Failure::Damaged(Damage { file: dir.to_owned(), offset: None, what }));
        }
        found.last = sequence;
        found.writes.extend(of_batch);
    }
    Ok(found)
}

/// Checks that files which the map does not name hold nothing after batch number `last`. A process that ends leaves such files before
/// they are named, without batches, or after all their content was moved. If they hold more, the map is an earlier one, or belongs to
/// another store.
///
/// # Errors
/// [`Failure::Damaged`], or why a file cannot be read.
pub(in crate::engine) fn check_unnamed(
    disk: &dyn Disk,
    dir: &str,
    begun: Option<Begun>,
    last: u64,
) -> Result<(), Failure> {
    let there = disk.list(dir).map_err(|error| Failure::Refused(cannot_open(dir, &error)))?;
    for (place, name) in FILES.iter().enumerate() {
        if begun.is_some_and(|begun| begun.files[place]) || !there.iter().any(|it| it == name) {
            continue;
        }
        let path = format!("{dir}/{name}");
        let bytes = bytes_of(disk, &path)?;
        let Some(mark) = batch::mark_of(&bytes) else { continue };
        let mut blocks = (BLOCK..bytes.len()).step_by(BLOCK);
        if let Some(at) = blocks.find(|at| Batch::at(&bytes[*at..], mark).is_some_and(|batch| batch.sequence > last)) {
            let what = "the journal has writes that the map lacks, and the map does not name this journal: the map \
                        is an earlier copy, or belongs elsewhere";
            return Err(damaged(&path, Some(at as u64), what.to_owned()));
        }
    }
    Ok(())
}

fn bytes_of(disk: &dyn Disk, path: &str) -> Result<Vec<u8>, Failure> {
    match disk.open(path, Open::Read).and_then(|file| whole(&*file)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(damaged(path, None, "it is missing; it held the latest writes".to_owned()))
        }
        bytes => bytes.map_err(|error| Failure::Refused(cannot_open(path, &error))),
    }
}

pub(super) fn whole(file: &dyn DiskFile) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.read_onto(&mut bytes, file.length()? as usize, 0)?;
    Ok(bytes)
}

fn damaged(path: &str, offset: Option<u64>, what: String) -> Failure {
    Failure::Damaged(Damage { file: path.to_owned(), offset, what })
}

struct File<'f> {
    path: &'f str,
    bytes: &'f [u8],
    mark: u64,
}

impl File<'_> {
    fn damaged(&self, at: usize, what: impl Into<String>) -> Failure {
        damaged(self.path, Some(at as u64), what.into())
    }

    fn check_head(&self, place: usize) -> Result<(), Failure> {
        let length = self.bytes.len();
        if length < FIRST_BYTES as usize {
            return Err(self.damaged(
                length,
                format!("the file ends here but was created with {FIRST_BYTES} bytes: it was truncated"),
            ));
        }
        let head = &self.bytes[..BLOCK];
        match (*head == batch::head(self.mark, place), batch::is_head(head)) {
            (true, _) => Ok(()),
            (false, true) => Err(self.damaged(0, "it belongs to another journal, or is its other file")),
            (false, false) => Err(self.damaged(0, "its header is damaged")),
        }
    }

    /// Returns the batches after `moved`, which follow each other from the head on.
    fn batches(&self, moved: u64, torn: &mut Vec<Torn>) -> Result<Vec<(u64, Vec<Write>)>, Failure> {
        let (mut found, mut at, mut last) = (Vec::new(), BLOCK, None);
        while let Some(batch) = self.batch(at) {
            if last.is_some_and(|last| batch.sequence != last + 1) {
                break;
            }
            if batch.sequence > moved {
                let writes = batch.decoded().ok_or_else(|| self.damaged(at, "there are no writes here"))?;
                found.push((batch.sequence, writes));
            }
            last = Some(batch.sequence);
            at += batch.length();
        }
        self.check_end(at, last.unwrap_or(0).max(moved), torn)?;
        Ok(found)
    }

    fn batch(&self, at: usize) -> Option<Batch<'_>> {
        self.bytes.get(at..).and_then(|bytes| Batch::at(bytes, self.mark))
    }

    /// Checks what is at `at`, where no batch follows the one numbered `newest`.
    fn check_end(&self, at: usize, newest: u64, torn: &mut Vec<Torn>) -> Result<(), Failure> {
        let Some(block) = self.bytes.get(at..at + BLOCK) else {
            let length = self.bytes.len();
            return Err(
                self.damaged(length, "the file ends here but must continue after its last batch: it was truncated")
            );
        };
        let beyond = |at: &usize| self.batch(*at).is_some_and(|batch| batch.sequence > newest);
        if let Some(later) = (at..self.bytes.len()).step_by(BLOCK).find(beyond) {
            return Err(self.damaged(at, format!("there is no batch here, but there is one at {later}")));
        }
        let left_from_before = self.batch(at).is_some();
        if left_from_before || block.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        // A file is durably extended before a batch is written into the new part.
        let header = Header::at(block, self.mark).filter(|header| header.sequence > newest);
        if header.is_some_and(|header| at + header.end() > self.bytes.len()) {
            return Err(self.damaged(at, "the file ends within the batch that begins here: it was truncated"));
        }
        torn.push(Torn { file: self.path.to_owned(), offset: at as u64 });
        Ok(())
    }
}
