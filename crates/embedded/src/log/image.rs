//! The durable content of a log at one moment: the durable part of each segment. Segments only grow and none is ever removed, so an image
//! stays valid while commits continue.

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
    /// The offset after its last commit below the head.
    pub(crate) end: u64,
    /// Whether it has an index file, after which it never changes.
    pub(crate) closed: bool,
}

impl Log {
    /// Takes an image of the log. A damaged log has none, because what follows the damage would be missing.
    pub(crate) fn image(&self) -> Result<LogImage, StoreError> {
        let core = &self.core;
        if let Some(damage @ StoreError::Damaged(_)) = core.refusal() {
            return Err(damage);
        }
        let mut head = 0;
        let mut segments = Vec::new();
        for segment in &core.view().segments {
            // Indexes hold only durable commits, and only the last segment of the view may grow meanwhile.
            let (durable_end, next) = segment.index.reach();
            head = next;
            let end = match core.options.has(SeededBug::BackUpPastHead) {
                true => written_end(&segment.at).map_err(|error| StoreError::Io(error.to_string()))?,
                false => durable_end,
            };
            let closed = segment.memory().is_none();
            // The last segment may still be empty.
            if end > SEGMENT_HEADER {
                segments.push(SegmentImage { at: segment.at.clone(), first: segment.first, end, closed });
            }
        }
        Ok(LogImage { scope: core.place.scope.clone(), dir: core.place.dir.clone(), head, segments })
    }
}

/// Returns where the frames in the file end, synced or not. A backup must not rely on this.
fn written_end(at: &SegmentFile) -> std::io::Result<u64> {
    let mut walk = super::Walk::new(at, u64::MAX)?;
    let mut end = SEGMENT_HEADER;
    while let super::Step::Commit(placed) = walk.step()? {
        end = placed.end;
    }
    Ok(end)
}
