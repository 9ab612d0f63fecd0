//! The map's file: redb's storage interface on a [`DiskFile`].

use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::disk::DiskFile;
use crate::refused::is_full;

/// The number of zero bytes written at once when the file grows.
const ZEROS: usize = 1024 * 1024;
/// The part of the file that redb changes in place. Everything else is written to free pages and synced before the header refers to it.
const HEADER_BYTES: u64 = PAGE_BYTES;
/// The size of redb's pages.
const PAGE_BYTES: u64 = 4096;

/// Lets the mover wait while the disk is full. redb does not recover from a failed write, and everything that was to be written is still
/// in the journal.
#[derive(Default)]
pub(super) struct Patience {
    state: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    /// Whether the journal is being moved. Only then do writes wait; otherwise their errors are returned.
    moving: bool,
    for_room: bool,
    ended: bool,
}

/// How often a write to a full disk is retried.
const TRY_EVERY: Duration = Duration::from_millis(250);

impl Patience {
    fn state(&self) -> MutexGuard<'_, Waiting> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether a write waits for room on the disk.
    pub(super) fn waits_for_room(&self) -> bool {
        self.state().for_room
    }

    /// Runs `work`, and lets its writes wait for room.
    pub(super) fn while_moving<T>(&self, work: impl FnOnce() -> T) -> T {
        self.state().moving = true;
        let done = work();
        self.state().moving = false;
        done
    }

    /// Ends all waiting, now and in the future.
    pub(super) fn end(&self) {
        self.state().ended = true;
        self.changed.notify_all();
    }

    /// Calls `write` until it succeeds or fails for a reason other than a full disk.
    fn until_there_is_room(&self, mut write: impl FnMut() -> io::Result<()>) -> io::Result<()> {
        loop {
            match write() {
                Err(error) if is_full(&error) && self.wait(&error) => {}
                written => {
                    self.state().for_room = false;
                    return written;
                }
            }
        }
    }

    fn wait(&self, why: &io::Error) -> bool {
        let mut state = self.state();
        if !state.moving || state.ended {
            return false;
        }
        if !std::mem::replace(&mut state.for_room, true) {
            tracing::warn!(%why, "moving the journal of records and streams waits for free disk space");
        }
        let (state, _) = self
            .changed
            .wait_timeout_while(state, TRY_EVERY, |state| !state.ended)
            .unwrap_or_else(PoisonError::into_inner);
        !state.ended
    }
}

/// The file that holds the map.
pub(super) struct MapFile {
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) patience: Arc<Patience>,
}

impl fmt::Debug for MapFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MapFile")
    }
}

impl MapFile {
    /// Returns whether the file can be a map at all. In an empty file redb would create a new map, and the loss of the old one would go
    /// unnoticed.
    pub(super) fn is_whole(&self) -> io::Result<bool> {
        Ok(self.file.length()? >= 2 * PAGE_BYTES)
    }

    /// Pads the file to a page boundary: a process that was growing it may have stopped in the middle of a page, after everything that is
    /// referred to. A file that was cut elsewhere gets zeros in place of the lost bytes, which fail every checksum.
    pub(super) fn end_at_a_page(&self) -> io::Result<()> {
        let length = self.file.length()?;
        let missing = length.next_multiple_of(PAGE_BYTES) - length;
        if missing == 0 { Ok(()) } else { self.file.write_at(&vec![0; missing as usize], length) }
    }

    /// Makes durable what reading the file returns. After a failed sync the page cache shows bytes that the disk may not hold and that no
    /// later sync would write. Everything that the header refers to was synced before the header was written, so only the header itself
    /// and the file's length may be missing.
    pub(super) fn make_durable_again(&self) -> io::Result<()> {
        let length = self.file.length()?;
        for (from, to) in [(0, HEADER_BYTES.min(length)), (length.saturating_sub(1), length)] {
            let mut bytes = vec![0; (to - from) as usize];
            self.read_whole(from, &mut bytes)?;
            self.file.write_at(&bytes, from)?;
        }
        self.file.sync()
    }

    fn read_whole(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        match self.file.read_at(out, offset)? {
            count if count == out.len() => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl redb::StorageBackend for MapFile {
    fn len(&self) -> io::Result<u64> {
        self.file.length()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.read_whole(offset, out)
    }

    /// Grows the file by real zeros, so that a full disk is noticed at once and later syncs change no file length.
    fn set_len(&self, length: u64) -> io::Result<()> {
        let mut end = self.file.length()?;
        if length < end {
            return self.file.truncate(length);
        }
        let zeros = vec![0; ZEROS.min((length - end) as usize)];
        self.patience.until_there_is_room(|| {
            while end < length {
                let count = (length - end).min(ZEROS as u64);
                self.file.write_at(&zeros[..count as usize], end)?;
                end += count;
            }
            Ok(())
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.patience.until_there_is_room(|| self.file.write_at(data, offset))
    }
}
