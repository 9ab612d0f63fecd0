//! Files of the archive in a local folder, or in a mounted file system.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use annals_core::archive::{ArchiveFiles, FileError};
use async_trait::async_trait;
use bytes::Bytes;

use super::durable;

/// A folder for files of the archive, for `HostOptions::archive`. It is created with the first file.
#[derive(Debug, Clone)]
pub struct ArchiveFolder {
    root: PathBuf,
}

impl ArchiveFolder {
    /// Creates the storage in a folder.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Runs work with the root and a path below it, on a thread that may block on the disk.
    async fn on_disk<T: Send + 'static>(
        &self,
        path: &str,
        work: impl FnOnce(&Path, &Path) -> io::Result<T> + Send + 'static,
    ) -> Result<T, FileError> {
        let (root, path) = (self.root.clone(), self.root.join(path));
        let place = path.display().to_string();
        match tokio::task::spawn_blocking(move || work(&root, &path)).await {
            Ok(done) => done.map_err(|error| FileError::new(place, error)),
            Err(error) => Err(FileError::new(place, error)),
        }
    }
}

#[async_trait]
impl ArchiveFiles for ArchiveFolder {
    fn place(&self) -> String {
        self.root.display().to_string()
    }

    async fn put(&self, path: &str, content: Bytes) -> Result<(), FileError> {
        let written = self.on_disk(path, move |root, path| {
            durable::written(root, path, &content).inspect_err(|_| {
                // A remainder would be deleted later anyway.
                let _ = fs::remove_file(path);
            })
        });
        written.await
    }

    async fn list(&self, folder: &str) -> Result<Vec<String>, FileError> {
        let listed = self.on_disk(folder, |root, folder| {
            let mut found = Vec::new();
            add_files(root, folder, &mut found)?;
            found.sort();
            Ok(found)
        });
        listed.await
    }

    async fn read(&self, path: &str) -> Result<Bytes, FileError> {
        self.on_disk(path, |_, path| fs::read(path).map(Bytes::from)).await
    }

    async fn delete(&self, path: &str) -> Result<(), FileError> {
        let deleted = self.on_disk(path, |_, path| match fs::remove_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            deleted => deleted,
        });
        deleted.await
    }

    async fn prepare(&self, path: &str) -> Result<(), FileError> {
        self.on_disk(path, |root, path| durable::prepared(root, path).map(|_| ())).await
    }

    async fn rename(&self, from: &str, to: &str) -> Result<(), FileError> {
        let from = self.root.join(from);
        self.on_disk(to, move |root, to| durable::placed(root, &from, to)).await
    }
}

/// Adds the paths of all files below a folder, relative to the root.
fn add_files(root: &Path, folder: &Path, found: &mut Vec<String>) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            add_files(root, &path, found)?;
        } else if let Ok(relative) = path.strip_prefix(root) {
            found.push(relative.to_string_lossy().into_owned());
        }
    }
    Ok(())
}
