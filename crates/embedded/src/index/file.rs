//! The index of a closed segment: a file that is written once.
//!
//! ```text
//! entries     12 bytes per commit: sequence number − first, offset, length (u32 each)
//! terms       16 bytes per term, ascending: term u64, value u32, count u32; the ordinal itself when count is 1,
//!             else the offset of `count` ordinals in postings
//! postings    ordinals as differences, variable length
//! keys        u32 per aggregate: the offset of its key in names, ascending by key
//! names       key and tenantId, each behind its length
//! resident    what stays in memory: Bloom filter, every 256th term, every 256th entry's sequence number
//! footer      the last page: magic, format, which segment, sections
//! ```

use std::ops::Range;
use std::sync::Arc;

use annals_core::{ByteString, SequenceNumber};

use super::bloom::Bloom;
use super::memory::{MemoryIndex, Packed};
use super::pages::{self, PAGE, Pages, Section};
use super::{Answer, Entry, IndexFault, part};
use crate::disk::DiskFile;
use crate::format::{u32_at, u64_at};
use crate::terms::{Term, short};
use crate::varint;

const MAGIC: &[u8; 8] = b"ANNALIDX";
const FORMAT: u32 = 1;
/// One entry in this many is kept in memory.
const FENCE: usize = 256;
const ENTRY_BYTES: u64 = 12;
const TERM_BYTES: u64 = 16;
const SECTIONS: usize = 6;
const FOOTER_BYTES: usize = 52 + SECTIONS * 12;

/// The segment to which an index belongs, and how far it reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) number: u64,
    pub(crate) salt: u64,
    pub(crate) first: SequenceNumber,
    pub(crate) next: SequenceNumber,
    /// The offset after the segment's last frame.
    pub(crate) end: u64,
}

/// The index of a closed segment.
pub(crate) struct FileIndex {
    pages: Pages,
    extent: Extent,
    sections: [Section; SECTIONS],
    bloom: Bloom,
    term_fences: Vec<Term>,
    entry_fences: Vec<u32>,
}

/// Encodes the index file of a closed segment. `requests` is true unless a seeded bug is active.
pub(crate) fn encode(index: &MemoryIndex, number: u64, salt: u64, requests: bool) -> Vec<u8> {
    let mut entries = Vec::with_capacity(index.packed.len() * ENTRY_BYTES as usize);
    for packed in &index.packed {
        for value in [packed.sequence_delta, packed.offset, packed.length] {
            entries.extend_from_slice(&value.to_le_bytes());
        }
    }
    let (terms, postings, sorted) = encode_terms(index, requests);
    let (mut keys, mut names) = (Vec::new(), Vec::new());
    for (key, tenant_id) in &index.aggregates {
        keys.extend_from_slice(&(names.len() as u32).to_le_bytes());
        varint::put_bytes(&mut names, key.as_bytes());
        varint::put_bytes(&mut names, tenant_id.as_bytes());
    }
    let bloom = Bloom::of(sorted.iter().copied()).encode();
    let mut resident = (bloom.len() as u64).to_le_bytes().to_vec();
    resident.extend_from_slice(&bloom);
    sorted.iter().step_by(FENCE).for_each(|term| resident.extend_from_slice(&term.to_le_bytes()));
    for packed in index.packed.iter().step_by(FENCE) {
        resident.extend_from_slice(&packed.sequence_delta.to_le_bytes());
    }
    let mut out = Vec::new();
    let sections = [entries, terms, postings, keys, names, resident].map(|bytes| pages::append(&mut out, &bytes));
    let extent = Extent { number, salt, first: index.first, next: index.next_sequence_number(), end: index.end() };
    pages::append(&mut out, &encode_footer(extent, &sections));
    out
}

fn encode_terms(index: &MemoryIndex, requests: bool) -> (Vec<u8>, Vec<u8>, Vec<Term>) {
    let mut all: Vec<(Term, std::borrow::Cow<'_, [u32]>)> =
        index.postings.iter().map(|(term, ordinals)| (*term, ordinals.as_slice().into())).collect();
    let requests = index.requests.iter().filter(|_| requests);
    all.extend(requests.map(|(request, ordinal)| (short(*request), vec![*ordinal].into())));
    all.sort_unstable_by_key(|(term, _)| *term);
    // Terms of different kinds that collide share one list.
    let mut merged: Vec<(Term, std::borrow::Cow<'_, [u32]>)> = Vec::with_capacity(all.len());
    for (term, ordinals) in all {
        match merged.last_mut().filter(|(last, _)| *last == term) {
            None => merged.push((term, ordinals)),
            Some((_, shared)) => {
                let shared = shared.to_mut();
                shared.extend_from_slice(&ordinals);
                shared.sort_unstable();
                shared.dedup();
            }
        }
    }
    let (mut terms, mut postings) = (Vec::with_capacity(merged.len() * TERM_BYTES as usize), Vec::new());
    for (term, ordinals) in &merged {
        let value = if let [only] = **ordinals { only } else { postings.len() as u32 };
        terms.extend_from_slice(&term.to_le_bytes());
        terms.extend_from_slice(&value.to_le_bytes());
        terms.extend_from_slice(&(ordinals.len() as u32).to_le_bytes());
        if ordinals.len() > 1 {
            let mut last = 0;
            for ordinal in ordinals.iter() {
                varint::put(&mut postings, u64::from(ordinal - last));
                last = *ordinal;
            }
        }
    }
    (terms, postings, merged.into_iter().map(|(term, _)| term).collect())
}

fn encode_footer(extent: Extent, sections: &[Section; SECTIONS]) -> Vec<u8> {
    let mut out = Vec::with_capacity(FOOTER_BYTES);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&FORMAT.to_le_bytes());
    for value in [extent.number, extent.salt, extent.first, extent.next, extent.end] {
        out.extend_from_slice(&value.to_le_bytes());
    }
    for section in sections {
        out.extend_from_slice(&section.first_page.to_le_bytes());
        out.extend_from_slice(&section.length.to_le_bytes());
    }
    out
}

impl FileIndex {
    /// Reads the footer and the resident section. Any fault means that the index must be rebuilt from the segment.
    pub(crate) fn open(file: Arc<dyn DiskFile>, name: String) -> Answer<Self> {
        let length = file.length().map_err(|error| IndexFault(format!("{name}: {error}")))?;
        let pages = Pages { file, name };
        let last_page = (length / PAGE as u64).checked_sub(1).filter(|_| length % PAGE as u64 == 0);
        let last_page = last_page.ok_or_else(|| pages.fault(0))?;
        let place = Section { first_page: last_page as u32, length: FOOTER_BYTES as u64 };
        let footer = pages.read(place, 0, FOOTER_BYTES as u64)?;
        if &footer[0..8] != MAGIC || u32_at(&footer, 8) != FORMAT {
            return Err(pages.fault(last_page));
        }
        let number_at = |n: usize| u64_at(&footer, 12 + n * 8);
        let extent = Extent {
            number: number_at(0),
            salt: number_at(1),
            first: number_at(2),
            next: number_at(3),
            end: number_at(4),
        };
        let sections: [Section; SECTIONS] = std::array::from_fn(|n| Section {
            first_page: u32_at(&footer, 52 + n * 12),
            length: u64_at(&footer, 56 + n * 12),
        });
        let [entries, terms, .., resident] = sections;
        if sections.iter().any(|section| section.length > length || u64::from(section.first_page) > last_page) {
            return Err(pages.fault(last_page));
        }
        let bytes = pages.read(resident, 0, resident.length)?;
        let term_fences = fence_count(terms.length / TERM_BYTES);
        let entry_fences = fence_count(entries.length / ENTRY_BYTES);
        let parts = decode_resident(&bytes, term_fences, entry_fences);
        let (bloom, term_fences, entry_fences) = parts.ok_or_else(|| pages.fault(u64::from(resident.first_page)))?;
        Ok(Self { pages, extent, sections, bloom, term_fences, entry_fences })
    }

    pub(crate) fn extent(&self) -> Extent {
        self.extent
    }

    pub(crate) fn commits(&self) -> u32 {
        (self.sections[0].length / ENTRY_BYTES) as u32
    }

    pub(crate) fn next_sequence_number(&self) -> SequenceNumber {
        self.extent.next
    }

    /// Encodes an index of the same commits at other offsets, in a file with this salt in which they end at `end`.
    pub(crate) fn moved(&self, salt: u64, end: u64, places: &[(u32, u32)]) -> Answer<Vec<u8>> {
        let all = self.packed(0, u64::from(self.commits()))?;
        if all.len() != places.len() {
            return Err(IndexFault(format!("{} does not have as many commits as its segment", self.pages.name)));
        }
        let mut entries = Vec::with_capacity(all.len() * ENTRY_BYTES as usize);
        for (packed, (offset, length)) in all.iter().zip(places) {
            for value in [packed.sequence_delta, *offset, *length] {
                entries.extend_from_slice(&value.to_le_bytes());
            }
        }
        let mut out = Vec::new();
        let mut sections = [pages::append(&mut out, &entries); SECTIONS];
        for (moved, section) in sections.iter_mut().zip(self.sections).skip(1) {
            *moved = pages::append(&mut out, &self.pages.read(section, 0, section.length)?);
        }
        pages::append(&mut out, &encode_footer(Extent { salt, end, ..self.extent }, &sections));
        Ok(out)
    }

    /// Returns false only if no commit contains the term. Reads nothing.
    pub(crate) fn may_hold(&self, term: Term) -> bool {
        self.bloom.may_hold(term)
    }

    pub(crate) fn ordinal_of(&self, sequence_number: SequenceNumber) -> Answer<Option<u32>> {
        let Some(delta) = sequence_number.checked_sub(self.extent.first) else { return Ok(None) };
        let fence = self.entry_fences.partition_point(|fence| u64::from(*fence) <= delta);
        let Some(block) = fence.checked_sub(1) else { return Ok(None) };
        let packed = self.packed(block as u64 * FENCE as u64, FENCE as u64)?;
        let after = packed.partition_point(|packed| u64::from(packed.sequence_delta) <= delta);
        Ok(((block * FENCE + after) as u32).checked_sub(1))
    }

    fn packed(&self, from: u64, count: u64) -> Answer<Vec<Packed>> {
        let bytes = self.pages.read(self.sections[0], from * ENTRY_BYTES, count * ENTRY_BYTES)?;
        let packed = bytes.chunks_exact(ENTRY_BYTES as usize).map(|entry| Packed {
            sequence_delta: u32_at(entry, 0),
            offset: u32_at(entry, 4),
            length: u32_at(entry, 8),
        });
        Ok(packed.collect())
    }

    pub(crate) fn entries(&self, ordinals: &[u32]) -> Answer<Vec<Entry>> {
        let mut entries = Vec::with_capacity(ordinals.len());
        let mut rest = ordinals;
        while let Some(&first) = rest.first() {
            // Adjacent entries are read at once.
            let neighbours = rest.iter().zip(u64::from(first)..);
            let run = neighbours.take_while(|(ordinal, next)| u64::from(**ordinal) == *next).count();
            let packed = self.packed(u64::from(first), run as u64)?;
            entries.extend(packed.into_iter().map(|packed| packed.entry(self.extent.first)));
            rest = &rest[run..];
        }
        Ok(entries)
    }

    pub(crate) fn postings(&self, term: Term, within: Range<u32>) -> Answer<Vec<u32>> {
        let mut ordinals = self.postings_below(term, within.end)?;
        let part = part(&ordinals, &within);
        ordinals.truncate(part.end);
        ordinals.drain(..part.start);
        Ok(ordinals)
    }

    /// Returns the ordinals of a term below `end`, and decodes no others.
    fn postings_below(&self, term: Term, end: u32) -> Answer<Vec<u32>> {
        if !self.may_hold(term) {
            return Ok(Vec::new());
        }
        let fence = self.term_fences.partition_point(|fence| *fence <= term);
        let Some(block) = fence.checked_sub(1) else { return Ok(Vec::new()) };
        let span = FENCE as u64 * TERM_BYTES;
        let bytes = self.pages.read(self.sections[1], block as u64 * span, span)?;
        let (terms, _) = bytes.as_chunks::<{ TERM_BYTES as usize }>();
        let Ok(at) = terms.binary_search_by_key(&term, |entry| u64_at(entry, 0)) else { return Ok(Vec::new()) };
        let (value, count) = (u32_at(&terms[at], 8), u32_at(&terms[at], 12));
        if count == 1 {
            return Ok(vec![value]);
        }
        const LONGEST: u64 = 5;
        let bytes = self.pages.read(self.sections[2], u64::from(value), u64::from(count) * LONGEST)?;
        let mut left = &bytes[..];
        // Each ordinal takes at least one byte, whatever the count claims.
        let mut ordinals = Vec::with_capacity(bytes.len().min(count as usize));
        let mut last = 0u64;
        for _ in 0..count {
            let sum = varint::take(&mut left).and_then(|difference| last.checked_add(difference));
            last = sum.ok_or_else(|| self.pages.fault(u64::from(value)))?;
            if last >= u64::from(end) {
                break;
            }
            ordinals.push(last as u32);
        }
        Ok(ordinals)
    }

    pub(crate) fn aggregates(
        &self,
        prefix: &[u8],
        after: &[u8],
        limit: usize,
    ) -> Answer<Vec<(ByteString, ByteString)>> {
        let count = self.sections[3].length / 4;
        let wanted = |key: &ByteString| key.as_bytes() > after && key.as_bytes() >= prefix;
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = low + (high - low) / 2;
            if wanted(&self.key(middle)?.0) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        let mut found = Vec::new();
        for n in low..count.min(low + limit as u64) {
            let pair = self.key(n)?;
            if !pair.0.as_bytes().starts_with(prefix) {
                break;
            }
            found.push(pair);
        }
        Ok(found)
    }

    fn key(&self, n: u64) -> Answer<(ByteString, ByteString)> {
        /// A name, a NUL, an id, a tenantId and their lengths.
        const LONGEST: u64 = 100 + 1 + 256 + 256 + 6;
        let fault = || self.pages.fault(u64::from(self.sections[4].first_page));
        let offset = self.pages.read(self.sections[3], n * 4, 4)?;
        let offset = offset.first_chunk::<4>().map(|bytes| u32::from_le_bytes(*bytes)).ok_or_else(fault)?;
        let bytes = self.pages.read(self.sections[4], u64::from(offset), LONGEST)?;
        let mut reader = varint::Reader(bytes.into());
        reader.text().zip(reader.text()).ok_or_else(fault)
    }
}

fn fence_count(entries: u64) -> usize {
    entries.div_ceil(FENCE as u64) as usize
}

fn decode_resident(bytes: &[u8], terms: usize, entries: usize) -> Option<(Bloom, Vec<Term>, Vec<u32>)> {
    let (length, rest) = bytes.split_first_chunk::<8>()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    let (bloom, rest) = rest.split_at_checked(length)?;
    let (term_bytes, entry_bytes) = rest.split_at_checked(terms * 8)?;
    if entry_bytes.len() != entries * 4 {
        return None;
    }
    let term_fences = term_bytes.chunks_exact(8).map(|bytes| u64_at(bytes, 0)).collect();
    let entry_fences = entry_bytes.chunks_exact(4).map(|bytes| u32_at(bytes, 0)).collect();
    Some((Bloom::decode(bloom)?, term_fences, entry_fences))
}
