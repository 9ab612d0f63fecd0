//! A segment, and reading frames from it.

use std::ops::ControlFlow;
use std::sync::{Arc, PoisonError, RwLock};

use annals_core::{RecordedEvent, SequenceNumber, StoreError, Version};
use bytes::Bytes;

use crate::disk::DiskFile;
use crate::format::{FRAME_HEADER, FrameHeader};
use crate::index::{Entry, Index, IndexFault, IndexedCommit, MemoryIndex};
use crate::packed::{self, Packed, SPARE, Unpacked};
use crate::record::{self, Record};

/// Neighbouring frames are read together up to this many bytes.
const WINDOW: u64 = 512 * 1024;
/// So many packed commits are unpacked at once: a page may end before the run does.
const PIECE: usize = 16;
const UNDECODABLE: &str = "a commit cannot be decoded";
const NOT_AS_WRITTEN: &str = "a commit is not what was written";

/// A segment's file and what its header says.
#[derive(Clone)]
pub(crate) struct SegmentFile {
    pub(crate) number: u64,
    pub(crate) salt: u64,
    pub(crate) name: String,
    pub(crate) file: Arc<dyn DiskFile>,
    /// What a packed segment is read with; none for one of frames.
    pub(crate) packed: Option<Arc<Packed>>,
}

/// Commits that were read at once.
struct Run<'a> {
    at: &'a SegmentFile,
    entries: &'a [Entry],
    bytes: Bytes,
    /// Of a packed segment: the commits that were unpacked last.
    piece: Piece,
}

/// Some neighbouring commits of a run.
#[derive(Default)]
struct Piece {
    /// The place of the first one in the run.
    from: usize,
    payloads: Bytes,
    /// Where each stands in `payloads`.
    places: Vec<Unpacked>,
}

/// A segment whose durable commits are indexed.
pub(crate) struct Segment {
    pub(crate) at: SegmentFile,
    pub(crate) first: SequenceNumber,
    pub(crate) index: Index,
}

/// The segments of a log at one moment, oldest first. The last one may be written to.
pub(crate) struct View {
    pub(crate) segments: Vec<Arc<Segment>>,
}

impl SegmentFile {
    /// What a reader is told about bytes that are not what was written.
    pub(crate) fn damage(&self, offset: u64, what: &str) -> StoreError {
        StoreError::Damaged(format!("{} at offset {offset}: {what}", self.name))
    }

    /// Reads the frames that stand at these entries and decodes them. For a few commits only: all of them are held at once.
    pub(crate) fn records(&self, entries: &[Entry]) -> Result<Vec<Record>, StoreError> {
        let mut records = Vec::with_capacity(entries.len());
        for run in runs(entries) {
            for record in self.read(run)? {
                records.push(record?);
            }
        }
        Ok(records)
    }

    /// Reads one run of frames at once and decodes each when it is asked for.
    pub(crate) fn read<'a>(
        &'a self,
        run: &'a [Entry],
    ) -> Result<impl DoubleEndedIterator<Item = Result<Record, StoreError>> + 'a, StoreError> {
        let mut read = self.run(run)?;
        Ok((0..run.len()).map(move |n| {
            let (version, payload) = read.payload(n)?;
            let record = record::decode(payload, run[n].sequence_number, version);
            record.ok_or_else(|| self.damage(run[n].offset, UNDECODABLE))
        }))
    }

    /// Reads one run of frames at once and hands each event to `take`, until it breaks off.
    pub(crate) fn visit(
        &self,
        run: &[Entry],
        mut take: impl FnMut(RecordedEvent) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, StoreError> {
        let mut read = self.run(run)?;
        for (n, entry) in run.iter().enumerate() {
            let (version, payload) = read.payload(n)?;
            let visited = record::decode_events(payload, entry.sequence_number, version, &mut take);
            if visited.ok_or_else(|| self.damage(entry.offset, UNDECODABLE))?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn run<'a>(&'a self, entries: &'a [Entry]) -> Result<Run<'a>, StoreError> {
        let (first, last) = (entries[0], entries[entries.len() - 1]);
        let length = (last.offset + u64::from(last.length) - first.offset) as usize;
        let spare = if self.packed.is_some() { SPARE } else { 0 };
        let bytes = self.bytes(first.offset, length, spare)?;
        Ok(Run { at: self, entries, bytes, piece: Piece::default() })
    }

    /// The header and the payload of the frame at this entry, if both are what was written.
    fn checked(&self, entry: Entry, frame: Bytes) -> Result<(FrameHeader, Bytes), StoreError> {
        let damage = |what| self.damage(entry.offset, what);
        let header = FrameHeader::decode(&frame, self.salt, entry.offset)
            .filter(|header| header.sequence_number == entry.sequence_number)
            .ok_or_else(|| damage("the header of a commit is not what was written"))?;
        header.payload(&frame).ok_or_else(|| damage(NOT_AS_WRITTEN))?;
        Ok((header, frame.slice(FRAME_HEADER..FRAME_HEADER + header.payload_length as usize)))
    }

    /// The version that the commit at this entry gave its aggregate, without reading all of it.
    pub(crate) fn version(&self, entry: Entry) -> Result<Version, StoreError> {
        if self.packed.is_some() {
            return Ok(self.run(&[entry])?.payload(0)?.0);
        }
        let bytes = self.bytes(entry.offset, FRAME_HEADER, 0)?;
        let header = FrameHeader::decode(&bytes, self.salt, entry.offset);
        let header =
            header.ok_or_else(|| self.damage(entry.offset, "the header of a commit is not what was written"))?;
        Ok(header.version)
    }

    /// The bytes there, and zeros to spare behind them.
    fn bytes(&self, offset: u64, length: usize, spare: usize) -> Result<Bytes, StoreError> {
        let mut buffer = vec![0; length + spare];
        match self.file.read_at(&mut buffer[..length], offset) {
            Ok(got) if got == length => Ok(buffer.into()),
            Ok(_) => Err(self.damage(offset, "the file ends before the commit does")),
            Err(error) => Err(StoreError::Io(format!("{} at offset {offset}: {error}", self.name))),
        }
    }
}

impl Run<'_> {
    /// The version and the payload of the commit at this place, if they are what was written.
    fn payload(&mut self, n: usize) -> Result<(Version, Bytes), StoreError> {
        let entry = self.entries[n];
        let Some(packed) = &self.at.packed else {
            let start = (entry.offset - self.entries[0].offset) as usize;
            let frame = self.bytes.slice(start..start + entry.length as usize);
            let (header, payload) = self.at.checked(entry, frame)?;
            return Ok((header.version, payload));
        };
        if !(self.piece.from..self.piece.from + self.piece.places.len()).contains(&n) {
            self.piece = self.unpack(packed, n / PIECE * PIECE)?;
        }
        let Unpacked { start, end, sequence_number, version } = self.piece.places[n - self.piece.from];
        if sequence_number != entry.sequence_number {
            return Err(self.at.damage(entry.offset, "a commit has another number than its index says"));
        }
        Ok((version, self.piece.payloads.slice(start..end)))
    }

    fn unpack(&self, packed: &Packed, from: usize) -> Result<Piece, StoreError> {
        let entries = &self.entries[from..self.entries.len().min(from + PIECE)];
        let bytes = &self.bytes[(entries[0].offset - self.entries[0].offset) as usize..];
        let places = entries.iter().map(|entry| (entry.offset, entry.length));
        let unpacked = packed::unpack(packed, self.at.salt, bytes, places);
        let (payloads, places) = unpacked.map_err(|n| self.at.damage(entries[n].offset, NOT_AS_WRITTEN))?;
        Ok(Piece { from, payloads, places })
    }
}

/// Cuts ascending entries into runs of neighbours, each small enough to be read at once, or a single commit.
pub(crate) fn runs(entries: &[Entry]) -> impl DoubleEndedIterator<Item = &[Entry]> {
    let mut runs = Vec::new();
    let mut start = 0;
    for at in 1..=entries.len() {
        let neighbours = entries.get(at).is_some_and(|entry| {
            let last = entries[at - 1];
            // Frames have up to 7 bytes of padding behind them, packed records none.
            let touches = entry.offset < last.offset + u64::from(last.length) + 8;
            touches && entry.offset + u64::from(entry.length) - entries[start].offset <= WINDOW
        });
        if !neighbours {
            runs.push(&entries[start..at]);
            start = at;
        }
    }
    runs.into_iter()
}

impl Segment {
    /// The index in memory; none once it is in a file.
    pub(crate) fn memory(&self) -> Option<&RwLock<MemoryIndex>> {
        match &self.index {
            Index::Memory(index) => Some(index),
            Index::File(_) => None,
        }
    }

    /// The commits of these ordinals.
    pub(crate) fn records(&self, ordinals: &[u32]) -> Result<Vec<Record>, StoreError> {
        self.at.records(&self.index.entries(ordinals)?)
    }

    /// Adds durable commits and lets `advance` move the head before any reader can see them: whoever is told of a commit then finds
    /// the head past it. Only the log writer calls it, for the last segment.
    pub(crate) fn publish<'a>(&self, commits: impl Iterator<Item = IndexedCommit<'a>>, advance: impl FnOnce()) {
        if let Some(index) = self.memory() {
            let mut index = index.write().unwrap_or_else(PoisonError::into_inner);
            commits.for_each(|commit| index.push(&commit));
            advance();
        }
    }
}

impl View {
    /// The place in `segments` of the one that holds this sequence number, or would; none when there is no segment.
    pub(crate) fn position_of(&self, sequence_number: SequenceNumber) -> Option<usize> {
        self.segments.partition_point(|segment| segment.first <= sequence_number).checked_sub(1)
    }

    /// The number of the first segment whose index is in memory: everything before is in files and does not change.
    pub(crate) fn first_in_memory(&self) -> u64 {
        let in_memory = self.segments.iter().find(|segment| segment.memory().is_some());
        in_memory.map_or(u64::MAX, |segment| segment.at.number)
    }
}

impl From<IndexFault> for StoreError {
    fn from(fault: IndexFault) -> Self {
        Self::Damaged(format!(
            "{}; the store makes this index again when the file is removed and the store opened",
            fault.0
        ))
    }
}
