//! The disk under the store: the lowest trait, so that tests can inject faults and crashes below the real code.

mod above;
mod memory;
mod overlay;
mod real;

use std::io;
use std::sync::Arc;

pub(crate) use above::Above;
pub use memory::MemoryDisk;
pub use overlay::Overlay;
pub use real::RealDisk;

/// A folder with files. Paths are relative to it and written with `/`.
///
/// Bytes survive a power loss if a later [`DiskFile::sync`] of their file confirmed them, under a name that a later [`Disk::sync_dir`] of
/// its folder confirmed. Everything else may be present, missing or partly present, in any order. The length of a file counts as its
/// content.
pub trait Disk: Send + Sync + 'static {
    /// Creates a folder and its parents, unless they exist.
    ///
    /// # Errors
    /// Errors of the operating system.
    fn create_dir(&self, dir: &str) -> io::Result<()>;

    /// Lists the names in a folder, in no particular order. The list is empty if the folder does not exist.
    ///
    /// # Errors
    /// Errors of the operating system.
    fn list(&self, dir: &str) -> io::Result<Vec<String>>;

    /// Opens a file.
    ///
    /// # Errors
    /// `NotFound`, `AlreadyExists` with [`Open::Create`], or an error of the operating system.
    fn open(&self, path: &str, open: Open) -> io::Result<Arc<dyn DiskFile>>;

    /// Renames a file and replaces the one that has the new name. After a crash either of the two is found under that name, complete.
    ///
    /// # Errors
    /// Errors of the operating system.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// Errors of the operating system.
    fn remove(&self, path: &str) -> io::Result<()>;

    /// Removes an empty folder. Does nothing on a disk whose folders are only prefixes of paths.
    ///
    /// # Errors
    /// Errors of the operating system.
    fn remove_dir(&self, dir: &str) -> io::Result<()> {
        let _ = dir;
        Ok(())
    }

    /// Makes the names in a folder durable.
    ///
    /// # Errors
    /// Errors of the operating system, after which nothing is known about the names.
    fn sync_dir(&self, dir: &str) -> io::Result<()>;

    /// Returns how many bytes this process may still write; `u64::MAX` if nothing limits them.
    ///
    /// # Errors
    /// Errors of the operating system.
    fn free_bytes(&self) -> io::Result<u64> {
        Ok(u64::MAX)
    }

    /// Locks the folder exclusively, until the guard is dropped or the process ends in any way.
    ///
    /// # Errors
    /// `WouldBlock` if another process holds the lock, or an error of the operating system.
    fn lock(&self) -> io::Result<Box<dyn Send + Sync>>;

    /// Locks the folder for reading: shared with other readers, but never with a process that may write. Writes nothing.
    ///
    /// # Errors
    /// `WouldBlock` if a process that may write holds the lock, or an error of the operating system.
    fn lock_to_read(&self) -> io::Result<Box<dyn Send + Sync>> {
        self.lock()
    }

    /// Locks one of the folders exclusively, so that no other process uses it by another path. Returns `None` if nothing can be locked: the
    /// folder does not exist, or its file system does not lock folders.
    ///
    /// # Errors
    /// `WouldBlock` if another process holds the lock.
    fn lock_dir(&self, dir: &str) -> io::Result<Option<Box<dyn Send + Sync>>> {
        let _ = dir;
        Ok(None)
    }

    /// Checks that the lock taken by this process is still the one that other processes would encounter. Costs at most one system call.
    ///
    /// # Errors
    /// The lock or the folder was removed or replaced, so another process may be using the folder.
    fn check_lock(&self) -> io::Result<()> {
        Ok(())
    }
}

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Open {
    /// An existing file, for reading.
    Read,
    /// An existing file, for reading and writing.
    Write,
    /// A new file, for reading and writing; it must not exist.
    Create,
}

/// An open file. All methods may be called from several threads at once.
pub trait DiskFile: Send + Sync {
    /// Reads up to `buffer.len()` bytes; fewer only at the end of the file.
    ///
    /// # Errors
    /// Errors of the operating system.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Appends up to `length` bytes at `offset` to `buffer`; fewer only at the end of the file. Implementations can avoid zeroing the
    /// buffer first.
    ///
    /// # Errors
    /// Errors of the operating system; some bytes may have been appended to `buffer`.
    fn read_onto(&self, buffer: &mut Vec<u8>, length: usize, offset: u64) -> io::Result<()> {
        let start = buffer.len();
        buffer.resize(start + length, 0);
        let got = self.read_at(&mut buffer[start..], offset)?;
        buffer.truncate(start + got);
        Ok(())
    }

    /// Announces that these bytes will be read soon, so that the disk can fetch them in parallel with others. May do nothing.
    fn announce(&self, _offset: u64, _length: u64) {}

    /// Writes all of `bytes`, extending the file if necessary. Not durable before [`sync`](Self::sync).
    ///
    /// # Errors
    /// Errors of the operating system; some of the bytes may have been written.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Makes everything written to this file so far durable, including the length that is needed to read it back.
    ///
    /// # Errors
    /// Errors of the operating system. The bytes may then be lost although reads still return them, and a later successful sync proves
    /// nothing about them.
    fn sync(&self) -> io::Result<()>;

    /// Returns the length of the file in bytes.
    ///
    /// # Errors
    /// Errors of the operating system.
    fn length(&self) -> io::Result<u64>;

    /// Truncates the file to `length` bytes. Not durable before [`sync`](Self::sync).
    ///
    /// # Errors
    /// Errors of the operating system.
    fn truncate(&self, length: u64) -> io::Result<()>;
}
