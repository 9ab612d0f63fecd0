//! Writes the packed form of a segment. A first pass finds what its commits have in common; a second pass writes the packed frames.

use std::io;
use std::sync::Arc;

use bytes::Bytes;

use super::core::Core;
use super::names;
use super::remake::sealed;
use super::scan::Window;
use super::segment::{Segment, SegmentFile};
use crate::disk::{DiskFile, Open};
use crate::format::{FrameHeader, SEGMENT_HEADER, SegmentHeader};
use crate::index::{FileIndex, Sealed};
use crate::options::SeededBug;
use crate::packed::{self, Codes, Counts, Dictionary, Packed};
use crate::whole::write_whole;

/// Packed frames are written in pieces of this many bytes. Reading pauses after as many bytes.
const STEP: usize = 1024 * 1024;
/// The number of bytes at the start of a segment that are sampled to decide whether the rest is worth reading.
const SAMPLE: u64 = 4 * 1024 * 1024;

/// The outcome of writing the packed form.
pub(super) enum Repacked {
    Whole(Written),
    /// Little would be saved.
    NotWorthIt,
    Closing,
}

/// A packed segment that is complete and synced. Its file still has a temporary name.
pub(super) struct Written {
    pub(super) at: SegmentFile,
    /// The bytes of its index.
    index: Vec<u8>,
}

/// Reports how many bytes were read or written; returns false when it is time to stop.
type Pace<'a> = &'a mut dyn FnMut(u64) -> bool;

/// Writes the packed form of `segment` to a file with this name.
pub(super) fn repack(
    core: &Core,
    segment: &Segment,
    index: &Sealed,
    name: &str,
    pace: Pace<'_>,
) -> io::Result<Repacked> {
    let (file, extent) = (&segment.at, index.file().extent());
    core.floor.leaves_room(&*core.place.disk, extent.end)?;
    let saves = |from: u64, to: u64| {
        let least = i64::from(core.options.packing.least_saving_percent);
        (to as i64).saturating_mul(100) <= (from as i64).saturating_mul(100 - least)
    };
    let sample = extent.end.min(SEGMENT_HEADER + SAMPLE);
    if sample < extent.end {
        let Some(codes) = count(file, sample, pace)? else { return Ok(Repacked::Closing) };
        let mut nowhere = Records::new(core, segment, codes, None)?;
        if !nowhere.add(file, sample, pace)? {
            return Ok(Repacked::Closing);
        }
        // The whole dictionary is left out, because in the full segment more commits share it.
        if !saves(sample, nowhere.end() - nowhere.start) {
            return Ok(Repacked::NotWorthIt);
        }
    }
    let Some(codes) = count(file, extent.end, pace)? else { return Ok(Repacked::Closing) };
    match core.place.disk.remove(name) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let to = core.place.disk.open(name, Open::Create)?;
    let mut records = Records::new(core, segment, codes, Some(to))?;
    if !records.add(file, extent.end, pace)? {
        return Ok(Repacked::Closing);
    }
    if !saves(extent.end, records.end()) {
        return Ok(Repacked::NotWorthIt);
    }
    records.finish(core, segment, index).map(Repacked::Whole)
}

/// Passes every frame of a segment below `to` to `take`; returns false when it is time to stop.
fn each_frame(
    file: &SegmentFile,
    to: u64,
    pace: Pace<'_>,
    mut take: impl FnMut(FrameHeader, Bytes) -> io::Result<()>,
) -> io::Result<bool> {
    let mut window = Window::new(file)?;
    let (mut offset, mut paused) = (SEGMENT_HEADER, SEGMENT_HEADER);
    while offset < to {
        let frame = window.frame(offset, true)?;
        let Some((header, payload)) = frame else { return Err(io::Error::other(file.damage(offset, DAMAGED))) };
        offset += FrameHeader::frame_length(payload.len()) as u64;
        take(header, payload)?;
        if offset - paused >= STEP as u64 {
            if !pace(offset - paused) {
                return Ok(false);
            }
            paused = offset;
        }
    }
    Ok(true)
}

const DAMAGED: &str = "a commit is damaged";

/// Finds what the commits below `to` have in common, or `None` when it is time to stop.
fn count(file: &SegmentFile, to: u64, pace: Pace<'_>) -> io::Result<Option<Codes>> {
    let mut counts = Counts::default();
    let all = each_frame(file, to, pace, |_, payload| {
        counts.add(&payload);
        Ok(())
    })?;
    Ok(all.then(|| counts.choose()))
}

/// The packed frames of a segment as they are produced.
struct Records {
    header: SegmentHeader,
    dictionary_bytes: Vec<u8>,
    codes: Codes,
    dictionary: Dictionary,
    first: u64,
    /// `None` if the frames are only counted.
    file: Option<Arc<dyn DiskFile>>,
    /// The offset of the first frame.
    start: u64,
    /// The offset in the file at which `pending` belongs.
    at: u64,
    pending: Vec<u8>,
    /// The offset and length of each frame.
    places: Vec<(u32, u32)>,
}

impl Records {
    fn new(core: &Core, segment: &Segment, codes: Codes, file: Option<Arc<dyn DiskFile>>) -> io::Result<Self> {
        let dictionary_bytes = codes.encode();
        let dictionary = Dictionary::decode(&dictionary_bytes);
        let dictionary = dictionary.ok_or_else(|| io::Error::other("a dictionary that cannot be read again"))?;
        let salt = match core.options.has(SeededBug::KeepSaltOfPacked) {
            true => segment.at.salt,
            false => core.options.random.bits() as u64,
        };
        let first = segment.first;
        // The length of the file is known once the last packed frame is written.
        let (number, owner) = (segment.at.number, core.place.owner());
        let header = SegmentHeader { number, salt, capacity: 0, packed_from: Some(first), owner };
        let start = Packed::prefix(&header, &dictionary_bytes).len() as u64;
        let (pending, places) = (Vec::new(), Vec::new());
        Ok(Self { header, dictionary_bytes, codes, dictionary, first, file, start, at: start, pending, places })
    }

    fn end(&self) -> u64 {
        self.at + self.pending.len() as u64
    }

    /// Adds the commits of a segment below `to`; returns false when it is time to stop.
    fn add(&mut self, from: &SegmentFile, to: u64, pace: Pace<'_>) -> io::Result<bool> {
        each_frame(from, to, pace, |header, payload| {
            let offset = self.end();
            let numbers = (header.sequence_number - self.first, header.version);
            packed::pack(
                &self.codes,
                &self.dictionary,
                (self.header.salt, offset),
                numbers,
                &payload,
                &mut self.pending,
            );
            let place = |number: u64| u32::try_from(number).map_err(io::Error::other);
            self.places.push((place(offset)?, place(self.end() - offset)?));
            if self.pending.len() >= STEP { self.write() } else { Ok(()) }
        })
    }

    fn write(&mut self) -> io::Result<()> {
        if let Some(file) = &self.file {
            file.write_at(&self.pending, self.at)?;
        }
        self.at += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }

    /// Completes the file, and the index that goes with it.
    fn finish(mut self, core: &Core, segment: &Segment, index: &Sealed) -> io::Result<Written> {
        if core.options.has(SeededBug::ForgetLastPackedRecord) && self.pending.len() > 1 {
            let last = self.places.last().map_or(0, |(_, length)| *length as usize);
            let from = self.pending.len() - last;
            self.pending[from..].fill(0);
        }
        self.header.capacity = self.end().next_multiple_of(8);
        let padding = (self.header.capacity - self.end()) as usize;
        self.pending.resize(self.pending.len() + padding, 0);
        self.write()?;
        let Some(file) = self.file else { return Err(io::Error::other("records that are only counted have no file")) };
        file.write_at(&Packed::prefix(&self.header, &self.dictionary_bytes), 0)?;
        if !core.options.has(SeededBug::RenamePackedBeforeSync) {
            file.sync()?;
        }
        let SegmentHeader { number, salt, capacity, .. } = self.header;
        let moved =
            index.ask(|index| index.moved(salt, capacity, &self.places)).map_err(|fault| io::Error::other(fault.0))?;
        let packed = Packed { dictionary: self.dictionary, first: self.first, records_at: self.start };
        let name = segment.at.name.clone();
        Ok(Written { at: SegmentFile { number, salt, name, file, packed: Some(Arc::new(packed)) }, index: moved })
    }
}

impl Written {
    /// Writes the index, and returns the segment with its new form.
    pub(super) fn with_index(self, core: &Core, first: u64) -> io::Result<Segment> {
        let name = names::index(&core.place.dir, self.at.number);
        let file = write_whole(&*core.place.disk, &core.place.dir, &name, &self.index)?;
        let index = FileIndex::open(file, name).map_err(|fault| io::Error::other(fault.0))?;
        let index = sealed(&core.place, core.notes(), index, &self.at, first);
        Ok(Segment { at: self.at, first, index })
    }
}
