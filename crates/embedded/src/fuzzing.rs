//! Decoders of the on-disk formats, for fuzzers. Not part of the API.

use std::sync::Arc;

use crate::disk::{Disk, DiskFile, MemoryDisk, Open};
use crate::format::{FRAME_HEADER, SEGMENT_HEADER, SegmentHeader};
use crate::index::FileIndex;
use crate::record;

fn file(bytes: &[u8]) -> Option<Arc<dyn DiskFile>> {
    let file = MemoryDisk::default().open("file", Open::Create).ok()?;
    file.write_at(bytes, 0).ok()?;
    Some(file)
}

/// Decodes the payload of a frame. Returns how many events it has and how many prepare keys it changes, or `None` if it is invalid.
pub fn decode_payload(bytes: &[u8]) -> Option<(usize, usize)> {
    record::decode(bytes.to_vec().into(), 7, 3, &record::unknown_origin)
        .map(|record| (record.commit.events.len(), record.keys.reserve.len() + record.keys.release.len()))
}

/// Reads a segment whose frames were given valid checksums, so that the fuzzer gets past them. Returns the number of its commits.
pub fn decode_frames(bytes: &[u8]) -> Option<usize> {
    let header = SegmentHeader { number: 1, salt: 9, capacity: 0, packed_from: None, owner: 0 };
    let mut segment = header.encode().to_vec();
    segment.extend_from_slice(&bytes[..bytes.len().min(1 << 20)]);
    let mut at = SEGMENT_HEADER as usize;
    while let Some(frame) = segment.get_mut(at..).filter(|frame| frame.len() >= FRAME_HEADER) {
        // A frame shorter than its own length is a torn tail, which is read too.
        let Some(length) = crate::format::repair_frame(frame, header.salt, at as u64) else { break };
        at += length;
    }
    let (name, file) = ("fuzz".to_owned(), file(&segment)?);
    let at = crate::log::SegmentFile { number: 1, salt: 9, name, file, packed: None };
    let mut commits = 0;
    crate::log::scan(&at, 0, crate::log::How::RIGHT, |_, _, _| commits += 1).ok()?;
    Some(commits)
}

/// Reads an index file whose pages were given valid checksums. Returns the number of its commits.
pub fn decode_index(bytes: &[u8]) -> Option<u32> {
    let pages = crate::index::repair_pages(&bytes[..bytes.len().min(1 << 20)]);
    let index = FileIndex::open(file(&pages)?, "fuzz".to_owned()).ok()?;
    for number in [0, 1, 2, 7, u64::MAX] {
        let _ = index.ordinal_of(number);
        let _ = index.postings(number, 0..u32::MAX);
    }
    let _ = index.entries(&[0, 1, 5, u32::MAX]);
    let _ = index.aggregates(b"a\0", b"", 10);
    Some(index.commits())
}
