//! The bytes of the journal's files: a head, followed by batches.

use std::io;

use super::BLOCK;
use crate::engine::recent::Write;
use crate::format::{u32_at, u64_at};
use crate::varint;

/// The length of a batch's header.
pub(super) const HEADER: usize = 20;
const MAGIC: &[u8; 8] = b"ANNALJNL";

/// Returns the head of the file at this place in the journal with this mark.
pub(super) fn head(mark: u64, place: usize) -> [u8; BLOCK] {
    let mut out = [0; BLOCK];
    out[0..8].copy_from_slice(MAGIC);
    out[8..16].copy_from_slice(&mark.to_le_bytes());
    out[16] = place as u8;
    let crc = crc32c::crc32c(&out[..20]);
    out[20..24].copy_from_slice(&crc.to_le_bytes());
    out
}

/// Returns whether these bytes are the head of a journal file, of whichever journal.
pub(super) fn is_head(bytes: &[u8]) -> bool {
    bytes.len() >= BLOCK && &bytes[0..8] == MAGIC && crc32c::crc32c(&bytes[..20]) == u32_at(bytes, 20)
}

/// Returns the mark of the journal to which the file with this head belongs.
pub(super) fn mark_of(bytes: &[u8]) -> Option<u64> {
    is_head(bytes).then(|| u64_at(bytes, 8))
}

/// Encodes a batch into `out`, with the zeros that follow the last batch. Returns its length without them.
pub(super) fn encode(out: &mut Vec<u8>, mark: u64, sequence: u64, writes: &[Write]) -> io::Result<usize> {
    out.clear();
    out.resize(HEADER, 0);
    for (key, value) in writes {
        varint::put_bytes(out, key);
        varint::put(out, value.as_ref().map_or(0, |value| value.len() as u64 + 1));
        out.extend_from_slice(value.as_deref().unwrap_or_default());
    }
    let length = u32::try_from(out.len() - HEADER).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
    out[0..4].copy_from_slice(&length.to_le_bytes());
    out[8..16].copy_from_slice(&sequence.to_le_bytes());
    let crc = checksum(mark, &out[HEADER..]);
    out[4..8].copy_from_slice(&crc.to_le_bytes());
    let crc = checksum(mark, &out[..16]);
    out[16..20].copy_from_slice(&crc.to_le_bytes());
    let end = out.len().next_multiple_of(BLOCK);
    out.resize(end + BLOCK, 0);
    Ok(end)
}

/// Computes a checksum that includes the mark, so that neither a batch of another journal nor bytes in a value can pass for a batch of
/// this one.
fn checksum(mark: u64, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&mark.to_le_bytes()), bytes)
}

/// The header of a batch. It has a checksum of its own, so that a file that ends within a batch can be told apart from one that holds
/// other bytes there.
pub(super) struct Header {
    /// The length of the writes.
    length: usize,
    crc: u32,
    pub(super) sequence: u64,
}

impl Header {
    /// Decodes the header of a batch of this journal at the start of these bytes.
    pub(super) fn at(bytes: &[u8], mark: u64) -> Option<Self> {
        let bytes = bytes.get(..HEADER).filter(|bytes| checksum(mark, &bytes[..16]) == u32_at(bytes, 16))?;
        let (length, crc, sequence) = (u32_at(bytes, 0) as usize, u32_at(bytes, 4), u64_at(bytes, 8));
        (sequence > 0).then_some(Self { length, crc, sequence })
    }

    /// Returns the offset at which the batch ends, relative to its beginning.
    pub(super) fn end(&self) -> usize {
        HEADER + self.length
    }
}

/// A batch as stored in a file.
pub(super) struct Batch<'f> {
    pub(super) sequence: u64,
    pub(super) writes: &'f [u8],
}

impl<'f> Batch<'f> {
    /// Returns the batch of this journal at the start of these bytes, if it is complete.
    pub(super) fn at(bytes: &'f [u8], mark: u64) -> Option<Self> {
        let header = Header::at(bytes, mark)?;
        let writes = bytes.get(HEADER..header.end()).filter(|writes| checksum(mark, writes) == header.crc)?;
        Some(Self { sequence: header.sequence, writes })
    }

    /// Returns the number of bytes that it takes in the file.
    pub(super) fn length(&self) -> usize {
        (HEADER + self.writes.len()).next_multiple_of(BLOCK)
    }

    /// Decodes its writes, or returns `None` if they are malformed.
    pub(super) fn decoded(&self) -> Option<Vec<Write>> {
        let mut rest = self.writes;
        let mut writes = Vec::new();
        while !rest.is_empty() {
            let key = taken(&mut rest)?.into();
            let value = match varint::take(&mut rest)? {
                0 => None,
                length => Some(split(&mut rest, length - 1)?.into()),
            };
            writes.push((key, value));
        }
        Some(writes)
    }
}

fn taken<'b>(rest: &mut &'b [u8]) -> Option<&'b [u8]> {
    let length = varint::take(rest)?;
    split(rest, length)
}

fn split<'b>(rest: &mut &'b [u8], length: u64) -> Option<&'b [u8]> {
    let (bytes, behind) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    *rest = behind;
    Some(bytes)
}
