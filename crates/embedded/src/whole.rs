//! Files that are there whole or not at all.

use std::io;
use std::sync::Arc;

use crate::disk::{Disk, DiskFile, Open};

/// What a file is called until it is whole.
pub(crate) const UNFINISHED: &str = ".unfinished";

/// Writes a file so that after a crash it is there whole or not at all.
pub(crate) fn write_whole(disk: &dyn Disk, dir: &str, name: &str, bytes: &[u8]) -> io::Result<Arc<dyn DiskFile>> {
    let unfinished = format!("{name}{}", UNFINISHED);
    match disk.remove(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = disk.open(&unfinished, Open::Create)?;
    file.write_at(bytes, 0)?;
    file.sync()?;
    disk.rename(&unfinished, name)?;
    disk.sync_dir(dir)?;
    Ok(file)
}
