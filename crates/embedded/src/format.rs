//! The layout of a segment file: a header, then frames, then zeros. A packed segment (`packed.rs`) has the same header with another
//! format number.
//!
//! ```text
//! segment   64 bytes of header │ frame │ frame │ … │ zeros written ahead
//! frame     40 bytes of header │ payload │ zeros up to a multiple of 8
//!
//! segment header   0 magic "ANNALSEG" · 8 format u32 · 12 zero · 16 number u64 · 24 salt u64 · 32 capacity u64 ·
//!                  40 zeros, in a packed segment its first sequence number u64 · 48 owner u64 · 56 zeros · 60 crc32c of bytes 0..60
//! frame header     0 magic u16 · 2 kind u8 · 3 flags u8 · 4 payload length u32 · 8 first sequence number u64 · 16 version u64
//!                  24 durable_to u64 · 32 crc32c of the payload · 36 crc32c of (salt, offset of the frame, bytes 0..36)
//! ```
//!
//! A frame holds a commit, or only a change of prepare keys. In the latter case it has no events, its version is 0, and its first
//! sequence number is the one that the next event will get.
//!
//! All numbers are little-endian. The owner is a keyed hash of the scope's name, by which a segment of another store or scope is
//! recognised; 0 means that none was recorded. `durable_to` is the offset in the same segment up to which everything had been synced when
//! the frame was written: the start of its batch. The salt is random and the offset is part of the checksum, so neither event data nor
//! leftover bytes can pass for a frame. Unknown kinds and flags are refused: they belong to a newer format, which will be recorded in the
//! segment header. Flags are reserved for a chained hash and a key id.

/// The format of stores: of their small files, and of segments of plain frames.
pub const FORMAT: u32 = 1;
/// The format of packed segments, which is the newest that this version reads.
const PACKED_FORMAT: u32 = 2;
pub(crate) const SEGMENT_HEADER: u64 = 64;
pub(crate) const FRAME_HEADER: usize = 40;
const SEGMENT_MAGIC: &[u8; 8] = b"ANNALSEG";
const FRAME_MAGIC: u16 = 0x4e41;
const KIND_COMMIT: u8 = 1;

/// The largest payload that a reader accepts: a commit's data and everything stored with it.
pub(crate) const PAYLOAD_MAX: usize = 32 * 1024 * 1024;

/// The header of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) number: u64,
    pub(crate) salt: u64,
    /// The size of the file in bytes, all synced, before this header was written. A shorter file was cut since.
    pub(crate) capacity: u64,
    /// The sequence number of the first event of a packed segment; `None` for a segment of plain frames.
    pub(crate) packed_from: Option<u64>,
    /// The store and scope it belongs to; 0 if not recorded.
    pub(crate) owner: u64,
}

impl SegmentHeader {
    /// Returns whether the header names another store or scope as its owner.
    pub(crate) fn is_foreign(&self, owner: u64) -> bool {
        self.owner != 0 && self.owner != owner
    }
}

/// Why the bytes are not a valid segment header.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SegmentHeaderFault {
    /// Written by a newer version.
    Newer(u32),
    /// Not as written, or never completely written.
    Damaged,
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> [u8; SEGMENT_HEADER as usize] {
        let mut out = [0; SEGMENT_HEADER as usize];
        out[0..8].copy_from_slice(SEGMENT_MAGIC);
        let format = if self.packed_from.is_some() { PACKED_FORMAT } else { FORMAT };
        out[8..12].copy_from_slice(&format.to_le_bytes());
        out[16..24].copy_from_slice(&self.number.to_le_bytes());
        out[24..32].copy_from_slice(&self.salt.to_le_bytes());
        out[32..40].copy_from_slice(&self.capacity.to_le_bytes());
        out[40..48].copy_from_slice(&self.packed_from.unwrap_or(0).to_le_bytes());
        out[48..56].copy_from_slice(&self.owner.to_le_bytes());
        let crc = crc32c::crc32c(&out[..60]);
        out[60..64].copy_from_slice(&crc.to_le_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, SegmentHeaderFault> {
        let whole = bytes.len() >= SEGMENT_HEADER as usize && &bytes[0..8] == SEGMENT_MAGIC;
        if !whole || crc32c::crc32c(&bytes[..60]) != u32_at(bytes, 60) {
            return Err(SegmentHeaderFault::Damaged);
        }
        let packed_from = match u32_at(bytes, 8) {
            FORMAT => None,
            PACKED_FORMAT => Some(u64_at(bytes, 40)),
            newer => return Err(SegmentHeaderFault::Newer(newer)),
        };
        let (number, salt, capacity, owner) =
            (u64_at(bytes, 16), u64_at(bytes, 24), u64_at(bytes, 32), u64_at(bytes, 48));
        Ok(Self { number, salt, capacity, packed_from, owner })
    }
}

/// The header of a frame: what the log writer adds to a payload that was encoded before its place was known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) payload_length: u32,
    pub(crate) sequence_number: u64,
    pub(crate) version: u64,
    pub(crate) durable_to: u64,
    pub(crate) payload_crc: u32,
}

impl FrameHeader {
    /// Returns the length of a frame with this payload length, including padding.
    pub(crate) fn frame_length(payload_length: usize) -> usize {
        (FRAME_HEADER + payload_length).next_multiple_of(8)
    }

    pub(crate) fn encode(&self, salt: u64, offset: u64) -> [u8; FRAME_HEADER] {
        let mut out = [0; FRAME_HEADER];
        out[0..2].copy_from_slice(&FRAME_MAGIC.to_le_bytes());
        out[2] = KIND_COMMIT;
        out[4..8].copy_from_slice(&self.payload_length.to_le_bytes());
        out[8..16].copy_from_slice(&self.sequence_number.to_le_bytes());
        out[16..24].copy_from_slice(&self.version.to_le_bytes());
        out[24..32].copy_from_slice(&self.durable_to.to_le_bytes());
        out[32..36].copy_from_slice(&self.payload_crc.to_le_bytes());
        let crc = header_crc(salt, offset, &out[..36]);
        out[36..40].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Decodes the header of the frame at `offset`, or returns `None` if the bytes are not one.
    pub(crate) fn decode(bytes: &[u8], salt: u64, offset: u64) -> Option<Self> {
        let bytes = bytes.get(..FRAME_HEADER)?;
        let known = bytes[0..2] == FRAME_MAGIC.to_le_bytes() && bytes[2] == KIND_COMMIT && bytes[3] == 0;
        if !known || header_crc(salt, offset, &bytes[..36]) != u32_at(bytes, 36) {
            return None;
        }
        let header = Self {
            payload_length: u32_at(bytes, 4),
            sequence_number: u64_at(bytes, 8),
            version: u64_at(bytes, 16),
            durable_to: u64_at(bytes, 24),
            payload_crc: u32_at(bytes, 32),
        };
        (header.payload_length as usize <= PAYLOAD_MAX).then_some(header)
    }

    /// Returns the payload that follows this header in `frame`, or `None` if it is truncated or not as written.
    pub(crate) fn payload<'a>(&self, frame: &'a [u8]) -> Option<&'a [u8]> {
        let payload = frame.get(FRAME_HEADER..FRAME_HEADER + self.payload_length as usize)?;
        (crc32c::crc32c(payload) == self.payload_crc).then_some(payload)
    }
}

/// Gives the bytes at the start of `frame` the checksums of a frame, for fuzzers. Returns the frame's length, or `None` if the bytes
/// cannot be a frame.
pub(crate) fn repair_frame(frame: &mut [u8], salt: u64, offset: u64) -> Option<usize> {
    frame[0..2].copy_from_slice(&FRAME_MAGIC.to_le_bytes());
    (frame[2], frame[3]) = (KIND_COMMIT, 0);
    let length = u32_at(frame, 4) as usize % 4096;
    frame[4..8].copy_from_slice(&(length as u32).to_le_bytes());
    let crc = crc32c::crc32c(frame.get(FRAME_HEADER..FRAME_HEADER + length)?);
    frame[32..36].copy_from_slice(&crc.to_le_bytes());
    let crc = header_crc(salt, offset, &frame[..36]);
    frame[36..40].copy_from_slice(&crc.to_le_bytes());
    Some(FrameHeader::frame_length(length))
}

fn header_crc(salt: u64, offset: u64, bytes: &[u8]) -> u32 {
    let crc = crc32c::crc32c(&salt.to_le_bytes());
    let crc = crc32c::crc32c_append(crc, &offset.to_le_bytes());
    crc32c::crc32c_append(crc, bytes)
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_header_survives_and_a_newer_format_is_told_from_damage() {
        let packed = SegmentHeader { number: 7, salt: 3, capacity: 4096, packed_from: Some(9), owner: 5 };
        assert_eq!(SegmentHeader::decode(&packed.encode()), Ok(packed));
        let header = SegmentHeader {
            number: 7,
            salt: 0x0123_4567_89ab_cdef,
            capacity: 4096,
            packed_from: None,
            owner: u64::MAX,
        };
        let mut bytes = header.encode();
        assert_eq!(SegmentHeader::decode(&bytes), Ok(header));
        bytes[30] ^= 1;
        assert_eq!(SegmentHeader::decode(&bytes), Err(SegmentHeaderFault::Damaged));
        bytes[30] ^= 1;
        bytes[8] = 3;
        let crc = crc32c::crc32c(&bytes[..60]);
        bytes[60..64].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(SegmentHeader::decode(&bytes), Err(SegmentHeaderFault::Newer(3)));
    }

    #[test]
    fn a_frame_is_only_a_frame_at_its_place_in_its_segment() {
        let payload = b"payload";
        let header = FrameHeader {
            payload_length: 7,
            sequence_number: 5,
            version: 2,
            durable_to: 64,
            payload_crc: crc32c::crc32c(payload),
        };
        let bytes = header.encode(1, 64);
        assert_eq!(FrameHeader::decode(&bytes, 1, 64), Some(header));
        assert_eq!(FrameHeader::decode(&bytes, 2, 64), None);
        assert_eq!(FrameHeader::decode(&bytes, 1, 72), None);
        for bit in 0..FRAME_HEADER * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(FrameHeader::decode(&flipped, 1, 64), None, "bit {bit}");
        }
        let mut frame = bytes.to_vec();
        frame.extend_from_slice(payload);
        assert_eq!(header.payload(&frame), Some(&payload[..]));
        frame[42] ^= 1;
        assert_eq!(header.payload(&frame), None);
    }
}
