//! The index of one segment: in memory while the segment is being written, in a file once it is closed.
//!
//! Both forms answer the same questions, in ordinals: a commit's place in its segment, counted from 0. Postings name the commits that
//! *may* contain what a term represents; only reading the frame makes it certain.

mod bloom;
mod file;
mod memory;
mod pages;
mod sealed;

use std::ops::Range;
use std::sync::{PoisonError, RwLock};

use annals_core::{ByteString, SequenceNumber};

pub(crate) use file::{FileIndex, encode};
pub(crate) use memory::{AsItIs, Head, IndexedCommit, MemoryIndex, TermMap};
pub(crate) use pages::{PAGE, page_is_whole, repair_pages};
pub(crate) use sealed::Sealed;

use crate::terms::Term;

/// The location of a commit's frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The sequence number of its first event, or the next one if it has no events.
    pub(crate) sequence_number: SequenceNumber,
    /// The offset of its frame in the segment.
    pub(crate) offset: u64,
    /// The frame's length without padding.
    pub(crate) length: u32,
}

/// A damaged index file: what is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IndexFault(pub(crate) String);

pub(crate) type Answer<T> = Result<T, IndexFault>;

/// The index of one segment.
pub(crate) enum Index {
    /// The index of a segment that is being written, or that is closed but has no index file yet. Holds only durable commits.
    Memory(RwLock<MemoryIndex>),
    /// The index file of a closed segment.
    File(Box<Sealed>),
}

impl Index {
    pub(crate) fn memory(index: MemoryIndex) -> Self {
        Self::Memory(RwLock::new(index))
    }

    /// Returns how far the durable commits reach: the offset after the last frame, and the next sequence number.
    pub(crate) fn reach(&self) -> (u64, SequenceNumber) {
        match self {
            Self::Memory(index) => read(index).reach(),
            Self::File(index) => (index.file().extent().end, index.file().extent().next),
        }
    }

    /// Returns the number of commits.
    pub(crate) fn commits(&self) -> u32 {
        match self {
            Self::Memory(index) => read(index).commits(),
            Self::File(index) => index.file().commits(),
        }
    }

    /// Returns the ordinal of the last commit that begins at or before this sequence number. A frame without events precedes the commit
    /// with the same number, so it is found only while there is no such commit.
    pub(crate) fn ordinal_of(&self, sequence_number: SequenceNumber) -> Answer<Option<u32>> {
        match self {
            Self::Memory(index) => Ok(read(index).ordinal_of(sequence_number)),
            Self::File(index) => index.ask(|index| index.ordinal_of(sequence_number)),
        }
    }

    /// Returns the entries of these commits, without ordinals past the end.
    pub(crate) fn entries(&self, ordinals: &[u32]) -> Answer<Vec<Entry>> {
        match self {
            Self::Memory(index) => Ok(read(index).entries(ordinals)),
            Self::File(index) => index.ask(|index| index.entries(ordinals)),
        }
    }

    /// Returns the ordinals in a range whose commits may contain this term, ascending.
    pub(crate) fn postings(&self, term: Term, within: Range<u32>) -> Answer<Vec<u32>> {
        match self {
            Self::Memory(index) => Ok(read(index).postings(term, within)),
            Self::File(index) => index.ask(|index| index.postings(term, within.clone())),
        }
    }

    /// Returns all ordinals whose commits may contain this term, ascending.
    pub(crate) fn all_postings(&self, term: Term) -> Answer<Vec<u32>> {
        self.postings(term, 0..u32::MAX)
    }

    /// Returns the number of commits for which postings should be requested at once. In memory they are copied in parts, so that the lock
    /// is held only briefly. From a file they are decoded from the beginning each time.
    pub(crate) fn stride(&self) -> u32 {
        const COPIED_AT_ONCE: u32 = 16 * 1024;
        match self {
            Self::Memory(_) => COPIED_AT_ONCE,
            Self::File(_) => u32::MAX,
        }
    }

    /// Returns the aggregates with a commit in this segment whose key is greater than `after` and begins with `prefix`, with their
    /// tenantIds, ascending.
    pub(crate) fn aggregates(
        &self,
        prefix: &[u8],
        after: &[u8],
        limit: usize,
    ) -> Answer<Vec<(ByteString, ByteString)>> {
        match self {
            Self::Memory(index) => Ok(read(index).aggregates(prefix, after, limit)),
            Self::File(index) => index.ask(|index| index.aggregates(prefix, after, limit)),
        }
    }
}

/// Returns the part of an ascending list that lies within a range.
fn part(ordinals: &[u32], within: &Range<u32>) -> Range<usize> {
    let start = ordinals.partition_point(|ordinal| *ordinal < within.start);
    start..ordinals.partition_point(|ordinal| *ordinal < within.end).max(start)
}

pub(crate) fn read(index: &RwLock<MemoryIndex>) -> std::sync::RwLockReadGuard<'_, MemoryIndex> {
    index.read().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the key under which an aggregate is listed: its name, a NUL, its id. Neither part can contain a NUL.
pub(crate) fn aggregate_key(name: &str, id: &str) -> ByteString {
    [name, "\0", id].concat().into()
}

#[cfg(test)]
mod tests;
