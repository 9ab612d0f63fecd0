//! The map's file: what redb wants of a file, on a [`DiskFile`].

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::disk::DiskFile;

/// What is written at once when the file grows.
const ZEROS: usize = 1024 * 1024;
/// The part of the file that redb changes in place; all else is written to free pages, synced, and only then referred to from here.
const HEADER_BYTES: u64 = 4096;

/// The file under the map.
pub(super) struct MapFile(pub(super) Arc<dyn DiskFile>);

impl fmt::Debug for MapFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MapFile")
    }
}

impl MapFile {
    /// Makes durable what reading the file shows. After a failed sync the page cache shows bytes that the disk may not hold and that
    /// no later sync would write. Whatever the header refers to was synced before it was written, and so was not part of such a sync;
    /// what may be missing is the header itself and the file's length.
    pub(super) fn make_durable_again(&self) -> io::Result<()> {
        let length = self.0.length()?;
        for (from, to) in [(0, HEADER_BYTES.min(length)), (length.saturating_sub(1), length)] {
            let mut bytes = vec![0; (to - from) as usize];
            self.read_whole(from, &mut bytes)?;
            self.0.write_at(&bytes, from)?;
        }
        self.0.sync()
    }

    fn read_whole(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        match self.0.read_at(out, offset)? {
            count if count == out.len() => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl redb::StorageBackend for MapFile {
    fn len(&self) -> io::Result<u64> {
        self.0.length()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.read_whole(offset, out)
    }

    /// The file grows by zeros that are really there: a full disk is noticed now, and later syncs change no length.
    fn set_len(&self, length: u64) -> io::Result<()> {
        let mut end = self.0.length()?;
        if length < end {
            return self.0.truncate(length);
        }
        let zeros = vec![0; ZEROS.min((length - end) as usize)];
        while end < length {
            let count = (length - end).min(ZEROS as u64);
            self.0.write_at(&zeros[..count as usize], end)?;
            end += count;
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_at(data, offset)
    }
}
