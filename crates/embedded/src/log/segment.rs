//! A segment, and how frames are read from it.

use std::ops::ControlFlow;
use std::sync::{Arc, PoisonError, RwLock};

use annals_core::{EventRef, SequenceNumber, StoreError, Uuid, Version};
use bytes::Bytes;

use super::packed_run::{PackedRun, Piece};
use crate::disk::DiskFile;
use crate::format::{FRAME_HEADER, FrameHeader};
use crate::index::{Entry, Index, IndexFault, IndexedCommit, MemoryIndex};
use crate::packed::Packed;
use crate::record::{self, Owner, Record};

/// Adjacent frames are read together up to this many bytes.
const WINDOW: u64 = 512 * 1024;
const UNDECODABLE: &str = "a commit cannot be decoded";

/// Finds the id of a transaction for a commit whose frame lacks it, from the entry of the commit and its place in the transaction.
type Origin<'a> = dyn Fn(Entry, u32) -> Option<Uuid> + 'a;

/// A segment's file, with the values of its header.
#[derive(Clone)]
pub(crate) struct SegmentFile {
    pub(crate) number: u64,
    pub(crate) salt: u64,
    pub(crate) name: String,
    pub(crate) file: Arc<dyn DiskFile>,
    /// What is needed to read a packed segment; `None` for a segment of plain frames.
    pub(crate) packed: Option<Arc<Packed>>,
}

/// A segment with the index of its durable commits.
pub(crate) struct Segment {
    pub(crate) at: SegmentFile,
    pub(crate) first: SequenceNumber,
    pub(crate) index: Index,
}

/// The segments of a log at one moment, oldest first. Only the last one may still grow.
pub(crate) struct View {
    pub(crate) segments: Vec<Arc<Segment>>,
}

impl SegmentFile {
    /// Returns the error for bytes that are not as written.
    pub(crate) fn damage(&self, offset: u64, what: &str) -> StoreError {
        StoreError::Damaged(format!("{} at offset {offset}: {what}", self.name))
    }

    /// Announces the runs after the first, once the first has been read, so that a disk can fetch them concurrently.
    pub(crate) fn announce(&self, entries: &[Entry]) {
        for run in runs(entries).skip(1) {
            if let (Some(first), Some(last)) = (run.first(), run.last()) {
                self.file.announce(first.offset, last.offset + u64::from(last.length) - first.offset);
            }
        }
    }

    /// Reads one run of frames at once and decodes each frame lazily.
    fn read<'a>(
        &'a self,
        run: &'a [Entry],
        origin: impl Fn(Entry, u32) -> Option<Uuid> + 'a,
    ) -> Result<impl DoubleEndedIterator<Item = Result<Record, StoreError>> + 'a, StoreError> {
        let bytes = self.run(run, Vec::new())?;
        let (bytes, packed) = match &self.packed {
            None => (Bytes::from(bytes), None),
            Some(packed) => (Bytes::new(), Some(PackedRun::new(self, packed, run, bytes))),
        };
        let mut piece = Piece::default();
        Ok((0..run.len()).map(move |n| {
            let entry = run[n];
            let (version, payload) = match &packed {
                Some(packed) => packed.payload(n, &mut piece)?,
                None => {
                    let (header, payload) = self.checked(entry, frame(run, entry, &bytes))?;
                    (header.version, bytes.slice_ref(payload))
                }
            };
            let record = record::decode(payload, entry.sequence_number, version, &|place| origin(entry, place));
            record.ok_or_else(|| self.damage(entry.offset, UNDECODABLE))
        }))
    }

    /// Reads one run of frames at once and passes each event to `take` until it breaks. The `Owner` passed along turns the event into an
    /// owned one.
    fn visit(
        &self,
        run: &[Entry],
        origin: &Origin<'_>,
        mut take: impl FnMut(EventRef<'_>, &mut Owner) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, StoreError> {
        let bytes = self.run(run, Vec::new())?;
        if let Some(packed) = &self.packed {
            return self.visit_packed(&PackedRun::new(self, packed, run, bytes), run, origin, take);
        }
        let bytes = Bytes::from(bytes);
        let mut owner = Owner::new(bytes.clone());
        for entry in run {
            owner.begin_commit();
            if self.visit_frame(*entry, frame(run, *entry, &bytes), origin, |event| take(event, &mut owner))?.is_break()
            {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn visit_packed(
        &self,
        packed: &PackedRun<'_>,
        run: &[Entry],
        origin: &Origin<'_>,
        mut take: impl FnMut(EventRef<'_>, &mut Owner) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, StoreError> {
        for places in packed.pieces() {
            let (from, mut payloads) = (places.start, Vec::new());
            let unpacked = packed.unpack(places, &mut payloads)?;
            let payloads = Bytes::from(payloads);
            let mut owner = Owner::new(payloads.clone());
            for (entry, it) in run[from..].iter().zip(unpacked) {
                owner.begin_commit();
                let payload = &payloads[it.start..it.end];
                if self.visit_payload(*entry, it.version, payload, origin, |event| take(event, &mut owner))?.is_break()
                {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Reads one run of frames at once into `buffer`, replacing its content, and lends each event to `take` until it breaks.
    fn lend(
        &self,
        run: &[Entry],
        buffer: &mut Vec<u8>,
        origin: &Origin<'_>,
        mut take: impl FnMut(EventRef<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, StoreError> {
        if let Some(packed) = &self.packed {
            let packed = PackedRun::new(self, packed, run, self.run(run, Vec::new())?);
            for places in packed.pieces() {
                let from = places.start;
                for (entry, it) in run[from..].iter().zip(packed.unpack(places, buffer)?) {
                    if self.visit_payload(*entry, it.version, &buffer[it.start..it.end], origin, &mut take)?.is_break()
                    {
                        return Ok(ControlFlow::Break(()));
                    }
                }
            }
            return Ok(ControlFlow::Continue(()));
        }
        *buffer = self.run(run, std::mem::take(buffer))?;
        for entry in run {
            if self.visit_frame(*entry, frame(run, *entry, buffer), origin, &mut take)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    #[inline(always)]
    fn visit_frame(
        &self,
        entry: Entry,
        frame: &[u8],
        origin: &Origin<'_>,
        take: impl FnMut(EventRef<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, StoreError> {
        let (header, payload) = self.checked(entry, frame)?;
        self.visit_payload(entry, header.version, payload, origin, take)
    }

    #[inline(always)]
    fn visit_payload(
        &self,
        entry: Entry,
        version: Version,
        payload: &[u8],
        origin: &Origin<'_>,
        take: impl FnMut(EventRef<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, StoreError> {
        let visited = record::visit(payload, entry.sequence_number, version, &|place| origin(entry, place), take);
        visited.ok_or_else(|| self.damage(entry.offset, UNDECODABLE))
    }

    /// Reads the bytes of a run, reusing the memory of `buffer`.
    fn run(&self, run: &[Entry], mut buffer: Vec<u8>) -> Result<Vec<u8>, StoreError> {
        let (first, last) = (run[0], run[run.len() - 1]);
        buffer.clear();
        self.bytes(first.offset, (last.offset + u64::from(last.length) - first.offset) as usize, buffer)
    }

    /// Returns the header and the payload of the frame at this entry, if both have valid checksums and the expected sequence number.
    fn checked<'f>(&self, entry: Entry, frame: &'f [u8]) -> Result<(FrameHeader, &'f [u8]), StoreError> {
        let damage = |what| self.damage(entry.offset, what);
        let header = FrameHeader::decode(frame, self.salt, entry.offset)
            .filter(|header| header.sequence_number == entry.sequence_number)
            .ok_or_else(|| damage("the header of a commit is damaged"))?;
        let payload = header.payload(frame).ok_or_else(|| damage("a commit is damaged"))?;
        Ok((header, payload))
    }

    /// Reads the version of the commit at this entry without reading the whole commit, if the segment is not packed.
    pub(crate) fn version(&self, entry: Entry) -> Result<Version, StoreError> {
        if let Some(packed) = &self.packed {
            let run = [entry];
            let packed = PackedRun::new(self, packed, &run, self.run(&run, Vec::new())?);
            return Ok(packed.payload(0, &mut Piece::default())?.0);
        }
        let bytes = self.bytes(entry.offset, FRAME_HEADER, Vec::new())?;
        let header = FrameHeader::decode(&bytes, self.salt, entry.offset);
        let header = header.ok_or_else(|| self.damage(entry.offset, "the header of a commit is damaged"))?;
        Ok(header.version)
    }

    fn bytes(&self, offset: u64, length: usize, mut buffer: Vec<u8>) -> Result<Vec<u8>, StoreError> {
        match self.file.read_onto(&mut buffer, length, offset) {
            Ok(()) if buffer.len() == length => Ok(buffer),
            Ok(()) => Err(self.damage(offset, "the file ends before the commit does")),
            Err(error) => Err(StoreError::Io(format!("{} at offset {offset}: {error}", self.name))),
        }
    }
}

/// Returns the frame at this entry from the bytes of its run.
fn frame<'f>(run: &[Entry], entry: Entry, bytes: &'f [u8]) -> &'f [u8] {
    let start = (entry.offset - run[0].offset) as usize;
    &bytes[start..start + entry.length as usize]
}

/// Splits ascending entries into runs of adjacent frames. Each run is small enough to be read at once, or is a single commit.
pub(crate) fn runs(entries: &[Entry]) -> impl DoubleEndedIterator<Item = &[Entry]> {
    let mut runs = Vec::new();
    let mut start = 0;
    for at in 1..=entries.len() {
        let neighbours = entries.get(at).is_some_and(|entry| {
            let last = entries[at - 1];
            // Plain frames are followed by up to 7 bytes of padding, packed ones by none.
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
    /// Returns the index if it is in memory, or `None` once it is in a file.
    pub(crate) fn memory(&self) -> Option<&RwLock<MemoryIndex>> {
        match &self.index {
            Index::Memory(index) => Some(index),
            Index::File(_) => None,
        }
    }

    /// Reads the commits with these ordinals.
    pub(crate) fn records(&self, ordinals: &[u32]) -> Result<Vec<Record>, StoreError> {
        self.records_at(&self.index.entries(ordinals)?)
    }

    /// Reads and decodes the frames at these entries. Meant for a few commits only, because all of them are held in memory at once.
    pub(crate) fn records_at(&self, entries: &[Entry]) -> Result<Vec<Record>, StoreError> {
        let mut records = Vec::with_capacity(entries.len());
        for run in runs(entries) {
            for record in self.read(run)? {
                records.push(record?);
            }
        }
        Ok(records)
    }

    /// Reads one run of frames at once and decodes each frame lazily.
    pub(crate) fn read<'a>(
        &'a self,
        run: &'a [Entry],
    ) -> Result<impl DoubleEndedIterator<Item = Result<Record, StoreError>> + 'a, StoreError> {
        self.at.read(run, |entry, place| self.origin(entry, place))
    }

    /// Reads one run of frames at once and passes each event to `take` until it breaks. The `Owner` passed along turns the event into an
    /// owned one.
    pub(crate) fn visit(
        &self,
        run: &[Entry],
        take: impl FnMut(EventRef<'_>, &mut Owner) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, StoreError> {
        self.at.visit(run, &|entry, place| self.origin(entry, place), take)
    }

    /// Reads one run of frames at once into `buffer`, replacing its content, and lends each event to `take` until it breaks.
    pub(crate) fn lend(
        &self,
        run: &[Entry],
        buffer: &mut Vec<u8>,
        take: impl FnMut(EventRef<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, StoreError> {
        self.at.lend(run, buffer, &|entry, place| self.origin(entry, place), take)
    }

    /// Returns the id of the transaction whose commit at `place` is at `entry`. The commits of a transaction are adjacent in one segment.
    fn origin(&self, entry: Entry, place: u32) -> Option<Uuid> {
        let ordinal = self.index.ordinal_of(entry.sequence_number).ok()??;
        let first = self.index.entries(&[ordinal.checked_sub(place)?]).ok()?;
        let record = self.at.read(&first, |_, _| None).ok()?.next()?.ok()?;
        record.transaction().map(|transaction| transaction.id)
    }

    /// Indexes durable commits and lets `advance` move the head before any reader can see them. A reader that sees a commit therefore
    /// finds the head past it. Called only by the log writer, for the last segment.
    pub(crate) fn publish<'a>(&self, commits: impl Iterator<Item = IndexedCommit<'a>>, advance: impl FnOnce()) {
        if let Some(index) = self.memory() {
            let mut index = index.write().unwrap_or_else(PoisonError::into_inner);
            commits.for_each(|commit| index.push(&commit));
            advance();
        }
    }
}

impl View {
    /// Returns the position in `segments` of the one that holds this sequence number or would hold it, or `None` if no segment begins at
    /// or below it.
    pub(crate) fn position_of(&self, sequence_number: SequenceNumber) -> Option<usize> {
        self.segments.partition_point(|segment| segment.first <= sequence_number).checked_sub(1)
    }

    /// Returns the number of the first segment whose index is in memory. All earlier segments have index files and do not change.
    pub(crate) fn first_in_memory(&self) -> u64 {
        let in_memory = self.segments.iter().find(|segment| segment.memory().is_some());
        in_memory.map_or(u64::MAX, |segment| segment.at.number)
    }
}

impl From<IndexFault> for StoreError {
    fn from(fault: IndexFault) -> Self {
        Self::Damaged(fault.0)
    }
}
