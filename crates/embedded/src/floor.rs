//! The floor of free disk: below it commits are refused while there is still room to read, to close in order and to repair.
//!
//! Segments are made ahead, so a commit takes no room of its own; others on the same disk do. The disk is asked at most every quarter
//! of a second, and at every write while it is below the floor, so that writes are taken again as soon as there is room. The store's
//! lock is looked at as often: a process that was idle learns that it lost its store before it writes.

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

    /// Refuses a write below the floor with `DiskFull`, and one to a store whose lock is gone with `Failed`.
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
        // A disk that does not say is not taken for a full one.
        let free = disk.free_bytes().unwrap_or(u64::MAX);
        let below = free < self.least;
        if self.below.swap(below, Ordering::Relaxed) != below {
            tracing::warn!(free, least = self.least, below, "the disk passed the floor of free bytes");
        }
        if below { Err(StoreError::DiskFull(self.sentence(free, 0))) } else { Ok(()) }
    }

    /// Whether a file of this size can be written without getting below the floor.
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
        let wanted = if wanted > 0 { format!(", {wanted} are wanted") } else { String::new() };
        format!("{free} bytes are free{wanted}, and min_free_disk_bytes keeps {}", self.least)
    }
}
