//! The index of one segment: in memory while the segment is written to, in a file once it is closed.
//!
//! Both answer the same questions, in ordinals: the place of a commit in its segment, counted from 0. Postings say which commits
//! *may* hold what a term stands for; who reads the frame finds out.

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

/// Where a commit's frame stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The sequence number of its first event, or the one that the next event gets.
    pub(crate) sequence_number: SequenceNumber,
    /// The offset of its frame in the segment.
    pub(crate) offset: u64,
    /// The frame's length without padding.
    pub(crate) length: u32,
}

/// An index file does not hold what was written: what and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IndexFault(pub(crate) String);

pub(crate) type Answer<T> = Result<T, IndexFault>;

/// The index of one segment.
pub(crate) enum Index {
    /// Of a segment that is written to, or closed and not yet indexed in a file. Holds durable commits only.
    Memory(RwLock<MemoryIndex>),
    /// Of a closed segment.
    File(Box<Sealed>),
}

impl Index {
    pub(crate) fn memory(index: MemoryIndex) -> Self {
        Self::Memory(RwLock::new(index))
    }

    /// How far the durable commits reach: the offset behind the last frame, and the next sequence number.
    pub(crate) fn reach(&self) -> (u64, SequenceNumber) {
        match self {
            Self::Memory(index) => read(index).reach(),
            Self::File(index) => (index.file().extent().end, index.file().extent().next),
        }
    }

    /// The number of commits.
    pub(crate) fn commits(&self) -> u32 {
        match self {
            Self::Memory(index) => read(index).commits(),
            Self::File(index) => index.file().commits(),
        }
    }

    /// The ordinal of the last commit that begins at or before this sequence number. What has no events stands before the commit with
    /// the same number, so it is only found where there is no such commit yet.
    pub(crate) fn ordinal_of(&self, sequence_number: SequenceNumber) -> Answer<Option<u32>> {
        match self {
            Self::Memory(index) => Ok(read(index).ordinal_of(sequence_number)),
            Self::File(index) => index.ask(|index| index.ordinal_of(sequence_number)),
        }
    }

    /// Where these commits stand; ordinals past the end are left out.
    pub(crate) fn entries(&self, ordinals: &[u32]) -> Answer<Vec<Entry>> {
        match self {
            Self::Memory(index) => Ok(read(index).entries(ordinals)),
            Self::File(index) => index.ask(|index| index.entries(ordinals)),
        }
    }

    /// The commits of these ordinals that may hold this term, ascending.
    pub(crate) fn postings(&self, term: Term, within: Range<u32>) -> Answer<Vec<u32>> {
        match self {
            Self::Memory(index) => Ok(read(index).postings(term, within)),
            Self::File(index) => index.ask(|index| index.postings(term, within.clone())),
        }
    }

    /// The commits that may hold this term, ascending.
    pub(crate) fn all_postings(&self, term: Term) -> Answer<Vec<u32>> {
        self.postings(term, 0..u32::MAX)
    }

    /// How many commits' postings are worth asking for at once. In memory they are copied, so that the lock is held for a moment
    /// only; from a file they are decoded from the beginning each time.
    pub(crate) fn stride(&self) -> u32 {
        const COPIED_AT_ONCE: u32 = 16 * 1024;
        match self {
            Self::Memory(_) => COPIED_AT_ONCE,
            Self::File(_) => u32::MAX,
        }
    }

    /// The aggregates with a commit in this segment whose key is greater than `after` and begins with `prefix`, with their
    /// tenantId, ascending.
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

/// The part of an ascending list that lies within a range.
fn part(ordinals: &[u32], within: &Range<u32>) -> Range<usize> {
    let start = ordinals.partition_point(|ordinal| *ordinal < within.start);
    start..ordinals.partition_point(|ordinal| *ordinal < within.end).max(start)
}

pub(crate) fn read(index: &RwLock<MemoryIndex>) -> std::sync::RwLockReadGuard<'_, MemoryIndex> {
    index.read().unwrap_or_else(PoisonError::into_inner)
}

/// The key an aggregate is listed under: its name, a NUL, its id. Neither part can hold a NUL.
pub(crate) fn aggregate_key(name: &str, id: &str) -> ByteString {
    [name, "\0", id].concat().into()
}

#[cfg(test)]
mod tests;
