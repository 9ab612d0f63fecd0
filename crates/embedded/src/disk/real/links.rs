//! Hard links: several names of one file. A file that is written in place must have one name only, or another store would be written to
//! as well: a copy of the folder that was made of hard links (`cp -al`).

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use super::{LOCK_FILE, PRIVATE, RealDisk, not_taken};
use crate::disk::Disk;
use crate::whole::UNFINISHED;

/// The number of bytes that are copied at once.
const STEP: usize = 1024 * 1024;

/// Returns whether the file has more than one name.
pub(super) fn is_shared(file: &File) -> io::Result<bool> {
    Ok(file.metadata()?.nlink() > 1)
}

impl RealDisk {
    /// Replaces the file at `path` by a durable copy that has this name only, and returns the copy. The other names keep the file as it is.
    pub(super) fn own_copy(&self, path: &Path, shared: &File) -> io::Result<File> {
        // A symbolic link stays one, and the copy takes no room on another disk.
        let path = fs::canonicalize(path)?;
        let mut unfinished = OsString::from(&path);
        unfinished.push(UNFINISHED);
        let unfinished = PathBuf::from(unfinished);
        let made = copied(shared, &unfinished).and_then(|copy| {
            self.check_lock()?;
            fs::rename(&unfinished, &path)?;
            Ok(copy)
        });
        if made.is_err() {
            // The space that it takes may be what is missing.
            let _ = fs::remove_file(&unfinished);
        }
        let copy = made?;
        File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()?;
        tracing::warn!(
            file = %path.display(),
            "the file had several names (hard links), so this store was given a copy of its own"
        );
        Ok(copy)
    }

    /// Replaces the lock file by one that has this name only, and locks it. The caller holds the locks of the folder and of the old file.
    pub(super) fn own_lock(&self) -> io::Result<File> {
        let path = self.path(LOCK_FILE);
        fs::remove_file(&path)?;
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(self.modes.file).open(path)?;
        self.give(&file)?;
        file.try_lock().map_err(not_taken)?;
        Ok(file)
    }
}

/// Copies a file byte by byte and syncs the copy. A copy that shares its blocks with the original, as some file systems make, would need
/// room when it is written in place.
fn copied(from: &File, to: &Path) -> io::Result<File> {
    match fs::remove_file(to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let copy = OpenOptions::new().read(true).write(true).create_new(true).mode(PRIVATE.file).open(to)?;
    let (mut buffer, mut offset) = (vec![0; STEP], 0);
    loop {
        let got = match from.read_at(&mut buffer, offset) {
            Ok(0) => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            got => got?,
        };
        copy.write_all_at(&buffer[..got], offset)?;
        offset += got as u64;
    }
    let original = from.metadata()?;
    // Only a process of another user must, and only a privileged one can. It comes first, because it takes bits of the mode away.
    let _ = fchown(&copy, Some(original.uid()), Some(original.gid()));
    copy.set_permissions(original.permissions())?;
    copy.sync_all()?;
    Ok(copy)
}
