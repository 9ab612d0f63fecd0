//! A folder in memory, on which `memory:` stores are kept.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use super::{Disk, DiskFile, Open};

/// A folder in memory. It lives as long as something refers to it.
#[derive(Default)]
pub struct MemoryDisk {
    files: Mutex<BTreeMap<String, Arc<MemoryFile>>>,
    holders: Arc<Mutex<Holders>>,
}

/// The holders of a folder's lock: one writer, or any number of readers.
#[derive(Default)]
struct Holders {
    writer: bool,
    readers: usize,
}

#[derive(Default)]
struct MemoryFile(RwLock<Vec<u8>>);

struct WriterLock(Arc<Mutex<Holders>>);

impl Drop for WriterLock {
    fn drop(&mut self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).writer = false;
    }
}

struct ReaderLock(Arc<Mutex<Holders>>);

impl Drop for ReaderLock {
    fn drop(&mut self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).readers -= 1;
    }
}

impl MemoryDisk {
    fn files(&self) -> MutexGuard<'_, BTreeMap<String, Arc<MemoryFile>>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Disk for MemoryDisk {
    fn create_dir(&self, _dir: &str) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let prefix = if dir.is_empty() { String::new() } else { format!("{dir}/") };
        let files = self.files();
        let below = files.keys().filter_map(|path| path.strip_prefix(&prefix));
        let names: BTreeSet<&str> = below.filter_map(|rest| rest.split('/').next()).collect();
        Ok(names.into_iter().map(str::to_owned).collect())
    }

    fn open(&self, path: &str, open: Open) -> io::Result<Arc<dyn DiskFile>> {
        let mut files = self.files();
        match (files.get(path), open) {
            (Some(_), Open::Create) => Err(io::ErrorKind::AlreadyExists.into()),
            (Some(file), _) => Ok(file.clone()),
            (None, Open::Create) => Ok(files.entry(path.to_owned()).or_default().clone()),
            (None, _) => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut files = self.files();
        let file = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.files().remove(path).map(|_| ()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn sync_dir(&self, _dir: &str) -> io::Result<()> {
        Ok(())
    }

    fn lock(&self) -> io::Result<Box<dyn Send + Sync>> {
        let mut holders = self.holders.lock().unwrap_or_else(PoisonError::into_inner);
        if holders.writer || holders.readers > 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        holders.writer = true;
        Ok(Box::new(WriterLock(self.holders.clone())))
    }

    fn lock_to_read(&self) -> io::Result<Box<dyn Send + Sync>> {
        let mut holders = self.holders.lock().unwrap_or_else(PoisonError::into_inner);
        if holders.writer {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        holders.readers += 1;
        Ok(Box::new(ReaderLock(self.holders.clone())))
    }
}

impl DiskFile for MemoryFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let bytes = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
        let count = buffer.len().min(bytes.len() - start);
        buffer[..count].copy_from_slice(&bytes[start..start + count]);
        Ok(count)
    }

    fn read_onto(&self, buffer: &mut Vec<u8>, length: usize, offset: u64) -> io::Result<()> {
        let bytes = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
        buffer.extend_from_slice(&bytes[start..bytes.len().min(start.saturating_add(length))]);
        Ok(())
    }

    fn write_at(&self, new: &[u8], offset: u64) -> io::Result<()> {
        let mut bytes = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let start = usize::try_from(offset).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let end = start.checked_add(new.len()).ok_or(io::ErrorKind::FileTooLarge)?;
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[start..end].copy_from_slice(new);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.0.read().unwrap_or_else(PoisonError::into_inner).len() as u64)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        let length = usize::try_from(length).map_err(|_| io::ErrorKind::FileTooLarge)?;
        self.0.write().unwrap_or_else(PoisonError::into_inner).resize(length, 0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_share_the_lock_and_a_writer_holds_it_alone() {
        let disk = MemoryDisk::default();
        let (one, two) = (disk.lock_to_read().expect("it is free"), disk.lock_to_read().expect("it is shared"));
        assert!(disk.lock().is_err(), "two read");
        drop(one);
        assert!(disk.lock().is_err(), "one reads");
        drop(two);
        let alone = disk.lock().expect("it is free");
        assert!(disk.lock_to_read().is_err() && disk.lock().is_err(), "one writes");
        drop(alone);
        assert!(disk.lock_to_read().is_ok(), "it is free");
    }
}
