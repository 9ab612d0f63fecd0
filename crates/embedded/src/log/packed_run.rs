//! A run of packed frames that were read at once. They are unpacked a few at a time, because a page may end before the run does.

use std::ops::Range;

use annals_core::{StoreError, Version};
use bytes::Bytes;

use super::segment::SegmentFile;
use crate::index::Entry;
use crate::packed::{self, Packed, SPARE, Unpacked};

/// The number of frames that are unpacked at once.
const PIECE: usize = 16;

/// A run of frames of a packed segment.
pub(super) struct PackedRun<'a> {
    at: &'a SegmentFile,
    packed: &'a Packed,
    entries: &'a [Entry],
    bytes: Vec<u8>,
}

/// Payloads that were unpacked together.
#[derive(Default)]
pub(super) struct Piece {
    /// The place of its first frame in the run.
    from: usize,
    payloads: Bytes,
    places: Vec<Unpacked>,
}

impl<'a> PackedRun<'a> {
    /// Creates a run from the `bytes` of the frames at `entries`.
    pub(super) fn new(at: &'a SegmentFile, packed: &'a Packed, entries: &'a [Entry], mut bytes: Vec<u8>) -> Self {
        bytes.resize(bytes.len() + SPARE, 0);
        Self { at, packed, entries, bytes }
    }

    /// Returns the places of each piece.
    pub(super) fn pieces(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let end = self.entries.len();
        (0..end).step_by(PIECE).map(move |from| from..end.min(from + PIECE))
    }

    /// Unpacks the frames at these places after verifying them. The payloads are written to `out`, with arbitrary bytes after the last.
    pub(super) fn unpack(&self, places: Range<usize>, out: &mut Vec<u8>) -> Result<Vec<Unpacked>, StoreError> {
        let entries = &self.entries[places];
        let bytes = &self.bytes[(entries[0].offset - self.entries[0].offset) as usize..];
        let frames = entries.iter().map(|entry| (entry.offset, entry.length));
        let unpacked = packed::unpack(self.packed, self.at.salt, bytes, frames, out);
        let unpacked = unpacked.map_err(|n| self.at.damage(entries[n].offset, "a commit is damaged"))?;
        for (unpacked, entry) in unpacked.iter().zip(entries) {
            if unpacked.sequence_number != entry.sequence_number {
                return Err(self.at.damage(entry.offset, "a commit has a different number from its index"));
            }
        }
        Ok(unpacked)
    }

    /// Returns the version and the payload of the commit at this place. `piece` caches what was unpacked last.
    pub(super) fn payload(&self, n: usize, piece: &mut Piece) -> Result<(Version, Bytes), StoreError> {
        if !(piece.from..piece.from + piece.places.len()).contains(&n) {
            let from = n / PIECE * PIECE;
            let mut payloads = Vec::new();
            let places = self.unpack(from..self.entries.len().min(from + PIECE), &mut payloads)?;
            *piece = Piece { from, payloads: payloads.into(), places };
        }
        let Unpacked { start, end, version, .. } = piece.places[n - piece.from];
        Ok((version, piece.payloads.slice(start..end)))
    }
}
