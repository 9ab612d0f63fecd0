//! What a log holds at one moment: the part of each segment that is durable. Segments only grow and none is ever removed, so it stays
//! what it is while commits go on.

use annals_core::{SequenceNumber, StoreError};

use super::Log;
use super::segment::{Segment, SegmentFile};
use crate::format::SEGMENT_HEADER;
use crate::index::Index;
use crate::options::SeededBug;

/// A log up to its durable head.
pub(crate) struct LogImage {
    pub(crate) scope: String,
    pub(crate) dir: String,
    pub(crate) head: SequenceNumber,
    pub(crate) segments: Vec<SegmentImage>,
}

/// The durable part of a segment.
pub(crate) struct SegmentImage {
    pub(crate) at: SegmentFile,
    pub(crate) first: SequenceNumber,
    /// The offset behind its last commit below the head.
    pub(crate) end: u64,
    /// Whether it has an index file; then it never changes again.
    pub(crate) closed: bool,
}

impl Log {
    /// The log as it is now. A damaged one has no image: what stands behind the damage would be missing.
    pub(crate) fn image(&self) -> Result<LogImage, StoreError> {
        let core = &self.core;
        if let Some(damage @ StoreError::Damaged(_)) = core.refusal() {
            return Err(damage);
        }
        // The head is read first: the view that is read after it holds at least as much.
        let head = core.head();
        let mut segments = Vec::new();
        for segment in &core.view().segments {
            if segment.first >= head {
                break;
            }
            let end = match core.options.has(SeededBug::BackUpPastHead) {
                true => written_end(&segment.at).map_err(|error| StoreError::Io(error.to_string()))?,
                false => durable_end(segment, head)?,
            };
            let closed = segment.memory().is_none();
            segments.push(SegmentImage { at: segment.at.clone(), first: segment.first, end, closed });
        }
        Ok(LogImage { scope: core.place.scope.clone(), dir: core.place.dir.clone(), head, segments })
    }
}

fn durable_end(segment: &Segment, head: SequenceNumber) -> Result<u64, StoreError> {
    if let Index::File(index) = &segment.index {
        return Ok(index.extent().end);
    }
    let Some(last) = segment.index.ordinal_of(head - 1)? else { return Ok(SEGMENT_HEADER) };
    let entries = segment.index.entries(&[last])?;
    let end = entries.last().map(|entry| (entry.offset + u64::from(entry.length)).next_multiple_of(8));
    Ok(end.unwrap_or(SEGMENT_HEADER))
}

/// Where the frames in the file end, synced or not: what a backup must not go by.
fn written_end(at: &SegmentFile) -> std::io::Result<u64> {
    let mut walk = super::Walk::new(at, u64::MAX)?;
    let mut end = SEGMENT_HEADER;
    while let super::Step::Commit(placed) = walk.step()? {
        end = placed.end;
    }
    Ok(end)
}
