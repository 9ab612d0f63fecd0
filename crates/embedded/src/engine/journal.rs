//! The journal: every batch of writes, before it is moved into the map. One append and one sync make a batch durable.
//!
//! ```text
//! {dir}/journal.0 · {dir}/journal.1      filled in turns: while what one holds is moved into the map, the other is written
//!   batch, at a multiple of 512:   0 length of the writes u32 · 4 crc32c of bytes 8.. u32 · 8 sequence u64 · 16 writes
//!   write:                         key's length · key · 0, it was removed, or 1 + value's length · value       lengths as varints
//! ```
//!
//! Batches have the numbers 1, 2, 3 … without gaps for as long as the map lives, in whichever file they are. The map says up to which
//! batch it holds them, so what stands in a file may be older than that, and means nothing then.
//!
//! Invariants:
//! - A file is written from its beginning only when all that it holds was moved into the map, durably.
//! - At most one batch is being written, and nobody was answered for it. So a batch that is not whole is the last, or the file is damaged.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use super::open::{self, Failure};
use super::recent::Write;
use crate::disk::{Disk, DiskFile, Open};
use crate::refused::cannot_open;
use crate::varint;

#[cfg(test)]
mod tests;

/// What the journal's files are called.
pub(crate) const FILES: [&str; 2] = ["journal.0", "journal.1"];

/// Batches begin at multiples of this: what a disk writes whole or not at all.
const BLOCK: usize = 512;
/// Bytes before a batch's writes.
const HEADER: usize = 16;
/// A file grows by as much as it is long, within these, by zeros that are really there: so a sync seldom changes a length.
const GROWTH: (u64, u64) = (64 * 1024, 4 * 1024 * 1024);

/// The journal of a map, to be written.
pub(super) struct Journal {
    disk: Arc<dyn Disk>,
    dir: String,
    files: [Option<Arc<dyn DiskFile>>; 2],
    /// The file that is written, how far, and how long it is.
    current: usize,
    offset: u64,
    length: u64,
    /// The number of the last batch.
    sequence: u64,
    /// The batch under way.
    out: Vec<u8>,
}

impl Journal {
    /// A journal of which everything was moved; the last batch had this number.
    pub(super) fn new(disk: Arc<dyn Disk>, dir: String, sequence: u64) -> Self {
        Self { disk, dir, files: [None, None], current: 0, offset: 0, length: 0, sequence, out: Vec::new() }
    }

    /// The number of the last batch.
    pub(super) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Appends a batch. It is durable then, unless the sync is left to chance.
    ///
    /// # Errors
    /// What the system says. The batch may or may not be there then, and nothing may be appended any more.
    pub(super) fn append(&mut self, writes: &[Write], syncs: bool) -> io::Result<()> {
        encode(&mut self.out, self.sequence + 1, writes)?;
        let file = self.file()?;
        self.grow(&*file, self.offset + self.out.len() as u64)?;
        file.write_at(&self.out, self.offset)?;
        if syncs {
            file.sync()?; // ◀── durable here
        }
        self.offset += self.out.len() as u64;
        self.sequence += 1;
        Ok(())
    }

    /// Goes on in the other file, all of which was moved.
    pub(super) fn turn(&mut self) {
        self.current = 1 - self.current;
        self.offset = 0;
        self.length = 0;
    }

    fn file(&mut self) -> io::Result<Arc<dyn DiskFile>> {
        if let Some(file) = &self.files[self.current] {
            return Ok(file.clone());
        }
        // One that an earlier process left is made again: a sync of the folder that failed may have forgotten its name for good.
        let path = format!("{}/{}", self.dir, FILES[self.current]);
        remove(&*self.disk, &path)?;
        let file = self.disk.open(&path, Open::Create)?;
        self.disk.sync_dir(&self.dir)?;
        self.files[self.current] = Some(file.clone());
        Ok(file)
    }

    fn grow(&mut self, file: &dyn DiskFile, end: u64) -> io::Result<()> {
        if self.length == 0 {
            self.length = file.length()?;
        }
        while self.length < end {
            let zeros = vec![0; self.length.clamp(GROWTH.0, GROWTH.1) as usize];
            file.write_at(&zeros, self.length)?;
            self.length += zeros.len() as u64;
        }
        Ok(())
    }
}

/// Removes the files of a journal of which everything was moved. Should they come back, they mean nothing.
pub(super) fn remove_all(disk: &dyn Disk, dir: &str) -> io::Result<()> {
    FILES.into_iter().try_for_each(|name| remove(disk, &format!("{dir}/{name}")))
}

fn remove(disk: &dyn Disk, path: &str) -> io::Result<()> {
    match disk.remove(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn encode(out: &mut Vec<u8>, sequence: u64, writes: &[Write]) -> io::Result<()> {
    out.clear();
    out.resize(HEADER, 0);
    for (key, value) in writes {
        varint::put_bytes(out, key);
        varint::put(out, value.as_ref().map_or(0, |value| value.len() as u64 + 1));
        out.extend_from_slice(value.as_deref().unwrap_or_default());
    }
    let length = u32::try_from(out.len() - HEADER).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
    out[0..4].copy_from_slice(&length.to_le_bytes());
    out[8..16].copy_from_slice(&sequence.to_le_bytes());
    let crc = crc32c::crc32c(&out[8..]);
    out[4..8].copy_from_slice(&crc.to_le_bytes());
    out.resize(out.len().next_multiple_of(BLOCK), 0);
    Ok(())
}

/// A batch as it stands in a file.
struct Batch<'f> {
    sequence: u64,
    writes: &'f [u8],
}

impl<'f> Batch<'f> {
    /// The batch that begins with these bytes, if it is whole.
    fn at(bytes: &'f [u8]) -> Option<Self> {
        let header: &[u8; HEADER] = bytes.first_chunk()?;
        let number = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let end = HEADER.checked_add(number(0) as usize)?;
        let whole = bytes.get(..end).filter(|whole| crc32c::crc32c(&whole[8..]) == number(4))?;
        let sequence = u64::from(number(8)) | u64::from(number(12)) << 32;
        (sequence > 0).then_some(Self { sequence, writes: &whole[HEADER..] })
    }

    /// The bytes that it takes in the file.
    fn length(&self) -> usize {
        (HEADER + self.writes.len()).next_multiple_of(BLOCK)
    }

    /// Its writes, if they are such.
    fn decoded(&self) -> Option<Vec<Write>> {
        let mut rest = self.writes;
        let mut writes = Vec::new();
        while !rest.is_empty() {
            let key = taken(&mut rest)?.into();
            let value = match varint::take(&mut rest)? {
                0 => None,
                length => Some(split(&mut rest, length - 1)?.into()),
            };
            writes.push((key, value));
        }
        Some(writes)
    }
}

fn taken<'b>(rest: &mut &'b [u8]) -> Option<&'b [u8]> {
    let length = varint::take(rest)?;
    split(rest, length)
}

fn split<'b>(rest: &mut &'b [u8], length: u64) -> Option<&'b [u8]> {
    let (bytes, behind) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    *rest = behind;
    Some(bytes)
}

/// What the journal in this folder holds behind the batch with the number `moved`: the last batch's number, and all writes, oldest first.
///
/// # Errors
/// [`Failure::Damaged`] when a batch is missing or not whole although one behind it is; why a file cannot be read.
pub(super) fn read(disk: &dyn Disk, dir: &str, moved: u64) -> Result<(u64, Vec<Write>), Failure> {
    let mut batches = BTreeMap::new();
    for name in FILES {
        let path = format!("{dir}/{name}");
        let file = match disk.open(&path, Open::Read) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            file => file.and_then(|file| whole(&*file)),
        };
        let bytes = file.map_err(|error| Failure::Refused(cannot_open(&path, &error)))?;
        batches.extend(batches_of(&path, &bytes, moved)?);
    }
    let (mut last, mut writes) = (moved, Vec::new());
    for (sequence, of_batch) in batches {
        if sequence != last + 1 {
            return Err(open::damaged(dir, &format!("batch {} is missing in the journal", last + 1)));
        }
        last = sequence;
        writes.extend(of_batch);
    }
    Ok((last, writes))
}

fn whole(file: &dyn DiskFile) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.read_onto(&mut bytes, file.length()? as usize, 0)?;
    Ok(bytes)
}

/// The batches behind `moved` of one file, which follow each other from its beginning.
fn batches_of(path: &str, bytes: &[u8], moved: u64) -> Result<Vec<(u64, Vec<Write>)>, Failure> {
    let (mut found, mut at, mut last) = (Vec::new(), 0, None);
    while let Some(batch) = bytes.get(at..).and_then(Batch::at) {
        if last.is_some_and(|last| batch.sequence != last + 1) {
            break;
        }
        if batch.sequence > moved {
            let writes = batch.decoded().ok_or_else(|| open::damaged(path, &format!("at {at} are no writes")))?;
            found.push((batch.sequence, writes));
        }
        last = Some(batch.sequence);
        at += batch.length();
    }
    let newest = last.unwrap_or(0).max(moved);
    let beyond = |at: &usize| Batch::at(&bytes[*at..]).is_some_and(|batch| batch.sequence > newest);
    match (at..bytes.len()).step_by(BLOCK).find(beyond) {
        Some(later) => Err(open::damaged(path, &format!("at {at} is no batch, but at {later} is one"))),
        None => Ok(found),
    }
}
