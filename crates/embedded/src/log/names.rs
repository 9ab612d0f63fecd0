//! The names of a log's files.

use crate::whole::UNFINISHED;

const SEGMENT: &str = ".segment";
const INDEX: &str = ".index";
/// How far the log reached when it was closed in an orderly way.
pub(crate) const CHECKPOINT: &str = "checkpoint.json";

pub(crate) fn segment(dir: &str, number: u64) -> String {
    format!("{dir}/{number:010}{SEGMENT}")
}

pub(crate) fn index(dir: &str, number: u64) -> String {
    format!("{dir}/{number:010}{INDEX}")
}

/// What the packed form of a segment is called until it takes the segment's place.
pub(crate) fn packing(dir: &str, number: u64) -> String {
    format!("{dir}/{number:010}.packed{UNFINISHED}")
}

/// The number of the segment whose file has this name.
pub(crate) fn segment_number(name: &str) -> Option<u64> {
    let number = name.strip_suffix(SEGMENT)?;
    (number.len() >= 10).then(|| number.parse().ok()).flatten()
}

/// The number of the segment whose index has this name.
pub(crate) fn index_number(name: &str) -> Option<u64> {
    let number = name.strip_suffix(INDEX)?;
    (number.len() >= 10).then(|| number.parse().ok()).flatten()
}

/// The file that keeps what recovery cut from a segment at an offset. Nothing reads it.
pub(super) fn cut(segment: &str, offset: u64) -> String {
    format!("{segment}.{offset}.cut")
}
