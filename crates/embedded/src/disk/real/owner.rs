//! The owner of what is created. A command that root runs on the store of a service, such as a backup, creates files that nobody but their
//! owner can read, and the service must read them afterwards.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, fchown};

use super::RealDisk;

impl RealDisk {
    /// Makes the owner of the store's folder the owner of a new file or folder.
    pub(super) fn give(&self, new: &File) -> io::Result<()> {
        if !self.of_one_owner {
            return Ok(());
        }
        let (folder, made) = (fs::metadata(&self.root)?, new.metadata()?);
        if folder.uid() != made.uid() {
            // It fails for processes that are not privileged, which create files in a folder of others that is open to them.
            let _ = fchown(new, Some(folder.uid()), Some(folder.gid()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::chown;

    use super::*;
    use crate::disk::{Disk, Open};

    /// Some user that is not root.
    const SERVICE: u32 = 65_532;

    #[test]
    fn what_a_privileged_process_creates_in_a_store_belongs_to_the_owner_of_the_store() {
        let folder = tempfile::tempdir().expect("a folder");
        let (store, backup) = (folder.path().join("store"), folder.path().join("backup"));
        let owner = |path: &str| fs::metadata(folder.path().join(path)).expect("it is there").uid();
        let ours = owner("");
        fs::create_dir(&store).expect("made");
        fs::create_dir(&backup).expect("made");
        // Only a privileged process can hand a folder to another user. What any other creates stays its own.
        let theirs = chown(&store, Some(SERVICE), None).map_or(ours, |()| SERVICE);
        let _ = chown(&backup, Some(SERVICE), None);
        for (disk, name, due) in
            [(RealDisk::new(&store), "store", theirs), (RealDisk::for_backup(&backup), "backup", ours)]
        {
            disk.create_dir("d/e").expect("made");
            drop(disk.open("d/e/a", Open::Create).expect("made"));
            drop(disk.lock().expect("locked"));
            for path in ["d", "d/e", "d/e/a", "lock"] {
                assert_eq!(owner(&format!("{name}/{path}")), due, "{name}/{path}");
            }
        }
    }
}
