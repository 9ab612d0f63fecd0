//! A file that is only read, with everything written to it kept in memory above it.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::DiskFile;

/// Written data is kept in pages of this many bytes.
const PAGE: u64 = 4096;

/// A file whose writes are kept in memory, above an underlying file.
pub(crate) struct Above {
    /// `None` for a file that exists only in memory.
    file: Option<Arc<dyn DiskFile>>,
    state: Mutex<Written>,
    /// Whether nothing has been written yet, so that reads go directly to the underlying file.
    untouched: AtomicBool,
}

struct Written {
    /// Whole pages, by page number.
    pages: BTreeMap<u64, Box<[u8]>>,
    length: u64,
    /// The number of bytes of the underlying file that are still part of this one, because it was never truncated to fewer.
    below: u64,
}

impl fmt::Debug for Above {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Above")
    }
}

impl Above {
    /// Wraps a file to which nothing has been written yet.
    pub(crate) fn of(file: Arc<dyn DiskFile>) -> io::Result<Self> {
        let length = file.length()?;
        let state = Mutex::new(Written { pages: BTreeMap::new(), length, below: length });
        Ok(Self { file: Some(file), state, untouched: AtomicBool::new(true) })
    }

    /// Creates a new file that exists only in memory.
    pub(super) fn new() -> Self {
        let state = Mutex::new(Written { pages: BTreeMap::new(), length: 0, below: 0 });
        Self { file: None, state, untouched: AtomicBool::new(false) }
    }

    /// Reads a page of the first `end` bytes of the underlying file, with zeros after them.
    fn page_below(&self, number: u64, end: u64) -> io::Result<Box<[u8]>> {
        let mut page = vec![0; PAGE as usize];
        self.read_below(&mut page, number * PAGE, end)?;
        Ok(page.into())
    }

    /// Reads from the first `end` bytes of the underlying file, and leaves the rest of `buffer` as it is.
    fn read_below(&self, buffer: &mut [u8], offset: u64, end: u64) -> io::Result<()> {
        let count = end.saturating_sub(offset).min(buffer.len() as u64) as usize;
        match &self.file {
            Some(file) if count > 0 => file.read_at(&mut buffer[..count], offset).map(drop),
            _ => Ok(()),
        }
    }
}

impl DiskFile for Above {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if let Some(file) = self.file.as_ref().filter(|_| self.untouched.load(Ordering::Acquire)) {
            return file.read_at(buffer, offset);
        }
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let count = state.length.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let buffer = &mut buffer[..count];
        buffer.fill(0);
        self.read_below(buffer, offset, state.below)?;
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
        self.untouched.store(false, Ordering::Release);
        let Written { pages, length, below } = &mut *state;
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let within = (at % PAGE) as usize;
            let count = (PAGE as usize - within).min(bytes.len() - done);
            let page = match pages.entry(at / PAGE) {
                std::collections::btree_map::Entry::Occupied(page) => page.into_mut(),
                std::collections::btree_map::Entry::Vacant(page) => page.insert(self.page_below(at / PAGE, *below)?),
            };
            page[within..within + count].copy_from_slice(&bytes[done..done + count]);
            done += count;
        }
        *length = (*length).max(offset + bytes.len() as u64);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.state.lock().unwrap_or_else(PoisonError::into_inner).length)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.untouched.store(false, Ordering::Release);
        let Written { pages, length: known, below } = &mut *state;
        // What is cut off never reappears: if the file grows again, it has zeros there.
        *below = length.min(*below);
        drop(pages.split_off(&length.div_ceil(PAGE)));
        if let Some(page) = pages.get_mut(&(length / PAGE)) {
            page[(length % PAGE) as usize..].fill(0);
        }
        *known = length;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Disk, MemoryDisk, Open};

    #[test]
    fn what_is_written_above_is_read_and_the_file_stays_what_it_is() {
        let disk = MemoryDisk::default();
        let file = disk.open("f", Open::Create).expect("it is new");
        let below: Vec<u8> = (0..10_000u32).map(|n| n as u8).collect();
        file.write_at(&below, 0).expect("it is written");
        let above = Above::of(file.clone()).expect("it has a length");
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

    #[test]
    fn what_is_truncated_is_zero_once_the_file_grows_again() {
        let disk = MemoryDisk::default();
        let file = disk.open("f", Open::Create).expect("it is new");
        file.write_at(&[1; 20_000], 0).expect("it is written");
        for (written, length) in [(None, 5_000), (Some(0), 4_096), (Some(4_500), 5_000), (Some(9_000), 5_000)] {
            let above = Above::of(file.clone()).expect("it has a length");
            let mut due = vec![1_u8; length];
            if let Some(offset) = written {
                above.write_at(&[2; 6_000], offset as u64).expect("it is written");
                let end = length.min(offset + 6_000);
                due[offset.min(end)..end].fill(2);
            }
            above.truncate(length as u64).expect("it is truncated");
            above.write_at(&[3], 19_999).expect("it grows");
            due.resize(19_999, 0);
            due.push(3);
            let mut read = vec![7_u8; 20_000];
            assert_eq!(above.read_at(&mut read, 0).expect("it is read"), 20_000);
            assert_eq!(read, due, "written at {written:?}, truncated to {length}");
        }
    }
}
