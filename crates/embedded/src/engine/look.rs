//! A map that no process has open, read without changing a byte of its file: what opening it would write is kept in memory.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use annals_core::OpenError;
use redb::Database;

use super::dump::Held;
use super::file::MapFile;
use super::journal::Torn;
use super::open::{self, Damage, FILE, Failure, Opened};
use super::snapshot::{Below, Snapshot};
use crate::disk::{Disk, DiskFile, Open};
use crate::refused::cannot_open;

/// What is kept at once of what was written.
const PAGE: u64 = 4096;

/// A map as it was found.
pub(crate) enum Looked {
    /// There is none, and no journal either.
    Missing,
    /// It cannot be read, or its journal cannot.
    Damaged(Damage),
    /// It can be read, as long as this lives.
    Open(Map),
}

/// A map that can be read.
pub(crate) struct Map {
    /// Its entries.
    pub(crate) view: Held,
    /// The bytes of its file.
    pub(crate) bytes: u64,
    /// What is not whole at the end of its journal.
    pub(crate) torn: Vec<Torn>,
    /// Reading ends with it.
    _database: Database,
}

/// Looks at the map in this folder, compares the checksum of every page, and whose it is where that is known.
///
/// # Errors
/// `newer_format`, or why the file cannot be read.
pub(crate) fn look(disk: &dyn Disk, dir: &str, owner: Option<u64>) -> Result<Looked, OpenError> {
    let path = format!("{dir}/{FILE}");
    let looked = match disk.open(&path, Open::Read) {
        Ok(file) => opened(file, disk, dir, owner).map(Looked::Open),
        Err(error) if error.kind() == io::ErrorKind::NotFound => open::missing(disk, dir).map(|()| Looked::Missing),
        Err(error) => return Err(cannot_open(&path, &error)),
    };
    match looked {
        Ok(looked) => Ok(looked),
        Err(Failure::Damaged(damage)) => Ok(Looked::Damaged(damage)),
        Err(Failure::Refused(error)) => Err(error),
    }
}

fn opened(file: Arc<dyn DiskFile>, disk: &dyn Disk, dir: &str, owner: Option<u64>) -> Result<Map, Failure> {
    let path = &format!("{dir}/{FILE}");
    let refused = |error: io::Error| Failure::Refused(cannot_open(path, &error));
    let bytes = file.length().map_err(refused)?;
    let above = MapFile(Arc::new(Above { file, state: Mutex::new(Written { pages: BTreeMap::new(), length: bytes }) }));
    if !above.is_whole().map_err(refused)? {
        return Err(open::damaged(path, "it was cut"));
    }
    above.end_at_a_page().map_err(refused)?;
    let Opened { database, torn, .. } = open::on(above, disk, dir, owner)?;
    let below = Below::take(&database).map_err(|error| open::damaged(path, &error.to_string()))?;
    Ok(Map { view: Arc::new(Snapshot::of(below)), bytes, torn, _database: database })
}

/// A file with what was written above it, in memory.
struct Above {
    file: Arc<dyn DiskFile>,
    state: Mutex<Written>,
}

struct Written {
    /// Whole pages, by their numbers.
    pages: BTreeMap<u64, Box<[u8]>>,
    length: u64,
}

impl fmt::Debug for Above {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Above")
    }
}

impl Above {
    /// A page as it is in the file, with zeros behind the file's end.
    fn below(&self, number: u64) -> io::Result<Box<[u8]>> {
        let mut page = vec![0; PAGE as usize];
        self.file.read_at(&mut page, number * PAGE)?;
        Ok(page.into())
    }
}

impl DiskFile for Above {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let count = state.length.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let buffer = &mut buffer[..count];
        buffer.fill(0);
        self.file.read_at(buffer, offset)?;
        let end = offset + count as u64;
        for (number, page) in state.pages.range(offset / PAGE..end.div_ceil(PAGE)) {
            let (from, to) = ((number * PAGE).max(offset), ((number + 1) * PAGE).min(end));
            let part = &page[(from - number * PAGE) as usize..(to - number * PAGE) as usize];
            buffer[(from - offset) as usize..(to - offset) as usize].copy_from_slice(part);
        }
        Ok(count)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let within = (at % PAGE) as usize;
            let count = (PAGE as usize - within).min(bytes.len() - done);
            let page = match state.pages.entry(at / PAGE) {
                std::collections::btree_map::Entry::Occupied(page) => page.into_mut(),
                std::collections::btree_map::Entry::Vacant(page) => page.insert(self.below(at / PAGE)?),
            };
            page[within..within + count].copy_from_slice(&bytes[done..done + count]);
            done += count;
        }
        state.length = state.length.max(offset + bytes.len() as u64);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.state.lock().unwrap_or_else(PoisonError::into_inner).length)
    }

    /// Only ever shortens what nothing refers to; what is below is still there if it grows again, which redb does not mind.
    fn truncate(&self, length: u64) -> io::Result<()> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).length = length;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::MemoryDisk;

    #[test]
    fn what_is_written_above_is_read_and_the_file_stays_what_it_is() {
        let disk = MemoryDisk::default();
        let file = disk.open("f", Open::Create).expect("it is new");
        let below: Vec<u8> = (0..10_000u32).map(|n| n as u8).collect();
        file.write_at(&below, 0).expect("it is written");
        let state = Mutex::new(Written { pages: BTreeMap::new(), length: below.len() as u64 });
        let above = Above { file: file.clone(), state };
        let mut due = below.clone();
        for (offset, count) in [(0usize, 1usize), (4_090, 20), (9_990, 5_000), (20_000, 3), (100, 9_000)] {
            let bytes = vec![offset as u8 ^ 0x5a; count];
            above.write_at(&bytes, offset as u64).expect("it is written");
            due.resize(due.len().max(offset + count), 0);
            due[offset..offset + count].copy_from_slice(&bytes);
            for (from, to) in [(0, due.len()), (4_000, 4_200), (9_000, due.len() - 1)] {
                let mut read = vec![7; to - from];
                assert_eq!(above.read_at(&mut read, from as u64).expect("it is read"), to - from);
                assert_eq!(read, due[from..to]);
            }
        }
        let mut beyond = [0; 10];
        assert_eq!(above.read_at(&mut beyond, due.len() as u64 - 4).expect("it is read"), 4);
        let mut after = vec![0; below.len()];
        file.read_at(&mut after, 0).expect("it is read");
        assert_eq!((after, file.length().expect("a length")), (below.clone(), below.len() as u64));
    }
}
