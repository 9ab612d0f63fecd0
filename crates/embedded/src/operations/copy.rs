//! Copies parts of files in bounded memory.

use std::io;
use std::sync::Arc;

use crate::disk::{Disk, DiskFile, Open};

/// The number of bytes held at once.
pub(super) const STEP: u64 = 1024 * 1024;

/// Passes the bytes below `to` to `take`, piece by piece.
///
/// # Errors
/// `UnexpectedEof` if the file is shorter; otherwise errors of the operating system or of `take`.
pub(super) fn read_to(file: &dyn DiskFile, to: u64, mut take: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    let mut buffer = vec![0; STEP.min(to) as usize];
    let mut offset = 0;
    while offset < to {
        let step = STEP.min(to - offset) as usize;
        if file.read_at(&mut buffer[..step], offset)? < step {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("it ends before byte {to}")));
        }
        take(&buffer[..step])?;
        offset += step as u64;
    }
    Ok(())
}

/// Creates a file from the first `kept` bytes of another and zeros up to `length`, and syncs it. Its name is not synced.
pub(super) fn copy(disk: &dyn Disk, from: &dyn DiskFile, to: &str, kept: u64, length: u64) -> io::Result<()> {
    let file = create(disk, to)?;
    let mut offset = 0;
    read_to(from, kept, |bytes| {
        file.write_at(bytes, offset)?;
        offset += bytes.len() as u64;
        Ok(())
    })?;
    fill(&*file, kept, length)?;
    file.sync()
}

/// Writes zeros from `from` up to `to`.
pub(super) fn fill(file: &dyn DiskFile, from: u64, to: u64) -> io::Result<()> {
    let zeros = vec![0; STEP.min(to.saturating_sub(from)) as usize];
    let mut offset = from;
    while offset < to {
        let step = STEP.min(to - offset);
        file.write_at(&zeros[..step as usize], offset)?;
        offset += step;
    }
    Ok(())
}

/// Creates a file with this name, replacing one that an earlier attempt left behind.
pub(super) fn create(disk: &dyn Disk, name: &str) -> io::Result<Arc<dyn DiskFile>> {
    match disk.remove(name) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    disk.open(name, Open::Create)
}
