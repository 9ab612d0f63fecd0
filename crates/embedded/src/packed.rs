//! Packed segments: closed segments in a compact form.
//!
//! ```text
//! file        64 bytes of header, as in format.rs │ dictionary │ packed frame │ packed frame │ … │ zeros up to a multiple of 8
//! dictionary  length u32 · crc32c of (salt, bytes) u32 · bytes
//!             bytes: texts (how many, their lengths, their bytes) · shapes (how many, each behind its length)
//! packed frame      length of the body · 1 byte that checks it · crc32c of (salt, offset of the packed frame, body) u32 · body
//! body        2 × length of the payload, + 1 when it is stored as it is · first sequence number − the segment's · version ·
//!             the payload: as it is, or packed
//! ```
//!
//! Lengths and numbers have variable length unless stated otherwise. A packed frame holds one commit and can be read on its own. It
//! unpacks to the original payload, byte for byte, so there is a single decoder of commits, in `record.rs`.
//!
//! - `shape.rs`: documents as a shape and values
//! - `payload.rs`: the parts of a payload, packed and unpacked
//! - `dictionary.rs`: what a segment's packed frames have in common, and finding it
//! - `frame.rs`: packed frames in a file, with their checksums

mod bytes;
mod dictionary;
mod frame;
mod payload;
mod shape;
#[cfg(test)]
mod tests;

use std::io;

use crate::disk::DiskFile;
use crate::format::{SEGMENT_HEADER, SegmentHeader, u32_at};

pub(crate) use dictionary::{Codes, Counts, Dictionary};
pub(crate) use frame::{Framed, SPARE, Unpacked, pack, unpack};

/// The number of bytes before the dictionary.
const DICTIONARY_HEADER: usize = 8;
/// The largest dictionary that a reader accepts, in bytes.
const DICTIONARY_BYTES_MAX: u32 = 16 * 1024 * 1024;

/// What is needed to read the packed frames of a segment.
pub(crate) struct Packed {
    pub(crate) dictionary: Dictionary,
    /// The sequence number of the segment's first event.
    pub(crate) first: u64,
    /// The offset of the first packed frame.
    pub(crate) records_at: u64,
}

impl Packed {
    /// Returns the beginning of a packed segment's file, up to its first packed frame.
    pub(crate) fn prefix(header: &SegmentHeader, dictionary: &[u8]) -> Vec<u8> {
        let mut out = header.encode().to_vec();
        out.extend_from_slice(&(dictionary.len() as u32).to_le_bytes());
        out.extend_from_slice(&salted_crc(header.salt, dictionary).to_le_bytes());
        out.extend_from_slice(dictionary);
        out
    }

    /// Reads the dictionary of the packed segment with this header, whose first sequence number is `first`. Returns `None` if it is not
    /// as written.
    pub(crate) fn open(file: &dyn DiskFile, header: &SegmentHeader, first: u64) -> io::Result<Option<Self>> {
        let mut head = [0; DICTIONARY_HEADER];
        let got = file.read_at(&mut head, SEGMENT_HEADER)?;
        let length = u32_at(&head, 0);
        if got < head.len() || length > DICTIONARY_BYTES_MAX {
            return Ok(None);
        }
        let mut bytes = vec![0; length as usize];
        let start = SEGMENT_HEADER + DICTIONARY_HEADER as u64;
        let got = file.read_at(&mut bytes, start)?;
        if got < bytes.len() || salted_crc(header.salt, &bytes) != u32_at(&head, 4) {
            return Ok(None);
        }
        let records_at = start + u64::from(length);
        Ok(Dictionary::decode(&bytes).map(|dictionary| Self { dictionary, first, records_at }))
    }
}

fn salted_crc(salt: u64, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&salt.to_le_bytes()), bytes)
}
