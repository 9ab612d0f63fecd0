//! Moves the journal's content into the map, on a thread of its own: in large pieces, in key order, while writes continue.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use annals_core::StoreError;
use redb::{Database, ReadableDatabase, StorageError, Table, TableDefinition, TableError};

use super::Shared;
use super::journal::Begun;
use super::open::{self, MAP};
use super::recent::Recent;
use super::snapshot::Below;

/// How often a writer that waits for the mover checks whether the mover waits for room on the disk.
const ASK_EVERY: Duration = Duration::from_millis(20);

/// The table in which the map describes its journal.
const JOURNAL: TableDefinition<'_, &str, u64> = TableDefinition::new("journal");
/// The number of the last batch that the map holds.
const MOVED: &str = "moved";
/// The mark of the journal that precedes the map; absent if there is none.
const MARK: &str = "mark";
/// The files of that journal, one bit for each.
const FILES: &str = "files";

/// The owner of the map: the mark of a store and tenant. Absent in a map of an older version that has not been written since.
const OWNER: &str = "owner";
/// The generation of the map. Absent, and taken as 0, in a map of an older version that has not been written since.
const GENERATION: &str = "generation";

/// What the map records about its journal and its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Noted {
    pub(super) owner: Option<u64>,
    /// 0 if no journal of the map began under a version that counts generations.
    pub(super) generation: u64,
    /// `None` if no journal precedes the map.
    pub(super) begun: Option<Begun>,
    /// The number of the last batch that the map holds, or 0.
    pub(super) moved: u64,
}

/// The queue of what is to be moved: at most one piece at a time.
#[derive(Default)]
pub(super) struct Moves {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    due: Option<Due>,
    /// Whether a piece is due or being moved.
    busy: bool,
    closed: bool,
}

/// The writes up to a batch.
struct Due {
    writes: Recent,
    up_to: u64,
}

impl Moves {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether another piece can be handed over.
    pub(super) fn idle(&self) -> bool {
        !self.state().busy
    }

    /// Waits until another piece can be handed over, or until `ends` reports that it may take forever: after a failure, or on a full
    /// disk. `ends` is polled, because a mover that starts waiting for room notifies nobody.
    pub(super) fn until_idle(&self, ends: impl Fn() -> bool) {
        let mut state = self.state();
        while state.busy && !ends() {
            (state, _) = self.changed.wait_timeout(state, ASK_EVERY).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Hands over a piece; no other may be due or being moved.
    pub(super) fn hand_over(&self, writes: Recent, up_to: u64) {
        let mut state = self.state();
        state.due = Some(Due { writes, up_to });
        state.busy = true;
        self.changed.notify_all();
    }

    /// Ends the thread once the piece handed over has been moved.
    pub(super) fn close(&self) {
        self.state().closed = true;
        self.changed.notify_all();
    }

    fn next(&self) -> Option<Due> {
        let mut state = self.state();
        loop {
            match state.due.take() {
                Some(due) => return Some(due),
                None if state.closed => return None,
                None => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    fn done(&self, moved: bool) {
        self.state().busy = !moved;
        self.changed.notify_all();
    }
}

impl Shared {
    /// Runs the mover thread.
    pub(super) fn run_moves(self: Arc<Self>) {
        while let Some(due) = self.moves.next() {
            let turn = std::panic::AssertUnwindSafe(|| self.move_piece(&due));
            let outcome =
                std::panic::catch_unwind(turn).unwrap_or_else(|_| Err(StoreError::Failed("it panicked".to_owned())));
            if let Err(error) = &outcome {
                self.refuse(StoreError::Failed(format!("{}: moving the journal into the map: {error}", self.dir)));
            }
            self.moves.done(outcome.is_ok());
        }
    }

    fn move_piece(&self, due: &Due) -> Result<(), StoreError> {
        let database = self.database();
        let Some(database) = &*database else { return Err(StoreError::Closed) };
        let moved = || put(database, due.writes.iter(), |journal| journal.insert(MOVED, due.up_to).map(drop));
        self.patience.while_moving(moved).map_err(|error| StoreError::Failed(open::io_error(error).to_string()))?;
        let below = Below::take(database)?;
        self.publish(|state| state.moved(below));
        Ok(())
    }
}

/// Records in the map the files of its journal, its owner, and its generation if that changes. The files must already be durable.
///
/// # Errors
/// Why the map cannot be written.
pub(super) fn name(
    database: &Database,
    begun: Begun,
    owner: Option<u64>,
    generation: Option<u64>,
) -> Result<(), redb::Error> {
    let files = u64::from(begun.files[0]) | u64::from(begun.files[1]) << 1;
    put(database, std::iter::empty(), |journal| {
        for (key, number) in [(OWNER, owner), (GENERATION, generation)] {
            number.map(|number| journal.insert(key, number).map(drop)).transpose()?;
        }
        journal.insert(MARK, begun.mark)?;
        journal.insert(FILES, files).map(drop)
    })
}

/// Records the owner in a new map.
///
/// # Errors
/// Why the map cannot be written.
pub(super) fn own(database: &Database, owner: Option<u64>) -> Result<(), redb::Error> {
    put(database, std::iter::empty(), |notes| owner.map(|owner| notes.insert(OWNER, owner).map(drop)).unwrap_or(Ok(())))
}

/// Moves the last writes, up to a batch, into the map and removes the journal's name from it, atomically. Only then may its files be
/// removed.
///
/// # Errors
/// Why the map cannot be written.
pub(super) fn end<'w>(
    database: &Database,
    writes: impl Iterator<Item = (&'w [u8], Option<&'w [u8]>)>,
    up_to: u64,
    generation: Option<u64>,
) -> Result<(), redb::Error> {
    put(database, writes, |journal| {
        generation.map(|generation| journal.insert(GENERATION, generation).map(drop)).transpose()?;
        journal.insert(MOVED, up_to)?;
        journal.remove(MARK)?;
        journal.remove(FILES).map(drop)
    })
}

fn put<'w>(
    database: &Database,
    writes: impl Iterator<Item = (&'w [u8], Option<&'w [u8]>)>,
    note: impl FnOnce(&mut Table<'_, &'static str, u64>) -> Result<(), StorageError>,
) -> Result<(), redb::Error> {
    let mut write = database.begin_write()?;
    // Two-phase commit: first the pages, then the byte that makes them current. A state found on opening is therefore complete or
    // damaged, and the previous state is never mistaken for it.
    write.set_two_phase_commit(true);
    {
        let mut map = write.open_table(MAP)?;
        for (key, value) in writes {
            match value {
                Some(value) => drop(map.insert(key, value)?),
                None => drop(map.remove(key)?),
            }
        }
        note(&mut write.open_table(JOURNAL)?)?;
    }
    write.commit()?;
    Ok(())
}

/// Returns what the map records about its journal and its owner.
///
/// # Errors
/// Why the map cannot be read.
pub(super) fn noted(database: &Database) -> Result<Noted, redb::Error> {
    let journal = match database.begin_read()?.open_table(JOURNAL) {
        Err(TableError::TableDoesNotExist(_)) => {
            return Ok(Noted { owner: None, generation: 0, begun: None, moved: 0 });
        }
        journal => journal?,
    };
    let number = |key: &str| Ok::<_, redb::Error>(journal.get(key)?.map(|number| number.value()));
    let files = number(FILES)?.unwrap_or(0);
    let begun = number(MARK)?.map(|mark| Begun { mark, files: [files & 1 > 0, files & 2 > 0] });
    let generation = number(GENERATION)?.unwrap_or(0);
    Ok(Noted { owner: number(OWNER)?, generation, begun, moved: number(MOVED)?.unwrap_or(0) })
}
