//! The folder of the demo: where its store and the folders of running programs are, and how it starts anew.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use annals::Code;

/// A folder that no other demo uses while this exists.
///
/// ```text
/// annals-demo/
///   demo.lock     held while a demo runs; marks the folder as the demo's
///   store/        the event store, unless another one is named
///   work/         the folders of running programs
/// ```
#[derive(Debug)]
pub struct DemoFolder {
    path: PathBuf,
    _lock: File,
}

/// Why the folder cannot be used. Nothing was removed.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// Another demo runs there.
    #[error("another demo runs in {}; stop it with Ctrl-C, or start this one in another folder", .0.display())]
    InUse(PathBuf),
    /// Its store is open in another process.
    #[error("the store in {} is open in another process; stop that one first ({message})", folder.display())]
    StoreInUse {
        /// The folder.
        folder: PathBuf,
        /// What opening the store said.
        message: String,
    },
    /// It holds something, and no demo made it.
    #[error("{} holds other files and was not made by the demo; name a new or empty folder", .0.display())]
    NotTheDemos(PathBuf),
    /// The system refuses.
    #[error("cannot use {}: {error}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
}

const LOCK: &str = "demo.lock";
const STORE: &str = "store";
const WORK: &str = "work";

impl DemoFolder {
    /// Takes a folder, and makes it if it is not there. With `fresh`, the store and the work of earlier demos in it are removed; nothing
    /// else ever is, and nothing while another process uses them.
    ///
    /// # Errors
    /// See [`FolderError`].
    pub async fn claim(path: &Path, fresh: bool) -> Result<Self, FolderError> {
        let at = |path: &Path| {
            let path = path.to_owned();
            |error| FolderError::Io { path, error }
        };
        let lock_path = path.join(LOCK);
        if !lock_path.exists() && path.exists() && fs::read_dir(path).map_err(at(path))?.next().is_some() {
            return Err(FolderError::NotTheDemos(path.to_owned()));
        }
        fs::create_dir_all(path).map_err(at(path))?;
        let lock = File::options().create(true).truncate(false).write(true).open(&lock_path).map_err(at(&lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(FolderError::InUse(path.to_owned())),
            Err(TryLockError::Error(error)) => return Err(at(&lock_path)(error)),
        }
        let folder = Self { path: path.to_owned(), _lock: lock };
        if fresh {
            folder.remove_content().await?;
        }
        Ok(folder)
    }

    async fn remove_content(&self) -> Result<(), FolderError> {
        let store = self.path.join(STORE);
        if store.exists() {
            // Opening it is how to learn whether it is open elsewhere. A store that does not open at all may go.
            match annals::open(&self.store_url()).await {
                Ok(open) => open.close().await,
                Err(error) if error.code == Code::StoreLocked => {
                    return Err(FolderError::StoreInUse { folder: store, message: error.message });
                }
                Err(_) => {}
            }
        }
        for path in [store, self.path.join(WORK)] {
            match fs::remove_dir_all(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(FolderError::Io { path, error }),
                _ => {}
            }
        }
        Ok(())
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The URL of the store in it.
    pub fn store_url(&self) -> String {
        format!("embedded:{}", self.path.join(STORE).display())
    }

    /// Where programs run.
    pub fn work(&self) -> PathBuf {
        self.path.join(WORK)
    }
}
