//! The folder of the demo, which holds its store and the folders of running programs. It can be emptied for a fresh start.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use annals::Code;
use tokio::time::{Duration, interval, timeout};

/// A folder that no other demo uses as long as this value exists.
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
    /// Another demo uses it.
    #[error("another demo is running in {}; stop it with Ctrl-C, or start this one in another folder", .0.display())]
    InUse(PathBuf),
    /// Its store is open in another process.
    #[error("another process has the store in {} open; stop it first ({message})", folder.display())]
    StoreInUse {
        /// The folder.
        folder: PathBuf,
        /// The error from opening the store.
        message: String,
    },
    /// It is not empty, and no demo created it.
    #[error("{} contains other files and was not created by the demo; name a new or empty folder", .0.display())]
    NotTheDemos(PathBuf),
    /// The system reports an error.
    #[error("cannot use {}: {error}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
}

impl FolderError {
    /// Returns the stable code of this error.
    pub fn code(&self) -> Code {
        match self {
            Self::InUse(_) | Self::StoreInUse { .. } => Code::StoreLocked,
            Self::NotTheDemos(_) => Code::NotAStore,
            Self::Io { error, .. } => match error.kind() {
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Code::StoreReadOnly,
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Code::DiskFull,
                io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => Code::NotAStore,
                _ => Code::ReadFailed,
            },
        }
    }
}

const LOCK: &str = "demo.lock";
const STORE: &str = "store";
const WORK: &str = "work";

impl DemoFolder {
    /// Claims a folder, and creates it if it does not exist. With `fresh`, the store and the work of earlier demos in it are removed.
    /// Nothing else is ever removed, and nothing while another process uses them.
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
        let waited = take(&lock).await.map_err(|error| match error {
            TryLockError::WouldBlock => FolderError::InUse(path.to_owned()),
            TryLockError::Error(error) => at(&lock_path)(error),
        })?;
        let folder = Self { path: path.to_owned(), _lock: lock };
        if waited {
            folder.wait_for_store().await;
        }
        if fresh {
            folder.remove_content().await?;
        }
        Ok(folder)
    }

    /// Waits until the previous owner of the folder's lock has released the store too.
    async fn wait_for_store(&self) {
        if !self.path.join(STORE).exists() {
            return;
        }
        let released = async {
            let mut again = interval(ASK_AGAIN);
            loop {
                match annals::open(&self.store_url()).await {
                    Err(error) if error.code == Code::StoreLocked => again.tick().await,
                    Ok(store) => return store.close().await,
                    Err(_) => return,
                };
            }
        };
        // If another process still has it, opening the store reports that.
        let _ = timeout(RELEASE_WAIT_MAX, released).await;
    }

    async fn remove_content(&self) -> Result<(), FolderError> {
        let store = self.path.join(STORE);
        if store.exists() {
            // Opening the store is how to learn whether another process has it open. A store that cannot be opened at all may be removed.
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

    /// Returns the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the URL of the store in the folder.
    pub fn store_url(&self) -> String {
        format!("embedded:{}", self.path.join(STORE).display())
    }

    /// Returns the folder in which programs run.
    pub fn work(&self) -> PathBuf {
        self.path.join(WORK)
    }
}

/// How long a lock may outlive its process. A child that was forked but has not yet become the program shares the service's locks for a
/// moment, even if the service is killed in that moment.
const RELEASE_WAIT_MAX: Duration = Duration::from_secs(1);
const ASK_AGAIN: Duration = Duration::from_millis(10);

/// Takes the lock. Returns whether it had to wait for it.
async fn take(lock: &File) -> Result<bool, TryLockError> {
    let mut again = interval(ASK_AGAIN);
    let mut waited = false;
    let taken = timeout(RELEASE_WAIT_MAX, async {
        loop {
            again.tick().await;
            match lock.try_lock() {
                Err(TryLockError::WouldBlock) => waited = true,
                taken => return taken,
            }
        }
    });
    taken.await.unwrap_or(Err(TryLockError::WouldBlock))?;
    Ok(waited)
}
