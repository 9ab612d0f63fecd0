//! Drops files from the page cache.

use std::fs::File;
use std::path::Path;

use rustix::fs::{Advice, fadvise};

/// Drops every file under `folder` from the system's page cache: first a sync, because dirty pages stay, then `posix_fadvise` with
/// `DONTNEED` on the whole file. Caches below the file system, such as that of a host, keep their content.
pub fn drop_files(folder: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            drop_files(&path)?;
        } else {
            let file = File::open(&path)?;
            file.sync_all()?;
            fadvise(&file, 0, None, Advice::DontNeed)?;
        }
    }
    Ok(())
}
