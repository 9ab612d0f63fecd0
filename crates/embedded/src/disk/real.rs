//! A folder of the operating system.

mod links;
mod owner;

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, TryLockError};
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use annals_system::Instant;
use rustix::fs::{Advice, OFlags};

use super::{Disk, DiskFile, Open};

/// The name of the file that carries the lock.
const LOCK_FILE: &str = "lock";

/// A folder of the operating system.
///
/// The lock is taken twice: on the file `lock`, as every version does, and on the folder itself, which nobody removes by mistake. If the
/// file system cannot lock folders (NFS), only the file is locked. While the lock is held, every call that opens a file for writing, or
/// renames or removes one, first checks that `lock` is still the locked file. A folder that was moved away and replaced is therefore not
/// written to.
///
/// A file that is opened for writing and has other names (hard links) is first replaced by a copy of its own, so that a copy of the
/// folder that was made of hard links is not written to either.
///
/// New files and folders can be used by the owner alone: events are nobody else's business, and `tenant.json` holds a key. Existing ones
/// keep their permissions. What a privileged process creates in the folder of another user belongs to that user, or the user's own
/// processes could not read it.
pub struct RealDisk {
    root: PathBuf,
    modes: Modes,
    /// Whether new files and folders belong to the owner of the folder at `root`.
    of_one_owner: bool,
    held: Arc<Mutex<Option<FileId>>>,
    /// The paths of files that are open for writing. A rename through this disk updates them, so that a sync finds the file under its new
    /// name.
    open: Mutex<Vec<Weak<Mutex<PathBuf>>>>,
}

/// The permissions of new files and folders, from which those of the process's umask are subtracted.
#[derive(Clone, Copy)]
struct Modes {
    file: u32,
    folder: u32,
}

const PRIVATE: Modes = Modes { file: 0o600, folder: 0o700 };
const FOR_GROUP: Modes = Modes { file: 0o640, folder: 0o750 };

/// The identity of a file: its device and inode.
type FileId = (u64, u64);

fn id_of(known: &Metadata) -> FileId {
    (known.dev(), known.ino())
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The locked files. The lock is released when this is dropped.
struct Guard {
    _files: Vec<File>,
    held: Arc<Mutex<Option<FileId>>>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        *locked(&self.held) = None;
    }
}

impl RealDisk {
    /// Creates a disk for the folder at `root`, which need not exist yet.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), modes: PRIVATE, of_one_owner: true, held: Arc::default(), open: Mutex::default() }
    }

    /// Creates a disk for the folder at `root` of a backup. The folder's group may read what is created in it, as far as the umask of the
    /// process permits, so that another user can carry the backup away. They belong to the user that runs the backup.
    pub fn for_backup(root: impl Into<PathBuf>) -> Self {
        Self { modes: FOR_GROUP, of_one_owner: false, ..Self::new(root) }
    }

    /// Locks a folder itself; returns `None` if the file system cannot lock folders.
    fn lock_folder(path: &Path, take: impl Fn(&File) -> Result<(), TryLockError>) -> io::Result<Option<File>> {
        // What is not a folder is not opened: a named pipe would be waited for.
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(OFlags::DIRECTORY.bits() as i32);
        let Ok(folder) = options.open(path) else { return Ok(None) };
        match take(&folder) {
            Ok(()) => Ok(Some(folder)),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(_)) => Ok(None),
        }
    }

    fn id_of_lock(&self) -> io::Result<FileId> {
        Ok(id_of(&fs::metadata(self.path(LOCK_FILE))?))
    }

    fn path(&self, relative: &str) -> PathBuf {
        if relative.is_empty() { self.root.clone() } else { self.root.join(relative) }
    }

    /// Records the place of a file opened under this path. Returns `None` if the file system does not show the same file under that path.
    fn place_of(&self, file: &File, path: PathBuf) -> Option<Place> {
        let id = id_of(&file.metadata().ok()?);
        if id_of(&fs::metadata(&path).ok()?) != id {
            return None;
        }
        let path = Arc::new(Mutex::new(path));
        let mut open = locked(&self.open);
        open.retain(|known| known.strong_count() > 0);
        open.push(Arc::downgrade(&path));
        Some(Place { id, path })
    }
}

impl Disk for RealDisk {
    fn create_dir(&self, dir: &str) -> io::Result<()> {
        let path = self.path(dir);
        let missing: Vec<&Path> = path.ancestors().take_while(|p| !p.as_os_str().is_empty() && !p.exists()).collect();
        if !missing.is_empty()
            && let Some(parent) = self.root.parent()
        {
            // The folders around the store may be shared with others.
            fs::create_dir_all(parent)?;
        }
        DirBuilder::new().recursive(true).mode(self.modes.folder).create(&path)?;
        for new in missing.iter().filter(|new| new.starts_with(&self.root) && **new != self.root) {
            self.give(&File::open(new)?)?;
        }
        // Each new name is made durable in its parent folder.
        for new in missing {
            let parent = new.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            File::open(parent)?.sync_all()?;
        }
        Ok(())
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(self.path(dir)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    fn open(&self, path: &str, open: Open) -> io::Result<Arc<dyn DiskFile>> {
        if open != Open::Read {
            self.check_lock()?;
        }
        let mut options = OpenOptions::new();
        options.read(true).write(open != Open::Read).create_new(open == Open::Create).mode(self.modes.file);
        // Without this, opening a named pipe would wait for a writer forever. It has no effect on files.
        options.custom_flags(OFlags::NONBLOCK.bits() as i32);
        let path = self.path(path);
        let mut file = options.open(&path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other(format!("{} is not a file", path.display())));
        }
        if open == Open::Create {
            self.give(&file)?;
        }
        if open == Open::Write && links::is_shared(&file)? {
            file = self.own_copy(&path, &file)?;
        }
        let place = if open == Open::Read { None } else { self.place_of(&file, path) };
        Ok(Arc::new(RealFile { file, slow: AtomicBool::new(false), place }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.check_lock()?;
        let (from, to) = (self.path(from), self.path(to));
        let open = locked(&self.open);
        let known: Vec<Arc<Mutex<PathBuf>>> = open.iter().filter_map(Weak::upgrade).collect();
        // A concurrent sync that looks for the file waits.
        let mut renamed: Vec<_> = known.iter().map(|path| locked(path)).filter(|path| **path == from).collect();
        fs::rename(&from, &to)?;
        for path in &mut renamed {
            **path = to.clone();
        }
        Ok(())
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.check_lock()?;
        fs::remove_file(self.path(path))
    }

    fn remove_dir(&self, dir: &str) -> io::Result<()> {
        fs::remove_dir(self.path(dir))
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        File::open(self.path(dir))?.sync_all()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let known = rustix::fs::statvfs(&self.root)?;
        Ok(known.f_bavail.saturating_mul(known.f_frsize))
    }

    fn lock(&self) -> io::Result<Box<dyn Send + Sync>> {
        let folder = Self::lock_folder(&self.root, File::try_lock)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(self.modes.file);
        let mut file = options.open(self.path(LOCK_FILE))?;
        self.give(&file)?;
        file.try_lock().map_err(not_taken)?;
        if self.id_of_lock()? != id_of(&file.metadata()?) {
            // The file was replaced between opening and locking it.
            return Err(io::ErrorKind::WouldBlock.into());
        }
        // Where folders cannot be locked, another process might take the new file between its creation and its lock.
        if folder.is_some() && links::is_shared(&file)? {
            file = self.own_lock()?;
        }
        let id = id_of(&file.metadata()?);
        *locked(&self.held) = Some(id);
        Ok(Box::new(Guard { _files: folder.into_iter().chain([file]).collect(), held: self.held.clone() }))
    }

    fn lock_to_read(&self) -> io::Result<Box<dyn Send + Sync>> {
        let mut files: Vec<File> = Self::lock_folder(&self.root, File::try_lock_shared)?.into_iter().collect();
        match File::open(self.path(LOCK_FILE)) {
            Ok(file) => {
                file.try_lock_shared().map_err(not_taken)?;
                files.push(file);
            }
            // The store was copied without its lock file, so the lock on the folder must suffice.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok(Box::new(Guard { _files: files, held: Arc::default() }))
    }

    fn lock_dir(&self, dir: &str) -> io::Result<Option<Box<dyn Send + Sync>>> {
        let folder = Self::lock_folder(&self.path(dir), File::try_lock)?;
        Ok(folder.map(|folder| Box::new(folder) as Box<dyn Send + Sync>))
    }

    fn check_lock(&self) -> io::Result<()> {
        let Some(due) = *locked(&self.held) else { return Ok(()) };
        match self.id_of_lock() {
            Ok(found) if found == due => Ok(()),
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Err(io::Error::other(format!(
                "{} was removed or replaced, so another process may have this store open",
                self.path(LOCK_FILE).display()
            ))),
        }
    }
}

fn not_taken(error: TryLockError) -> io::Error {
    match error {
        TryLockError::WouldBlock => io::ErrorKind::WouldBlock.into(),
        TryLockError::Error(error) => error,
    }
}

/// A read that took longer than this came from the disk rather than from memory.
const SLOW: Duration = Duration::from_micros(30);

/// An open file.
struct RealFile {
    file: File,
    /// Whether the last large read came from the disk. Only then is announcing a read worth a system call.
    slow: AtomicBool,
    /// Where to find the file again; `None` if it is open for reading only.
    place: Option<Place>,
}

/// The identity of a file, and its current path.
struct Place {
    id: FileId,
    path: Arc<Mutex<PathBuf>>,
}

impl Place {
    /// Fails if the file is no longer found at its path.
    fn check(&self) -> io::Result<()> {
        let path = locked(&self.path);
        match fs::metadata(&*path) {
            Ok(found) if id_of(&found) == self.id => Ok(()),
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let message =
                    format!("it is not known whether {} is still the file that was opened: {error}", path.display());
                Err(io::Error::new(error.kind(), message))
            }
            _ => Err(io::Error::other(format!(
                "{} was removed or replaced while it was open, or moved; stop the process before changing files of its store",
                path.display()
            ))),
        }
    }
}

impl DiskFile for RealFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match FileExt::read_at(&self.file, &mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn read_onto(&self, buffer: &mut Vec<u8>, length: usize, offset: u64) -> io::Result<()> {
        let end = buffer.len() + length;
        let start = offset.wrapping_sub(buffer.len() as u64);
        let began = Instant::now();
        // `pread` fills the spare capacity, so reserving exactly `length` bytes bounds what is read.
        buffer.reserve_exact(length);
        while buffer.len() < end {
            let at = start.wrapping_add(buffer.len() as u64);
            match rustix::io::pread(&self.file, rustix::buffer::spare_capacity(buffer), at) {
                Ok(0) => break,
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.slow.store(began.elapsed() > SLOW, Ordering::Relaxed);
        buffer.truncate(end);
        Ok(())
    }

    fn announce(&self, offset: u64, length: u64) {
        if self.slow.load(Ordering::Relaxed) {
            // This is only advice; if it fails, reading reports the problem.
            let _ = rustix::fs::fadvise(&self.file, offset, NonZeroU64::new(length), Advice::WillNeed);
        }
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    // The durable byte: every acknowledgement of a commit waits for this call. If the file was removed, moved or replaced by a copy, its
    // bytes would not be found again, however well they are synced.
    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()?;
        self.place.as_ref().map_or(Ok(()), Place::check)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.file.set_len(length)
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{FileType, Mode};

    use super::*;

    /// A disk on a new folder.
    fn new() -> (tempfile::TempDir, RealDisk) {
        let folder = tempfile::tempdir().expect("a folder");
        let disk = RealDisk::new(folder.path());
        (folder, disk)
    }

    #[test]
    fn a_file_that_its_disk_renames_can_be_synced_and_one_that_was_moved_cannot() {
        let (folder, disk) = new();
        let file = disk.open("a", Open::Create).expect("made");
        disk.rename("a", "b").expect("renamed");
        file.sync().expect("it is where its disk has put it");
        fs::rename(folder.path().join("b"), folder.path().join("a")).expect("moved");
        let refused = file.sync().expect_err("nobody looks for it there").to_string();
        assert!(refused.contains("was removed or replaced"), "{refused}");
    }

    #[test]
    fn what_a_disk_creates_is_closed_to_others_and_what_exists_is_left_as_it_is() {
        use std::os::unix::fs::PermissionsExt;
        let (folder, _) = new();
        let mode = |path: &str| fs::metadata(folder.path().join(path)).expect("it is there").mode() & 0o777;
        let around = folder.path().join("around");
        for (disk, name, closed) in [
            (RealDisk::new(around.join("store")), "store", 0o077),
            (RealDisk::for_backup(around.join("backup")), "backup", 0o027),
        ] {
            disk.create_dir("d/e").expect("made");
            drop(disk.open("d/a", Open::Create).expect("made"));
            drop(disk.lock().expect("locked"));
            for path in ["", "/d", "/d/e", "/d/a", "/lock"] {
                let path = format!("around/{name}{path}");
                assert_eq!(mode(&path) & closed, 0, "{path} has {:o}", mode(&path));
                assert_eq!(mode(&path) & 0o600, 0o600, "{path} has {:o}", mode(&path));
            }
            let existing = around.join(name).join("d/a");
            fs::set_permissions(&existing, fs::Permissions::from_mode(0o644)).expect("set");
            drop(disk.open("d/a", Open::Write).expect("opened"));
            assert_eq!(mode(&format!("around/{name}/d/a")), 0o644);
        }
    }

    #[test]
    fn a_pipe_or_a_folder_in_the_place_of_a_file_is_refused_and_not_waited_for() {
        let (folder, disk) = new();
        disk.create_dir("d").expect("made");
        rustix::fs::mknodat(rustix::fs::CWD, folder.path().join("p"), FileType::Fifo, Mode::RWXU, 0).expect("made");
        for (name, open) in [("p", Open::Read), ("p", Open::Write), ("d", Open::Read)] {
            let refused = disk.open(name, open).err().expect("it is not a file").to_string();
            assert!(refused.contains("is not a file"), "{refused}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_looked_for_is_not_reported_as_removed() {
        let (folder, disk) = new();
        disk.create_dir("d").expect("made");
        let file = disk.open("d/a", Open::Create).expect("made");
        fs::rename(folder.path().join("d"), folder.path().join("e")).expect("moved");
        std::os::unix::fs::symlink(folder.path().join("d"), folder.path().join("d")).expect("a link to itself");
        let refused = file.sync().expect_err("the name leads nowhere").to_string();
        assert!(refused.contains("it is not known") && !refused.contains("was removed"), "{refused}");
    }
}
