//! Reads a segment frame by frame if there is no index to trust.

use std::io;
use std::sync::Arc;

use annals_core::SequenceNumber;
use bytes::Bytes;

use super::segment::SegmentFile;
use crate::format::{FRAME_HEADER, FrameHeader, SEGMENT_HEADER};
use crate::packed::{self, Framed, Packed, SPARE, Unpacked};
use crate::record::{self, Record};

pub(super) const WINDOW: usize = 4 * 1024 * 1024;
pub(super) const BLOCK: usize = 4096;

/// The content of a segment up to the first position without a valid frame.
pub(crate) struct Scan {
    /// The offset after the last valid frame of a complete commit. A transaction counts as a whole or not at all.
    pub(crate) end: u64,
    /// The sequence number that follows.
    pub(crate) next: SequenceNumber,
    /// The offset at which the last batch starts; everything below is known to have been synced.
    pub(crate) durable_to: u64,
    /// Whether an incomplete transaction begins at `end`, as a torn batch can leave it.
    pub(crate) begun: bool,
    /// Whether the frame at `end` is valid, but does not follow on or cannot be decoded. No crash leaves that behind.
    pub(crate) foreign: bool,
}

/// A file that is read through a window.
pub(super) struct Window<'a> {
    file: &'a SegmentFile,
    length: u64,
    start: u64,
    bytes: Bytes,
}

impl<'a> Window<'a> {
    pub(super) fn new(file: &'a SegmentFile) -> io::Result<Self> {
        Ok(Self { file, length: file.file.length()?, start: 0, bytes: Bytes::new() })
    }

    /// Reads up to `length` bytes at `offset`; fewer at the end of the file.
    pub(super) fn at(&mut self, offset: u64, length: usize) -> io::Result<Bytes> {
        let inside = |window: &Self| {
            offset >= window.start && offset + length as u64 <= window.start + window.bytes.len() as u64
        };
        if !inside(self) {
            let left = self.length.saturating_sub(offset).min(length.max(WINDOW) as u64);
            let mut buffer = vec![0; left as usize];
            let got = self.file.file.read_at(&mut buffer, offset)?;
            buffer.truncate(got);
            (self.start, self.bytes) = (offset, buffer.into());
        }
        let from = (offset - self.start) as usize;
        Ok(self.bytes.slice(from..self.bytes.len().min(from + length)))
    }

    pub(super) fn packed(&self) -> Option<Arc<Packed>> {
        self.file.packed.clone()
    }

    pub(super) fn salt(&self) -> u64 {
        self.file.salt
    }

    /// Reads the frame at `offset` of a packed segment if it is valid: its length, first sequence number, version and payload.
    pub(super) fn record(&mut self, packed: &Packed, offset: u64) -> io::Result<Option<(u32, u64, u64, Bytes)>> {
        const HEAD_MAX: usize = 16;
        let Some(framed) = Framed::at(&self.at(offset, HEAD_MAX)?, self.file.salt, offset) else { return Ok(None) };
        let mut bytes = self.at(offset, framed.length())?.to_vec();
        if bytes.len() < framed.length() {
            return Ok(None);
        }
        bytes.resize(framed.length() + SPARE, 0);
        let place = (offset, framed.length() as u32);
        let mut payload = Vec::new();
        let unpacked = packed::unpack(packed, self.file.salt, &bytes, std::iter::once(place), &mut payload).ok();
        Ok(unpacked.map(|places| {
            let Unpacked { end, sequence_number, version, .. } = places[0];
            payload.truncate(end);
            (place.1, sequence_number, version, payload.into())
        }))
    }

    /// Reads the frame at `offset`, or `None` if there is no valid one.
    pub(super) fn frame(&mut self, offset: u64, checked: bool) -> io::Result<Option<(FrameHeader, Bytes)>> {
        let head = self.at(offset, FRAME_HEADER)?;
        let Some(header) = FrameHeader::decode(&head, self.file.salt, offset) else { return Ok(None) };
        let frame = self.at(offset, FRAME_HEADER + header.payload_length as usize)?;
        let whole = frame.len() == FRAME_HEADER + header.payload_length as usize;
        if !whole || (checked && header.payload(&frame).is_none()) {
            return Ok(None);
        }
        Ok(Some((header, frame.slice(FRAME_HEADER..))))
    }
}

/// How a segment is read. Both fields are true unless a seeded bug is active.
#[derive(Clone, Copy)]
pub(crate) struct How {
    /// Whether checksums of payloads are verified.
    pub(crate) checked: bool,
    /// Whether transactions are taken as a whole or not at all.
    pub(crate) whole: bool,
}

impl How {
    pub(crate) const RIGHT: Self = Self { checked: true, whole: true };
}

/// Reads the commits of a segment that follow on from sequence number `next`, and passes each to `visit` with its offset and length.
pub(crate) fn scan(
    file: &SegmentFile,
    next: SequenceNumber,
    how: How,
    mut visit: impl FnMut(u64, u32, Record),
) -> io::Result<Scan> {
    let mut window = Window::new(file)?;
    let mut scan = Scan { end: SEGMENT_HEADER, next, durable_to: SEGMENT_HEADER, begun: false, foreign: false };
    // The read position and the next sequence number; `begun` holds the commits of a transaction between `scan.end` and there.
    let (mut at, mut due) = (scan.end, scan.next);
    let mut begun: Vec<(u64, u32, Record)> = Vec::new();
    while let Some((header, payload)) = window.frame(at, how.checked)? {
        let follows = header.sequence_number == due && header.durable_to <= scan.end;
        let length = (FRAME_HEADER + payload.len()) as u32;
        let record = record::decode(payload, header.sequence_number, header.version, &record::unknown_origin);
        let Some(record) = record.filter(|record| follows && (!how.whole || continues(&begun, record))) else {
            scan.foreign = how.checked;
            break;
        };
        due = record.next();
        let whole = !how.whole || record.transaction().is_none_or(|it| it.ends());
        begun.push((at, length, record));
        at = (at + u64::from(length)).next_multiple_of(8);
        if whole {
            begun.drain(..).for_each(|(offset, length, record)| visit(offset, length, record));
            (scan.end, scan.next, scan.durable_to) = (at, due, header.durable_to);
        }
    }
    scan.begun = !begun.is_empty();
    Ok(scan)
}

/// Returns whether a commit continues the transaction that has begun, or stands alone if none has.
fn continues(begun: &[(u64, u32, Record)], record: &Record) -> bool {
    record::goes_on(begun.first().map(|(_, _, first)| first), begun.len(), record)
}

/// What follows the last valid frame.
pub(super) struct Rest {
    /// The offset after the last byte that is not zero, or the start of the search if all are zero.
    pub(super) end: u64,
    /// The highest offset that a valid frame in this range records as synced; `None` if there is no valid frame.
    pub(super) durable_to: Option<u64>,
}

/// Searches `from..to` for bytes that are not zero, and for valid frames.
pub(super) fn search(file: &SegmentFile, from: u64, to: u64) -> io::Result<Rest> {
    let mut window = Window::new(file)?;
    let mut frames = Window::new(file)?;
    let mut rest = Rest { end: from, durable_to: None };
    let mut offset = from;
    while offset < to {
        let bytes = window.at(offset, WINDOW.min((to - offset) as usize))?;
        if bytes.is_empty() {
            break;
        }
        for (start, block) in (offset..).step_by(BLOCK).zip(bytes.chunks(BLOCK)) {
            // Nearly all of it is zeros written ahead.
            if block == &[0; BLOCK][..block.len()] {
                continue;
            }
            for (at, word) in (start..).step_by(8).zip(block.chunks(8)) {
                if word.iter().all(|byte| *byte == 0) {
                    continue;
                }
                rest.end = at + word.len() as u64;
                if let Some((header, _)) = frames.frame(at, true)? {
                    rest.durable_to = rest.durable_to.max(Some(header.durable_to));
                }
            }
        }
        offset += bytes.len() as u64;
    }
    Ok(rest)
}

/// Returns whether a valid frame immediately follows the segment's header, whatever its sequence number.
pub(super) fn starts_with_a_frame(file: &SegmentFile) -> io::Result<bool> {
    Ok(Window::new(file)?.frame(SEGMENT_HEADER, true)?.is_some())
}
