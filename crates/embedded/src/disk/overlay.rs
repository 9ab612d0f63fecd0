//! A folder that is only read, with everything written to it kept in memory: how a store is opened that must not or cannot be written.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::above::Above;
use super::{Disk, DiskFile, Open};

/// A folder above another one, which it only reads. Whatever is written is lost when the overlay is dropped.
pub struct Overlay {
    below: Arc<dyn Disk>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Files that were opened or created here.
    files: BTreeMap<String, Arc<Above>>,
    /// Names of underlying files that were removed or renamed.
    hidden: BTreeSet<String>,
}

impl Overlay {
    /// Creates an overlay to which nothing has been written yet.
    pub fn new(below: Arc<dyn Disk>) -> Self {
        Self { below, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the file with this name, from the overlay or from the folder below.
    fn find(&self, state: &mut State, path: &str) -> io::Result<Arc<Above>> {
        if let Some(file) = state.files.get(path) {
            return Ok(file.clone());
        }
        if state.hidden.contains(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let file = Arc::new(Above::of(self.below.open(path, Open::Read)?)?);
        state.files.insert(path.to_owned(), file.clone());
        Ok(file)
    }
}

impl Disk for Overlay {
    fn create_dir(&self, _dir: &str) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let prefix = if dir.is_empty() { String::new() } else { format!("{dir}/") };
        let below = self.below.list(dir)?;
        let state = self.state();
        let mut names: BTreeSet<String> =
            below.into_iter().filter(|name| !state.hidden.contains(&format!("{prefix}{name}"))).collect();
        let above = state.files.keys().filter_map(|path| path.strip_prefix(&prefix)?.split('/').next());
        names.extend(above.map(str::to_owned));
        Ok(names.into_iter().collect())
    }

    fn open(&self, path: &str, open: Open) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.state();
        match self.find(&mut state, path) {
            Ok(_) if open == Open::Create => Err(io::ErrorKind::AlreadyExists.into()),
            Ok(file) => Ok(file),
            Err(error) if open == Open::Create && error.kind() == io::ErrorKind::NotFound => {
                let made = Arc::new(Above::new());
                state.files.insert(path.to_owned(), made.clone());
                Ok(made)
            }
            Err(error) => Err(error),
        }
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state();
        let file = self.find(&mut state, from)?;
        state.files.remove(from);
        state.hidden.insert(from.to_owned());
        state.files.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let mut state = self.state();
        self.find(&mut state, path)?;
        state.files.remove(path);
        state.hidden.insert(path.to_owned());
        Ok(())
    }

    fn sync_dir(&self, _dir: &str) -> io::Result<()> {
        Ok(())
    }

    fn lock(&self) -> io::Result<Box<dyn Send + Sync>> {
        self.below.lock_to_read()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::MemoryDisk;

    fn read(disk: &dyn Disk, path: &str) -> Vec<u8> {
        let file = disk.open(path, Open::Read).expect("it is there");
        let mut bytes = vec![0; file.length().expect("a length") as usize];
        file.read_at(&mut bytes, 0).expect("it is read");
        bytes
    }

    #[test]
    fn what_is_written_is_seen_and_the_folder_below_stays_what_it_is() {
        let below = Arc::new(MemoryDisk::default());
        for (path, bytes) in [("d/a", b"aaa"), ("d/b", b"bbb"), ("d/c", b"ccc")] {
            below.open(path, Open::Create).expect("new").write_at(bytes, 0).expect("written");
        }
        let disk = Overlay::new(below.clone());
        disk.open("d/a", Open::Write).expect("there").write_at(b"x", 1).expect("written");
        disk.remove("d/b").expect("removed");
        disk.rename("d/c", "d/e").expect("renamed");
        disk.open("d/new", Open::Create).expect("new").write_at(b"n", 0).expect("written");
        assert_eq!(disk.open("d/a", Open::Create).err().map(|error| error.kind()), Some(io::ErrorKind::AlreadyExists));
        assert_eq!(disk.open("d/b", Open::Read).err().map(|error| error.kind()), Some(io::ErrorKind::NotFound));
        assert_eq!(disk.list("d").expect("listed"), ["a", "e", "new"]);
        assert_eq!((read(&disk, "d/a"), read(&disk, "d/e")), (b"axa".to_vec(), b"ccc".to_vec()));
        disk.open("d/b", Open::Create).expect("its name is free");
        assert_eq!(read(&disk, "d/b"), b"");
        assert_eq!(below.list("d").expect("listed"), ["a", "b", "c"]);
        assert_eq!((read(&*below, "d/a"), read(&*below, "d/b")), (b"aaa".to_vec(), b"bbb".to_vec()));
    }
}
