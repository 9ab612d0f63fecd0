//! The names of a log's files.

use crate::whole::UNFINISHED;

const SEGMENT: &str = ".segment";
const INDEX: &str = ".index";
/// Records how far the log reached at its last clean shutdown.
pub(crate) const CHECKPOINT: &str = "checkpoint.json";

pub(crate) fn segment(dir: &str, number: u64) -> String {
    format!("{dir}/{number:010}{SEGMENT}")
}

pub(crate) fn index(dir: &str, number: u64) -> String {
    format!("{dir}/{number:010}{INDEX}")
}

/// Returns the name of a segment's packed form until it replaces the segment.
pub(crate) fn packing(dir: &str, number: u64) -> String {
    format!("{dir}/{number:010}.packed{UNFINISHED}")
}

/// Returns the number of the segment whose file has this name.
pub(crate) fn segment_number(name: &str) -> Option<u64> {
    let number = name.strip_suffix(SEGMENT)?;
    (number.len() >= 10).then(|| number.parse().ok()).flatten()
}

/// Returns the number of the segment whose index has this name.
pub(crate) fn index_number(name: &str) -> Option<u64> {
    let number = name.strip_suffix(INDEX)?;
    (number.len() >= 10).then(|| number.parse().ok()).flatten()
}

/// Returns the name of the file that keeps what recovery cut from a segment at an offset. No code reads it.
pub(super) fn cut(segment: &str, offset: u64) -> String {
    format!("{segment}.{offset}.cut")
}
