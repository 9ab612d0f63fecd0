//! The folder of the demo: where its store and the folders of running programs are, and how it starts anew.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use annals::Code;
use tokio::time::{Duration, interval, timeout};

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
    #[error("another demo is running in {}; stop it with Ctrl-C, or start this one in another folder", .0.display())]
    InUse(PathBuf),
    /// Its store is open in another process.
    #[error("another process has the store in {} open; stop it first ({message})", folder.display())]
    StoreInUse {
        /// The folder.
        folder: PathBuf,
        /// What opening the store said.
        message: String,
    },
    /// It holds something, and no demo made it.
    #[error("{} contains other files and was not created by the demo; name a new or empty folder", .0.display())]
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

impl FolderError {
    /// The stable code of this error.
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

    /// Waits until whoever had the folder's lock a moment ago has let go of the store too.
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
        // If somebody else has it, opening it says so.
        let _ = timeout(RELEASE_WAIT_MAX, released).await;
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

/// How long a lock may outlive its process. A child that a service was about to make into a program shares its locks for a moment, also
/// when the service is killed in that moment.
const RELEASE_WAIT_MAX: Duration = Duration::from_secs(1);
const ASK_AGAIN: Duration = Duration::from_millis(10);

/// Takes the lock, and says whether it had to wait for it.
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
