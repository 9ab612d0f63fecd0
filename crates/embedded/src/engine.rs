//! The engine: one ordered map of bytes per tenant, under records and streams. Many callers share one sync.
//!
//! ```text
//!   view.rs      what can be read: get · ascending · descending       Snapshot (durable state) and Change (inside a write) have it
//!   change.rs    what a write may do: put · remove, undone as a whole when the write is refused
//!   writer.rs    writer thread: take all that wait · run each · append to the journal · publish · answer
//!   journal.rs   every batch, with one append and one sync     ◀── durable here
//!   recent.rs    what the journal holds and the map does not, in memory
//!   snapshot.rs  the durable state: what is recent, above what is being moved, above the map
//!   moves.rs     moving thread: what was recent, into the map
//!   open.rs      opening: the map, and what the journal holds behind it
//!   generation.rs  what tells an earlier copy of the map's file from the map
//!   file.rs      the map's file on a Disk
//!   dump.rs      the map as a file of entries, for backups
//!   make.rs      a new map of such a file
//!   look.rs      a map that no process has open, to be read without changing a byte
//! ```
//!
//! The map is stored by the crate redb, a copy-on-write B-tree in one file; docs/decisions/0005-records-engine.md gives the reasons.
//! docs/decisions/0029-a-journal-before-the-map.md explains why a journal precedes it. Each user of the engine owns a key space: the
//! first byte of its keys, one of [`Space`].
//!
//! Invariants:
//! - No caller is answered, and no reader sees a write, before the batch that contains it has been synced.
//! - A refused write leaves nothing behind, and never affects the other writes of its batch.
//! - After a failed write or sync the engine accepts no writes until the store is reopened.

mod blocking;
mod change;
mod dump;
mod file;
mod generation;
mod journal;
mod look;
mod make;
mod moves;
mod open;
mod recent;
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
pub(crate) use self::generation::{Marks, Note};
pub(crate) use self::journal::FILES as JOURNAL_FILES;
pub(crate) use self::look::{Looked, look};
pub(crate) use self::make::make;
pub(crate) use self::open::{Damage, FILE, FORMAT_KEY};
pub(crate) use self::view::{Entries as ViewEntries, Range, View, after_prefix};

use self::file::Patience;
use self::generation::Generation;
use self::journal::Journal;
use self::moves::Moves;
use self::snapshot::{Below, Snapshot};
use self::writer::Queue;
use crate::Options;
use crate::disk::Disk;
use crate::floor::Floor;
use crate::options::SeededBug;

/// The owner of a key space, by the first byte of its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Space {
    /// The engine itself: its format.
    Engine = 0,
    /// Records: documents, index entries, changes.
    Records = 1,
    /// Streams: entries and progress.
    Streams = 2,
}

/// Limit on queued writes; further callers wait for room.
const WAITING_MAX: usize = 8_192;

/// The ordered map of one tenant.
pub(crate) struct Engine {
    shared: Arc<Shared>,
    /// What opening skipped, as notes for operators.
    recovery: Vec<String>,
    threads: Mutex<Option<Threads>>,
}

struct Threads {
    writer: JoinHandle<()>,
    moves: JoinHandle<()>,
}

/// State that callers and the threads share.
pub(crate) struct Shared {
    disk: Arc<dyn Disk>,
    dir: String,
    options: Options,
    queue: Queue,
    room: Semaphore,
    /// The writer holds this lock while it writes a batch.
    journal: Mutex<Journal>,
    moves: Moves,
    /// `None` until the first write: a tenant without records costs no file.
    database: Mutex<Option<redb::Database>>,
    made: Mutex<Made>,
    /// Lets the mover wait while the disk is full.
    patience: Arc<Patience>,
    floor: Floor,
    marks: Marks,
    generation: Generation,
    snapshot: RwLock<Arc<Snapshot>>,
    refusal: RwLock<Option<StoreError>>,
    /// The number of batches made durable since opening; closed with the engine.
    batches: watch::Sender<Batches>,
}

/// What has been done to the map since opening.
#[derive(Default)]
struct Made {
    /// The map exists and has this version's format.
    map: bool,
    /// The map is new and `tenant.json` does not mention it yet.
    unnoted: bool,
}

/// What is known about a map from outside its own file.
#[derive(Default)]
pub(crate) struct Known {
    /// Whether it was ever created, so that its absence is a loss.
    pub(crate) made: bool,
    /// The marks that it must carry.
    pub(crate) marks: Marks,
    /// Records that the map exists, and its generation. If absent, neither is recorded.
    pub(crate) note: Option<Note>,
}

/// The engine's progress.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Batches {
    /// Batches made durable since the engine was opened.
    pub(crate) durable: u64,
    /// Whether the engine is closing.
    pub(crate) closed: bool,
}

impl Engine {
    /// Opens the map in this folder. If there is none, the first write creates it. A damaged map opens in a state that refuses reads and
    /// writes, so that the logs beside it remain usable.
    ///
    /// # Errors
    /// `newer_format`, `store_read_only`, `disk_full`, `read_failed`. Nothing has been changed then.
    pub(crate) fn open(disk: Arc<dyn Disk>, dir: String, known: Known, options: &Options) -> Result<Self, OpenError> {
        if options.has(SeededBug::ForgetJournalOnOpening) {
            let _ = journal::remove_all(&*disk, &dir);
        }
        let patience = Arc::new(Patience::default());
        let Known { made, marks, note } = known;
        let generation = Generation::of_none(note);
        let (existing, refusal) = match open::existing(&disk, &dir, &marks, &generation, &patience) {
            Ok(None) if made => (None, Some(Damage::lost(&dir))),
            Ok(existing) => (existing, None),
            Err(open::Failure::Damaged(damage)) => (None, Some(damage)),
            Err(open::Failure::Refused(error)) => return Err(error),
        };
        if let Some(damage) = &refusal {
            tracing::error!(dir, %damage, "records and streams are refused");
        }
        let snapshot = match &existing {
            Some(it) => Snapshot::of(Below::take(&it.database).map_err(|error| open::unreadable(&dir, &error))?),
            None => Snapshot::empty(),
        };
        let (database, last, torn) = existing.map_or((None, 0, Vec::new()), |it| (Some(it.database), it.last, it.torn));
        let recovery: Vec<String> = torn.iter().map(|torn| format!("skipped: {torn}")).collect();
        recovery.iter().for_each(|note| tracing::warn!(dir, note, "the journal of records and streams"));
        let journal = Journal::new(disk.clone(), dir.clone(), options.random.bits() as u64, last);
        let shared = Arc::new(Shared {
            disk,
            dir,
            options: options.clone(),
            queue: Queue::default(),
            room: Semaphore::new(WAITING_MAX),
            journal: Mutex::new(journal),
            moves: Moves::default(),
            database: Mutex::new(database),
            made: Mutex::default(),
            patience,
            floor: Floor::new(options),
            marks,
            generation,
            snapshot: RwLock::new(Arc::new(snapshot)),
            refusal: RwLock::new(refusal.map(StoreError::from)),
            batches: watch::Sender::new(Batches::default()),
        });
        Ok(Self { shared, recovery, threads: Mutex::new(None) })
    }

    /// Returns what opening skipped, as notes for operators; empty after a clean shutdown.
    pub(crate) fn recovery(&self) -> &[String] {
        &self.recovery
    }

    /// Runs `work` in the next batch and returns its result once the batch is durable. `work` sees everything written before it,
    /// including earlier writes of its batch. If it refuses, all its changes are undone. The answer still waits for the sync, because the
    /// refusal may rest on writes that are not durable yet.
    ///
    /// Dropping the future does not undo the write: it happens completely or not at all.
    ///
    /// # Errors
    /// The error of `work`, or a [`StoreError`] if the map cannot be read or written. After [`StoreError::Failed`] it is unknown whether
    /// the write will be present when the store is reopened.
    pub(crate) async fn write<T, E>(
        &self,
        work: impl FnOnce(&mut Change) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        self.write_then(work, |_| ()).await
    }

    /// Reads the durable state as of one moment, however long `work` takes.
    ///
    /// # Errors
    /// The error of `work`, or why nothing can be read.
    pub(crate) fn read<T, E: From<StoreError>>(&self, work: impl FnOnce(&dyn View) -> Result<T, E>) -> Result<T, E> {
        work(&*self.snapshot()?)
    }

    /// Returns the durable state as of now, for a long-running reader.
    ///
    /// # Errors
    /// Why nothing can be read.
    pub(crate) fn snapshot(&self) -> Result<Arc<dyn View + Send + Sync>, StoreError> {
        if let Some(damage @ StoreError::RecordsDamaged(_)) = self.refusal() {
            return Err(damage);
        }
        if self.shared.batches.borrow().closed {
            return Err(StoreError::Closed);
        }
        Ok(self.shared.snapshot.read().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// Returns the durable state as of now, for a backup, or `None` if nothing was ever written.
    ///
    /// # Errors
    /// Why nothing can be read.
    pub(crate) fn held(&self) -> Result<Option<Held>, StoreError> {
        let snapshot: Held = self.snapshot()?;
        Ok(snapshot.get(FORMAT_KEY)?.map(|_| snapshot))
    }

    /// Returns whether anything was ever written and can be read.
    pub(crate) fn has_map(&self) -> bool {
        self.shared.database().is_some()
    }

    /// Returns the path of the map's file, relative to the store's folder.
    pub(crate) fn path(&self) -> String {
        format!("{}/{FILE}", self.shared.dir)
    }

    /// Refuses writes from now on.
    pub(crate) fn refuse(&self, why: StoreError) {
        self.shared.refusal.write().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
    }

    /// Returns why writes are refused, or `None` if they are accepted.
    pub(crate) fn refusal(&self) -> Option<StoreError> {
        self.shared.refusal()
    }

    /// Subscribes to the engine's progress.
    pub(crate) fn batches(&self) -> watch::Receiver<Batches> {
        self.shared.batches.subscribe()
    }

    /// Starts the writer and the mover, unless they are running.
    fn start(&self) -> Result<(), StoreError> {
        if let Some(refusal) = self.refusal() {
            return Err(refusal);
        }
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        if threads.is_none() && !self.shared.batches.borrow().closed {
            let started = |name: &str, run: fn(Arc<Shared>)| {
                let shared = self.shared.clone();
                let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || run(shared));
                thread.map_err(|error| StoreError::Failed(format!("cannot start the writer thread: {error}")))
            };
            let moves = started("annals-moves", Shared::run_moves)?;
            *threads = Some(Threads { writer: started("annals-engine", Shared::run)?, moves });
        }
        Ok(())
    }

    /// Stops accepting writes, lets the queued ones finish, moves everything into the map and closes it. Blocks until that is done.
    pub(crate) fn close(&self) {
        self.shared.queue.close();
        self.shared.batches.send_modify(|batches| batches.closed = true);
        let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(threads) = threads {
            // A thread that panicked has answered nobody and written nothing more; there is nothing left to save here.
            let _ = threads.writer.join();
            self.shared.moves.close();
            self.shared.patience.end();
            let _ = threads.moves.join();
        }
        self.shared.close_files();
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    /// Closes the map. The journal is removed only if everything it held was moved and the map no longer names it. Whatever ended a
    /// thread, every acknowledged write therefore remains in the journal or in the map.
    fn close_files(&self) {
        let Some(database) = self.database().take() else { return };
        let ended = self.end_journal(&database);
        if let Err(error) = database.close() {
            tracing::warn!(dir = self.dir, %error, "closed without a checkpoint; the next opening takes longer");
        }
        if ended && let Err(error) = journal::remove_all(&*self.disk, &self.dir) {
            tracing::warn!(dir = self.dir, %error, "the journal stays; all of it is in the map");
        }
    }

    /// Moves what the map does not hold yet, and removes the journal's name from it. Returns whether the journal's files may be removed:
    /// never after a failure, because they may hold the only copy of a write.
    fn end_journal(&self, database: &redb::Database) -> bool {
        let (journal, state) = (self.journal(), self.state());
        // If the lock was lost, another process may own the journal.
        if self.refusal().is_some() || !journal.is_begun() || self.disk.check_lock().is_err() {
            return false;
        }
        let next = self.generation.next();
        if let Err(error) = moves::end(database, state.above_the_map(), journal.sequence(), next) {
            tracing::warn!(dir = self.dir, %error, "the journal stays; the next opening moves it into the map");
            return false;
        }
        self.generation.written(next);
        if let Err(error) = self.generation.settle() {
            tracing::warn!(dir = self.dir, %error, "the generation of the map is noted by the next opening");
        }
        true
    }

    /// Returns the durable state as of now.
    fn state(&self) -> Snapshot {
        Snapshot::clone(&self.snapshot.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Publishes a new state to readers.
    fn publish(&self, next: impl FnOnce(&Snapshot) -> Snapshot) {
        let mut snapshot = self.snapshot.write().unwrap_or_else(PoisonError::into_inner);
        *snapshot = Arc::new(next(&snapshot));
    }

    fn journal(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn database(&self) -> MutexGuard<'_, Option<redb::Database>> {
        self.database.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refusal(&self) -> Option<StoreError> {
        self.refusal.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Refuses writes from now on. The first reason is kept.
    fn refuse(&self, why: StoreError) {
        tracing::error!(dir = self.dir, %why, "records and streams take no writes");
        self.refusal.write().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
    }
}
