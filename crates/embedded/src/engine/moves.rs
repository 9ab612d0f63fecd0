//! Moving what the journal holds into the map, on a thread of its own: large pieces, in the order of their keys, while writing goes on.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use annals_core::StoreError;
use redb::{Database, ReadableDatabase, TableDefinition, TableError};

use super::Shared;
use super::open::{self, MAP};
use super::recent::{Key, Recent, Value, Write};
use super::snapshot::Below;

/// What the map says of the journal.
const JOURNAL: TableDefinition<'_, &str, u64> = TableDefinition::new("journal");
/// The number of the last batch that the map holds.
const MOVED: &str = "moved";

/// What is to be moved: at most one piece at a time.
#[derive(Default)]
pub(super) struct Moves {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    due: Option<Due>,
    /// A piece is due or under way.
    busy: bool,
    closed: bool,
}

/// Writes up to a batch.
struct Due {
    writes: Recent,
    up_to: u64,
}

impl Moves {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether another piece can be handed over.
    pub(super) fn idle(&self) -> bool {
        !self.state().busy
    }

    /// Waits until another piece can be handed over. After a failure none ever can.
    pub(super) fn until_idle(&self, failed: impl Fn() -> bool) {
        let mut state = self.state();
        while state.busy && !failed() {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Hands over a piece; nothing else may be under way.
    pub(super) fn hand_over(&self, writes: Recent, up_to: u64) {
        let mut state = self.state();
        state.due = Some(Due { writes, up_to });
        state.busy = true;
        self.changed.notify_all();
    }

    /// Ends the thread, once what was handed over is moved.
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
    /// The moving thread's life.
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
        put(database, due.writes.iter(), due.up_to)
            .map_err(|error| StoreError::Failed(open::io_error(error).to_string()))?;
        let below = Below::take(database)?;
        self.publish(|state| state.moved(below));
        Ok(())
    }
}

/// Moves writes up to a batch into a map that nobody else has open.
///
/// # Errors
/// Why the map cannot be written.
pub(super) fn move_all(database: &Database, last: u64, writes: Vec<Write>) -> Result<(), redb::Error> {
    if writes.is_empty() {
        return Ok(());
    }
    let mut newest = Recent::default();
    writes.into_iter().for_each(|write| drop(newest.set(write)));
    put(database, newest.iter(), last)
}

fn put<'w>(
    database: &Database,
    writes: impl Iterator<Item = (&'w Key, &'w Value)>,
    up_to: u64,
) -> Result<(), redb::Error> {
    let mut write = database.begin_write()?;
    // Two phases: pages first, then the byte that makes them current. So a state that opening finds is whole or damaged, and the
    // state before it is never taken in its place.
    write.set_two_phase_commit(true);
    {
        let mut map = write.open_table(MAP)?;
        for (key, value) in writes {
            match value {
                Some(value) => drop(map.insert(&key[..], &value[..])?),
                None => drop(map.remove(&key[..])?),
            }
        }
        write.open_table(JOURNAL)?.insert(MOVED, up_to)?;
    }
    write.commit()?;
    Ok(())
}

/// The number of the last batch that the map holds; 0 for none.
///
/// # Errors
/// Why the map cannot be read.
pub(super) fn moved(database: &Database) -> Result<u64, redb::Error> {
    match database.begin_read()?.open_table(JOURNAL) {
        Err(TableError::TableDoesNotExist(_)) => Ok(0),
        table => Ok(redb::ReadableTable::get(&table?, MOVED)?.map_or(0, |moved| moved.value())),
    }
}
