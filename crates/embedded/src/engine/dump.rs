//! The map as a file of entries, as backups hold it: every key with its value, in byte order of the keys.
//!
//! ```text
//! "annals map entries\n" · version:4
//! key's length · key · value's length · value · …       lengths as varints; no key is empty
//! 0 · number of entries:8
//! ```
//!
//! A map has exactly one such file, so two maps are equal if the hashes of their files are. A map created from a file is verified by
//! writing the file again. The file depends only on the entries, neither on redb's format nor on how its pages were filled.

use std::ops::Bound;
use std::sync::Arc;

use annals_core::StoreError;

use super::{Range, View};
use crate::disk::DiskFile;
use crate::varint;

/// The first bytes of a file of entries.
const MAGIC: &[u8] = b"annals map entries\n";
/// The version of the file.
const VERSION: u32 = 1;
/// The number of bytes returned at once.
const PIECE: usize = 256 * 1024;

/// A durable state of the map, held as long as this value lives.
pub(crate) type Held = Arc<dyn View + Send + Sync>;

/// A key and its value.
type Entry = (Vec<u8>, Vec<u8>);

/// Writes a file of entries piece by piece. It holds one piece and one entry in memory.
pub(crate) struct Dump {
    view: Held,
    range: Range,
    /// The encoded bytes; `at` is how many of them were returned.
    out: Vec<u8>,
    at: usize,
    entries: u64,
    ended: bool,
}

impl Dump {
    /// Creates the writer of a file with all entries of a view.
    pub(crate) fn new(view: Held) -> Self {
        let out = [MAGIC, &VERSION.to_be_bytes()].concat();
        Self { view, range: Range::all(), out, at: 0, entries: 0, ended: false }
    }

    /// Returns the next bytes, or `None` at the end.
    ///
    /// # Errors
    /// Why the map cannot be read.
    pub(crate) fn next(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        if self.at == self.out.len() && !self.ended {
            self.out.clear();
            self.at = 0;
            self.read_on()?;
        }
        let end = self.out.len().min(self.at + PIECE);
        let piece = self.out[self.at..end].to_vec();
        self.at = end;
        Ok((!piece.is_empty()).then_some(piece))
    }

    fn read_on(&mut self) -> Result<(), StoreError> {
        let mut last = None;
        for entry in self.view.ascending(&self.range)? {
            let (key, value) = entry?;
            varint::put_bytes(&mut self.out, &key);
            varint::put_bytes(&mut self.out, &value);
            self.entries += 1;
            last = Some(key);
            if self.out.len() >= PIECE {
                break;
            }
        }
        if self.out.len() < PIECE {
            self.out.push(0);
            self.out.extend_from_slice(&self.entries.to_be_bytes());
            self.ended = true;
        }
        self.range.from = last.map_or(self.range.from.clone(), Bound::Excluded);
        Ok(())
    }
}

/// Why a file is not a valid file of entries.
#[derive(Debug)]
pub(crate) enum DumpFault {
    /// It was written by a newer version.
    Newer(u32),
    /// It is not as written.
    Damaged(&'static str),
    /// It cannot be read.
    Io(std::io::Error),
}

/// Reads a file of entries from its beginning. It holds one piece and one entry in memory.
pub(crate) struct Entries<'f> {
    file: &'f dyn DiskFile,
    length: u64,
    /// The bytes read; `taken` of them are consumed, and `offset` is the file offset after them.
    held: Vec<u8>,
    taken: usize,
    offset: u64,
    entries: u64,
    last: Vec<u8>,
    ended: bool,
}

impl<'f> Entries<'f> {
    /// Opens a file and reads its header.
    ///
    /// # Errors
    /// Why it is not a file of entries.
    pub(crate) fn new(file: &'f dyn DiskFile) -> Result<Self, DumpFault> {
        let length = file.length().map_err(DumpFault::Io)?;
        let (held, last) = (Vec::new(), Vec::new());
        let mut entries = Self { file, length, held, taken: 0, offset: 0, entries: 0, last, ended: false };
        let magic = entries.bytes(MAGIC.len() as u64)?;
        let version = entries.number()?;
        match version {
            VERSION if magic == MAGIC => Ok(entries),
            newer if magic == MAGIC && newer > VERSION => Err(DumpFault::Newer(newer)),
            _ => Err(DumpFault::Damaged("it does not begin like a file of entries")),
        }
    }

    /// Returns the next entry, or `None` at the end.
    ///
    /// # Errors
    /// Why there is no valid entry.
    pub(crate) fn next(&mut self) -> Result<Option<Entry>, DumpFault> {
        if self.ended {
            return Ok(None);
        }
        let key_length = self.varint()?;
        if key_length == 0 {
            return self.end();
        }
        let key = self.bytes(key_length)?;
        if key <= self.last {
            return Err(DumpFault::Damaged("its keys are not in ascending order"));
        }
        let value_length = self.varint()?;
        let value = self.bytes(value_length)?;
        self.last.clone_from(&key);
        self.entries += 1;
        Ok(Some((key, value)))
    }

    fn end(&mut self) -> Result<Option<Entry>, DumpFault> {
        let count = self.bytes(8)?;
        let left = self.left().len() as u64 + (self.length - self.offset);
        if count != self.entries.to_be_bytes() || left > 0 {
            return Err(DumpFault::Damaged("its end does not match its entries"));
        }
        self.ended = true;
        Ok(None)
    }

    fn number(&mut self) -> Result<u32, DumpFault> {
        let bytes = self.bytes(4)?;
        bytes.try_into().map(u32::from_be_bytes).map_err(|_| DumpFault::Damaged("it is truncated"))
    }

    fn left(&self) -> &[u8] {
        &self.held[self.taken..]
    }

    fn varint(&mut self) -> Result<u64, DumpFault> {
        const LONGEST: u64 = 10;
        self.fill(LONGEST)?;
        let mut rest = self.left();
        let before = rest.len();
        let value = varint::take(&mut rest).ok_or(DumpFault::Damaged("it is truncated"))?;
        self.taken += before - rest.len();
        Ok(value)
    }

    fn bytes(&mut self, count: u64) -> Result<Vec<u8>, DumpFault> {
        self.fill(count)?;
        if (self.left().len() as u64) < count {
            return Err(DumpFault::Damaged("it is truncated"));
        }
        let bytes = self.left()[..count as usize].to_vec();
        self.taken += bytes.len();
        Ok(bytes)
    }

    /// Reads until this many bytes are held, or to the end of the file. Memory is bounded by the file's length, even if a length in it is
    /// wrong.
    fn fill(&mut self, wanted: u64) -> Result<(), DumpFault> {
        let missing = wanted.saturating_sub(self.left().len() as u64);
        let step = missing.max(PIECE as u64).min(self.length - self.offset) as usize;
        if missing == 0 || step == 0 {
            return Ok(());
        }
        self.held.drain(..self.taken);
        self.taken = 0;
        let start = self.held.len();
        self.held.resize(start + step, 0);
        let got = self.file.read_at(&mut self.held[start..], self.offset).map_err(DumpFault::Io)?;
        self.held.truncate(start + got);
        self.offset += step as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::disk::{Disk, MemoryDisk, Open};
    use crate::engine::view;

    struct Given(BTreeMap<Vec<u8>, Vec<u8>>);

    impl View for Given {
        fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
            Ok(self.0.get(key).cloned())
        }

        fn ascending(&self, range: &Range) -> Result<view::Entries<'_>, StoreError> {
            let found = self.0.range((range.from.clone(), range.to.clone()));
            Ok(Box::new(found.map(|(key, value)| Ok((key.clone(), value.clone())))))
        }

        fn descending(&self, range: &Range) -> Result<view::Entries<'_>, StoreError> {
            let found = self.0.range((range.from.clone(), range.to.clone())).rev();
            Ok(Box::new(found.map(|(key, value)| Ok((key.clone(), value.clone())))))
        }
    }

    fn file(view: &Held) -> Vec<u8> {
        let mut dump = Dump::new(view.clone());
        let mut out = Vec::new();
        while let Some(piece) = dump.next().expect("it goes on") {
            assert!(piece.len() <= PIECE);
            out.extend(piece);
        }
        out
    }

    fn read(bytes: &[u8]) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, DumpFault> {
        let disk = MemoryDisk::default();
        let file = disk.open("f", Open::Create).expect("it is new");
        file.write_at(bytes, 0).expect("it is written");
        let (mut entries, mut read) = (Entries::new(&*file)?, BTreeMap::new());
        while let Some((key, value)) = entries.next()? {
            read.insert(key, value);
        }
        Ok(read)
    }

    fn given(count: usize, large: usize) -> Held {
        let entry = |n: usize| (format!("key-{n:05}").into_bytes(), vec![n as u8; n * 13 % 700]);
        let many = (0..count).map(entry);
        Arc::new(Given(many.chain([(b"large".to_vec(), vec![1; large])]).collect()))
    }

    #[test]
    fn entries_come_back_as_they_were_whatever_their_number_and_size() {
        for (count, large) in [(0, 0), (1, 1), (3_000, 10), (10, 3 * PIECE + 7), (2_000, PIECE)] {
            let view = given(count, large);
            let read = read(&file(&view)).expect("it is a file of entries");
            assert_eq!(read.len(), count + 1);
            assert!(read.iter().all(|(key, value)| view.get(key).expect("it is read").as_ref() == Some(value)));
        }
    }

    #[test]
    fn a_file_that_was_cut_is_refused_and_so_are_bytes_behind_its_end() {
        let bytes = file(&given(40, 100));
        for length in 0..bytes.len() {
            assert!(matches!(read(&bytes[..length]), Err(DumpFault::Damaged(_))), "{length}");
        }
        assert!(matches!(read(&[&bytes[..], &[0]].concat()), Err(DumpFault::Damaged(_))));
        let mut newer = bytes.clone();
        newer[MAGIC.len() + 3] = 9;
        assert!(matches!(read(&newer), Err(DumpFault::Newer(9))));
        let mut long = bytes.clone();
        long.splice(MAGIC.len() + 4.., [0xff; 9].into_iter().chain([1]));
        assert!(matches!(read(&long), Err(DumpFault::Damaged(_))), "a key longer than any file");
    }
}
