//! The floor of free disk space. Below it commits are refused while there is still room to read, to close cleanly and to repair.
//!
//! Segments are preallocated, so a commit takes no additional space; other users of the disk do. The disk is checked at most every
//! quarter of a second. While it is below the floor it is checked at every write, so that writes are accepted again as soon as there is
//! room. The store's lock is checked equally often: a process that was idle learns that it lost its store before it writes.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use annals_core::{StoreError, Timestamp};

use crate::Options;
use crate::disk::Disk;
use crate::options::SeededBug;

const LOOK_EVERY_MILLIS: i64 = 250;

pub(crate) struct Floor {
    least: u64,
    looked_at: AtomicI64,
    below: AtomicBool,
}

impl Floor {
    pub(crate) fn new(options: &Options) -> Self {
        let least = if options.has(SeededBug::IgnoreFreeDiskFloor) { 0 } else { options.min_free_disk_bytes };
        Self { least, looked_at: AtomicI64::new(i64::MIN), below: AtomicBool::new(false) }
    }

    /// Refuses a write below the floor with `DiskFull`, and a write to a store whose lock was lost with `Failed`.
    pub(crate) fn check(&self, disk: &dyn Disk, now: Timestamp) -> Result<(), StoreError> {
        let (now, last) = (now.as_millis(), self.looked_at.load(Ordering::Relaxed));
        let recent = now >= last && now.saturating_sub(last) < LOOK_EVERY_MILLIS;
        if recent && !self.below.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.looked_at.store(now, Ordering::Relaxed);
        disk.check_lock().map_err(|error| StoreError::Failed(error.to_string()))?;
        if self.least == 0 {
            return Ok(());
        }
        // A disk that does not report its free space is not treated as full.
        let free = disk.free_bytes().unwrap_or(u64::MAX);
        let below = free < self.least;
        if self.below.swap(below, Ordering::Relaxed) != below {
            tracing::warn!(free, least = self.least, below, "free disk space crossed the floor");
        }
        if below { Err(StoreError::DiskFull(self.sentence(free, 0))) } else { Ok(()) }
    }

    /// Checks that a file of this size can be written without falling below the floor.
    pub(crate) fn leaves_room(&self, disk: &dyn Disk, bytes: u64) -> io::Result<()> {
        if self.least == 0 {
            return Ok(());
        }
        let free = disk.free_bytes().unwrap_or(u64::MAX);
        match free.saturating_sub(bytes) < self.least {
            true => Err(io::Error::new(io::ErrorKind::StorageFull, self.sentence(free, bytes))),
            false => Ok(()),
        }
    }

    fn sentence(&self, free: u64, wanted: u64) -> String {
        let wanted = if wanted > 0 { format!(", {wanted} are needed") } else { String::new() };
        format!("{free} bytes are free{wanted}, and min_free_disk_bytes reserves {}", self.least)
    }
}
