//! The names of a log's files.

const SEGMENT: &str = ".segment";
const INDEX: &str = ".index";
/// How far the log reached when it was closed in an orderly way.
pub(super) const CHECKPOINT: &str = "checkpoint.json";

pub(super) fn segment(dir: &str, number: u64) -> String {
    format!("{dir}/{number:010}{SEGMENT}")
}

pub(super) fn index(dir: &str, number: u64) -> String {
    format!("{dir}/{number:010}{INDEX}")
}

/// The number of the segment whose file has this name.
pub(super) fn segment_number(name: &str) -> Option<u64> {
    let number = name.strip_suffix(SEGMENT)?;
    (number.len() >= 10).then(|| number.parse().ok()).flatten()
}
