//! Files and folders of the archive that survive a power loss.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Writes a file and syncs it, together with every folder on its path from the root.
pub(super) fn written(root: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = prepared(root, path)?;
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    synced(folder)
}

/// Moves a file to where readers find it. Its folder is durable before the file is moved.
pub(super) fn placed(root: &Path, from: &Path, to: &Path) -> io::Result<()> {
    let folder = prepared(root, to)?;
    fs::rename(from, to)?;
    synced(folder)
}

/// Creates the folder of a file durably.
pub(super) fn prepared<'p>(root: &'p Path, file: &'p Path) -> io::Result<&'p Path> {
    made(root, file.parent().unwrap_or(root), synced)
}

/// Creates a folder below the root and syncs every folder on its path, from the root on or from where the root was created. Existing
/// folders are synced as well, because the process that created them may have died before doing so.
fn made<'p>(root: &Path, folder: &'p Path, mut sync: impl FnMut(&Path) -> io::Result<()>) -> io::Result<&'p Path> {
    let until = root.ancestors().find(|it| it.is_dir()).unwrap_or_else(|| Path::new("")).to_owned();
    fs::create_dir_all(folder)?;
    for parent in folder.ancestors().skip(1) {
        sync(parent)?;
        if parent == until {
            break;
        }
    }
    Ok(folder)
}

fn synced(folder: &Path) -> io::Result<()> {
    // The ancestors of a relative path end with the working folder, whose path is empty.
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// The folders that are synced so that a folder is on the disk, each of which exists by then.
    fn synced_for(root: &Path, folder: &Path) -> Vec<PathBuf> {
        let mut all = Vec::new();
        let sync = |parent: &Path| {
            assert!(folder.is_dir() && parent.is_dir(), "{} is synced before it holds the next one", parent.display());
            all.push(parent.to_owned());
            Ok(())
        };
        assert_eq!(made(root, folder, sync).expect("made"), folder);
        all
    }

    #[test]
    fn the_parent_of_every_new_folder_is_synced() {
        let given = tempfile::tempdir().expect("a folder");
        let root = given.path().join("data/archive");
        let (data, tenant, of_type) =
            (given.path().join("data"), root.join("default"), root.join("default/type=placed"));
        let day = of_type.join("day=2026-03-01");
        assert_eq!(synced_for(&root, &day), [&*of_type, &*tenant, &*root, &*data, given.path()]);
    }

    #[test]
    fn folders_that_another_process_may_have_left_unsynced_are_synced_up_to_that_of_the_archive() {
        let root = tempfile::tempdir().expect("a folder");
        let (tenant, of_type) = (root.path().join("default"), root.path().join("default/type=placed"));
        let day = of_type.join("day=2026-03-01");
        for _ in 0..2 {
            assert_eq!(synced_for(root.path(), &day), [&*of_type, &*tenant, root.path()]);
        }
    }

    #[test]
    fn a_folder_whose_parent_cannot_be_synced_is_refused() {
        let root = tempfile::tempdir().expect("a folder");
        let day = root.path().join("default/type=placed");
        let refused = made(root.path(), &day, |_| Err(io::Error::other("the disk is gone"))).expect_err("refused");
        assert_eq!(refused.to_string(), "the disk is gone");
    }

    #[test]
    fn a_written_file_is_placed_in_a_new_folder() {
        let root = tempfile::tempdir().expect("a folder");
        let tenant = root.path().join("default");
        let (writing, place) = (tenant.join(".writing/a.parquet"), tenant.join("type=placed/day=2026-03-01/a.parquet"));
        written(root.path(), &writing, b"PAR1").expect("written");
        placed(root.path(), &writing, &place).expect("placed");
        assert_eq!(fs::read(&place).expect("read"), b"PAR1");
        assert!(!writing.exists());
    }
}
