//! The disk under the store: the lowest trait, so that faults and crashes can be tested under the real code.

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
/// What survives a power loss: bytes of a file that a later [`DiskFile::sync`] of it confirmed, under a name that a later
/// [`Disk::sync_dir`] of its folder confirmed. Everything else may be there, be gone, or be there in part, in any order. A file's
/// length counts as its content.
pub trait Disk: Send + Sync + 'static {
    /// Creates a folder and its parents, unless they exist.
    ///
    /// # Errors
    /// What the system says.
    fn create_dir(&self, dir: &str) -> io::Result<()>;

    /// The names in a folder, in no order; empty if there is no such folder.
    ///
    /// # Errors
    /// What the system says.
    fn list(&self, dir: &str) -> io::Result<Vec<String>>;

    /// Opens a file.
    ///
    /// # Errors
    /// `NotFound`, `AlreadyExists` with [`Open::Create`], or what the system says.
    fn open(&self, path: &str, open: Open) -> io::Result<Arc<dyn DiskFile>>;

    /// Gives a file another name, replacing what has that name: afterwards one of both is there, whole.
    ///
    /// # Errors
    /// What the system says.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// What the system says.
    fn remove(&self, path: &str) -> io::Result<()>;

    /// Removes an empty folder; nothing where folders are only parts of paths.
    ///
    /// # Errors
    /// What the system says.
    fn remove_dir(&self, dir: &str) -> io::Result<()> {
        let _ = dir;
        Ok(())
    }

    /// Makes the names in a folder durable.
    ///
    /// # Errors
    /// What the system says; nothing is known about the names then.
    fn sync_dir(&self, dir: &str) -> io::Result<()>;

    /// The bytes that this process may still write; `u64::MAX` where nothing limits them.
    ///
    /// # Errors
    /// What the system says.
    fn free_bytes(&self) -> io::Result<u64> {
        Ok(u64::MAX)
    }

    /// Takes the folder for this process alone, until the guard is dropped or the process ends, however it ends.
    ///
    /// # Errors
    /// `WouldBlock` when another process has it, or what the system says.
    fn lock(&self) -> io::Result<Box<dyn Send + Sync>>;

    /// Takes the folder for reading: beside other readers, but never beside a process that may write. Writes nothing.
    ///
    /// # Errors
    /// `WouldBlock` when a process has it that may write, or what the system says.
    fn lock_to_read(&self) -> io::Result<Box<dyn Send + Sync>> {
        self.lock()
    }

    /// Whether the lock that this process took is still the one that others would meet. It costs one call of the system at most.
    ///
    /// # Errors
    /// The lock or the folder was removed or replaced, so that another process may have the folder.
    fn check_lock(&self) -> io::Result<()> {
        Ok(())
    }
}

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Open {
    /// An existing file, to read.
    Read,
    /// An existing file, to read and write.
    Write,
    /// A new file, to read and write; it must not exist.
    Create,
}

/// An open file. All calls may be made from several threads at once.
pub trait DiskFile: Send + Sync {
    /// Reads up to `buffer.len()` bytes; fewer only at the end of the file.
    ///
    /// # Errors
    /// What the system says.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Reads up to `length` bytes onto the end of `buffer`; fewer only at the end of the file. It saves filling them with zeros first.
    ///
    /// # Errors
    /// What the system says; some bytes may have been read onto `buffer`.
    fn read_onto(&self, buffer: &mut Vec<u8>, length: usize, offset: u64) -> io::Result<()> {
        let start = buffer.len();
        buffer.resize(start + length, 0);
        let got = self.read_at(&mut buffer[start..], offset)?;
        buffer.truncate(start + got);
        Ok(())
    }

    /// Says that these bytes will be read soon, so that a disk can fetch them beside others. It may do nothing.
    fn announce(&self, _offset: u64, _length: u64) {}

    /// Writes all of `bytes`, extending the file if need be. Not durable before [`sync`](Self::sync).
    ///
    /// # Errors
    /// What the system says; some of the bytes may have been written.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Makes everything written to this file so far durable, with the length that reading it back needs.
    ///
    /// # Errors
    /// What the system says. The bytes may then be gone although reads still show them, and a later sync that succeeds proves
    /// nothing about them.
    fn sync(&self) -> io::Result<()>;

    /// The file's length in bytes.
    ///
    /// # Errors
    /// What the system says.
    fn length(&self) -> io::Result<u64>;

    /// Cuts the file to `length` bytes. Not durable before [`sync`](Self::sync).
    ///
    /// # Errors
    /// What the system says.
    fn truncate(&self, length: u64) -> io::Result<()>;
}
