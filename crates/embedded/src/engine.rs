//! The engine: one ordered map of bytes per tenant, under records and streams. Many callers share one sync.
//!
//! ```text
//!   view.rs      what can be read: get · ascending · descending       Snapshot (durable state) and Change (inside a write) have it
//!   change.rs    what a write may do: put · remove, undone as a whole when the write is refused
//!   writer.rs    writer thread: take all that wait · run each · commit · sync · publish · answer     ◀── durable here
//!   file.rs      the map's file on a Disk
//!   dump.rs      the map as a file of entries, for backups
//!   make.rs      a new map of such a file
//!   look.rs      a map that no process has open, to be read without changing a byte
//! ```
//!
//! The map is kept by the crate redb, a copy-on-write B-tree in one file; docs/decisions/0005-records-engine.md says why. Whoever uses
//! the engine owns a key space: the first byte of its keys, one of [`Space`].
//!
//! Invariants:
//! - Nobody is answered, and no reader sees anything, before the sync of the batch it was part of.
//! - A write that is refused leaves nothing behind, and never harms the others of its batch.
//! - After a failed write or sync the engine takes no writes until the store is opened again.

mod blocking;
mod change;
mod dump;
mod file;
mod look;
mod make;
mod open;
mod snapshot;
mod then;
mod view;
mod writer;

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::JoinHandle;

use annals_core::{OpenError, StoreError};
use tokio::sync::{Semaphore, watch};

pub(crate) use self::change::Change;
pub(crate) use self::dump::{Dump, DumpFault, Entries, Held};
pub(crate) use self::look::{Looked, look};
pub(crate) use self::make::make;
pub(crate) use self::open::{FILE, FORMAT_KEY};
pub(crate) use self::view::{Range, View, after_prefix};

use self::snapshot::Snapshot;
use self::writer::Queue;
use crate::Options;
use crate::disk::Disk;

/// Who owns the keys that begin with this byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Space {
    /// The engine's own: its format.
    Engine = 0,
    /// Records: documents, index entries, changes.
    Records = 1,
    /// Streams: entries and progress.
    Streams = 2,
}

/// Writes that may wait; callers beyond wait for room.
const WAITING_MAX: usize = 8_192;

/// The ordered map of one tenant.
pub(crate) struct Engine {
    shared: Arc<Shared>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

/// What callers and the writer share.
pub(crate) struct Shared {
    disk: Arc<dyn Disk>,
    dir: String,
    options: Options,
    queue: Queue,
    room: Semaphore,
    /// None until something is written for the first time: a tenant without records costs no file.
    database: Mutex<Option<redb::Database>>,
    snapshot: RwLock<Arc<Snapshot>>,
    refusal: RwLock<Option<StoreError>>,
    /// The number of batches made durable since opening; closed with the engine.
    batches: watch::Sender<Batches>,
}

/// How far the engine has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Batches {
    /// Batches made durable since it was opened.
    pub(crate) durable: u64,
    /// It is being closed.
    pub(crate) closed: bool,
}

impl Engine {
    /// Opens the map in this folder; where there is none, it is made by the first write. A damaged map opens refusing, so that what is
    /// beside it can be used.
    ///
    /// # Errors
    /// `newer_format`, `store_read_only`, `disk_full`, `read_failed`. Nothing is changed then.
    pub(crate) fn open(disk: Arc<dyn Disk>, dir: String, options: &Options) -> Result<Self, OpenError> {
        let (database, refusal) = match open::existing(&disk, &dir) {
            Ok(database) => (database, None),
            Err(open::Failure::Damaged(damage)) => {
                tracing::error!(dir, %damage, "records and streams are refused");
                (None, Some(damage))
            }
            Err(open::Failure::Refused(error)) => return Err(error),
        };
        let snapshot = match &database {
            Some(database) => Snapshot::take(database).map_err(|error| open::unreadable(&dir, &error))?,
            None => Snapshot::empty(),
        };
        let shared = Arc::new(Shared {
            disk,
            dir,
            options: options.clone(),
            queue: Queue::default(),
            room: Semaphore::new(WAITING_MAX),
            database: Mutex::new(database),
            snapshot: RwLock::new(Arc::new(snapshot)),
            refusal: RwLock::new(refusal),
            batches: watch::Sender::new(Batches::default()),
        });
        Ok(Self { shared, writer: Mutex::new(None) })
    }

    /// Runs `work` in the next batch, and answers once it is durable. `work` sees everything that was written before it, by others of
    /// its batch too. When it refuses, all that it changed is undone; the answer waits for the sync all the same, because what it was
    /// judged by may not be durable before.
    ///
    /// Dropping the future does not undo the write: it may or may not happen, whole.
    ///
    /// # Errors
    /// What `work` says, or a [`StoreError`] when the map cannot be read or written. After [`StoreError::Failed`] it is unknown
    /// whether the write will be there when the store is opened again.
    pub(crate) async fn write<T, E>(
        &self,
        work: impl FnOnce(&mut Change<'_>) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        self.write_then(work, |_| ()).await
    }

    /// Reads the durable state: one moment of it, however long `work` takes.
    ///
    /// # Errors
    /// What `work` says, or why nothing can be read.
    pub(crate) fn read<T, E: From<StoreError>>(&self, work: impl FnOnce(&dyn View) -> Result<T, E>) -> Result<T, E> {
        work(&*self.snapshot()?)
    }

    /// The durable state at this moment, for a reader that takes its time.
    ///
    /// # Errors
    /// Why nothing can be read.
    pub(crate) fn snapshot(&self) -> Result<Arc<dyn View + Send + Sync>, StoreError> {
        if let Some(damage @ StoreError::Damaged(_)) = self.refusal() {
            return Err(damage);
        }
        if self.shared.batches.borrow().closed {
            return Err(StoreError::Closed);
        }
        Ok(self.shared.snapshot.read().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// The durable state at this moment, for a backup; none where nothing was ever written.
    ///
    /// # Errors
    /// Why nothing can be read.
    pub(crate) fn held(&self) -> Result<Option<Held>, StoreError> {
        let snapshot: Held = self.snapshot()?;
        Ok(snapshot.get(FORMAT_KEY)?.map(|_| snapshot))
    }

    /// Where its file is, below the store's folder.
    pub(crate) fn path(&self) -> String {
        format!("{}/{FILE}", self.shared.dir)
    }

    /// Why writes are refused; none when they are taken.
    pub(crate) fn refusal(&self) -> Option<StoreError> {
        self.shared.refusal()
    }

    /// How far it has come, for those who wait for more.
    pub(crate) fn batches(&self) -> watch::Receiver<Batches> {
        self.shared.batches.subscribe()
    }

    /// Starts the writer, unless it runs.
    fn start(&self) -> Result<(), StoreError> {
        if let Some(refusal) = self.refusal() {
            return Err(refusal);
        }
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if writer.is_none() && !self.shared.batches.borrow().closed {
            let shared = self.shared.clone();
            let thread = std::thread::Builder::new().name("annals-engine".to_owned()).spawn(move || shared.run());
            *writer = Some(thread.map_err(|error| StoreError::Failed(format!("no thread to write: {error}")))?);
        }
        Ok(())
    }

    /// Takes no more writes, lets the waiting ones finish and closes the file. Blocks until that is done.
    pub(crate) fn close(&self) {
        self.shared.queue.close();
        self.shared.batches.send_modify(|batches| batches.closed = true);
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writer) = writer {
            // A writer that panicked has answered nobody and written nothing more; there is nothing left to save here.
            let _ = writer.join();
        }
        if let Some(database) = self.shared.database().take()
            && let Err(error) = database.close()
        {
            tracing::warn!(dir = self.shared.dir, %error, "closed without a checkpoint; the next opening takes longer");
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn database(&self) -> MutexGuard<'_, Option<redb::Database>> {
        self.database.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refusal(&self) -> Option<StoreError> {
        self.refusal.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Refuses writes from now on. The first reason stays.
    fn refuse(&self, why: StoreError) {
        tracing::error!(dir = self.dir, %why, "records and streams take no writes");
        self.refusal.write().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
    }
}
