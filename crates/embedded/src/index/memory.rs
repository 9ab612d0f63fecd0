//! The index of a segment that is being written.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::{Bound, Range};

use annals_core::{Aggregate, ByteString, SequenceNumber, Version};

use super::{Entry, aggregate_key, part};
use crate::format::SEGMENT_HEADER;
use crate::terms::{ExactTerm, Term, short};

/// The head of an aggregate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) version: Version,
    pub(crate) tenant_id: ByteString,
}

/// A durable commit as the index needs it. A frame without events has neither aggregate nor request: only its terms are indexed.
pub(crate) struct IndexedCommit<'a> {
    pub(crate) entry: Entry,
    pub(crate) events: u32,
    pub(crate) version: Version,
    pub(crate) aggregate: &'a Aggregate,
    pub(crate) aggregate_term: ExactTerm,
    pub(crate) request_term: ExactTerm,
    /// The terms of its types, its tags and the aggregate's name.
    pub(crate) terms: &'a [Term],
    pub(crate) tenant_id: &'a ByteString,
}

/// A hasher that passes terms through: they are already keyed hashes.
#[derive(Default)]
pub(crate) struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }

    fn write_u128(&mut self, value: u128) {
        self.0 = short(value);
    }
}

pub(crate) type TermMap<K, V> = HashMap<K, V, BuildHasherDefault<AsItIs>>;

/// An entry in 12 bytes. A segment is smaller than 4 GiB and has fewer than 2^32 events.
#[derive(Clone, Copy)]
pub(crate) struct Packed {
    pub(crate) sequence_delta: u32,
    pub(crate) offset: u32,
    pub(crate) length: u32,
}

/// The index of a segment that is being written, or that has no index file yet.
pub(crate) struct MemoryIndex {
    pub(super) first: SequenceNumber,
    next: SequenceNumber,
    pub(super) packed: Vec<Packed>,
    pub(super) postings: TermMap<Term, Vec<u32>>,
    pub(super) requests: TermMap<ExactTerm, u32>,
    heads: TermMap<ExactTerm, Head>,
    pub(super) aggregates: BTreeMap<ByteString, ByteString>,
}

impl MemoryIndex {
    pub(crate) fn new(first: SequenceNumber) -> Self {
        Self {
            first,
            next: first,
            packed: Vec::new(),
            postings: TermMap::default(),
            requests: TermMap::default(),
            heads: TermMap::default(),
            aggregates: BTreeMap::new(),
        }
    }

    /// Adds the commit that follows the last one.
    pub(crate) fn push(&mut self, commit: &IndexedCommit<'_>) {
        debug_assert_eq!(commit.entry.sequence_number, self.next);
        let ordinal = self.packed.len() as u32;
        self.packed.push(Packed {
            sequence_delta: (commit.entry.sequence_number - self.first) as u32,
            offset: commit.entry.offset as u32,
            length: commit.entry.length,
        });
        self.next = commit.entry.sequence_number + u64::from(commit.events);
        for term in commit.terms {
            self.postings.entry(*term).or_default().push(ordinal);
        }
        if commit.events == 0 {
            return;
        }
        self.postings.entry(short(commit.aggregate_term)).or_default().push(ordinal);
        self.requests.insert(commit.request_term, ordinal);
        if let Some(head) = self.heads.get_mut(&commit.aggregate_term) {
            head.version = commit.version;
        } else {
            let Aggregate { name, id } = commit.aggregate;
            self.aggregates.insert(aggregate_key(name, id), commit.tenant_id.clone());
            let head = Head { version: commit.version, tenant_id: commit.tenant_id.clone() };
            self.heads.insert(commit.aggregate_term, head);
        }
    }

    pub(crate) fn head(&self, aggregate: ExactTerm) -> Option<&Head> {
        self.heads.get(&aggregate)
    }

    pub(crate) fn request(&self, request: ExactTerm) -> Option<u32> {
        self.requests.get(&request).copied()
    }

    pub(crate) fn commits(&self) -> u32 {
        self.packed.len() as u32
    }

    /// Returns the offset after the last frame.
    pub(super) fn end(&self) -> u64 {
        let last = self.packed.last();
        last.map_or(SEGMENT_HEADER, |last| (u64::from(last.offset) + u64::from(last.length)).next_multiple_of(8))
    }

    /// Returns how far the durable commits reach: the offset after the last frame, and the next sequence number.
    pub(crate) fn reach(&self) -> (u64, SequenceNumber) {
        (self.end(), self.next)
    }

    /// Returns the sequence number of the segment's first event.
    pub(crate) fn first(&self) -> SequenceNumber {
        self.first
    }

    pub(crate) fn next_sequence_number(&self) -> SequenceNumber {
        self.next
    }

    pub(crate) fn ordinal_of(&self, sequence_number: SequenceNumber) -> Option<u32> {
        let delta = sequence_number.checked_sub(self.first)?;
        let after = self.packed.partition_point(|packed| u64::from(packed.sequence_delta) <= delta);
        (after as u32).checked_sub(1)
    }

    pub(crate) fn entries(&self, ordinals: &[u32]) -> Vec<Entry> {
        let found = ordinals.iter().filter_map(|ordinal| self.packed.get(*ordinal as usize));
        found.map(|packed| packed.entry(self.first)).collect()
    }

    pub(crate) fn postings(&self, term: Term, within: Range<u32>) -> Vec<u32> {
        let Some(ordinals) = self.postings.get(&term) else { return Vec::new() };
        ordinals[part(ordinals, &within)].to_vec()
    }

    pub(crate) fn aggregates(&self, prefix: &[u8], after: &[u8], limit: usize) -> Vec<(ByteString, ByteString)> {
        let Ok(start) = ByteString::try_from(after.max(prefix)) else { return Vec::new() };
        let bound = if after >= prefix { Bound::Excluded(start) } else { Bound::Included(start) };
        let range = self.aggregates.range((bound, Bound::Unbounded));
        let ours = range.take_while(|(key, _)| key.as_bytes().starts_with(prefix));
        ours.take(limit).map(|(key, tenant_id)| (key.clone(), tenant_id.clone())).collect()
    }
}

impl Packed {
    pub(super) fn entry(self, first: SequenceNumber) -> Entry {
        Entry {
            sequence_number: first + u64::from(self.sequence_delta),
            offset: u64::from(self.offset),
            length: self.length,
        }
    }
}
