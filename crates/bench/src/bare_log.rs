//! The minimum between the bare disk and an event log: a checksum for each frame, the version check and the request check, with
//! everything in two hash maps. Nothing can be read by aggregate, type or tag, and a start would have to read everything.

use std::collections::{HashMap, HashSet};

use crate::workload::Turn;

/// What the probe's writer checks before it writes a commit.
pub trait Check: Send + 'static {
    /// Returns the checksum of a commit's bytes, which the caller computes.
    fn checksum(bytes: &[u8]) -> u32;

    /// Returns whether the commit may be appended.
    fn admit(&mut self, turn: &Turn) -> bool;
}

/// No checks: the disk alone.
pub struct Unchecked;

impl Check for Unchecked {
    fn checksum(_: &[u8]) -> u32 {
        0
    }

    fn admit(&mut self, _: &Turn) -> bool {
        true
    }
}

/// The bare log.
#[derive(Default)]
pub struct Checked {
    versions: HashMap<String, u64>,
    requests: HashSet<String>,
}

impl Check for Checked {
    fn checksum(bytes: &[u8]) -> u32 {
        crc32c::crc32c(bytes)
    }

    fn admit(&mut self, turn: &Turn) -> bool {
        if self.requests.contains(&turn.request_id) {
            return false;
        }
        match self.versions.get_mut(&turn.aggregate_id) {
            Some(version) if *version != turn.expected_version => return false,
            Some(version) => *version += 1,
            None if turn.expected_version != 0 => return false,
            None => {
                self.versions.insert(turn.aggregate_id.clone(), 1);
            }
        }
        self.requests.insert(turn.request_id.clone())
    }
}
