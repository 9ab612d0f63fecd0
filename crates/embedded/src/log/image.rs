//! What a log holds at one moment: the part of each segment that is durable. Segments only grow and none is ever removed, so it stays
//! what it is while commits go on.

use annals_core::{SequenceNumber, StoreError};

use super::Log;
use super::segment::SegmentFile;
use crate::format::SEGMENT_HEADER;
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
        let mut head = 0;
        let mut segments = Vec::new();
        for segment in &core.view().segments {
            // Indexes hold what is durable, and only the last one of the view may grow meanwhile.
            let (durable_end, next) = segment.index.reach();
            head = next;
            let end = match core.options.has(SeededBug::BackUpPastHead) {
                true => written_end(&segment.at).map_err(|error| StoreError::Io(error.to_string()))?,
                false => durable_end,
            };
            let closed = segment.memory().is_none();
            // The last one may have nothing yet.
            if end > SEGMENT_HEADER {
                segments.push(SegmentImage { at: segment.at.clone(), first: segment.first, end, closed });
            }
        }
        Ok(LogImage { scope: core.place.scope.clone(), dir: core.place.dir.clone(), head, segments })
    }
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
