//! The generation of a map: how an earlier copy of its file is told apart from the map itself.
//!
//! The map holds a number that increases when its journal begins and when that journal ends. `tenant.json`, a file outside the engine's
//! folder, records the number. They are written in this order:
//!
//! ```text
//! first write of a process:   noted = N ─▶ one commit of redb: the journal's name and N + 1 ─▶ note N + 1 ─▶ first batch ─▶ answer
//! closing, and opening        noted = N ─▶ one commit of redb: what the journal holds, no journal, N + 1 ─▶ note N + 1
//! after a kill:                            ─▶ the journal's files are removed
//! ```
//!
//! INVARIANT: the number in the map is the recorded one or the next. A process that ends between the commit and the note leaves the next
//! number, and the following process writes the same number again before it records it. An intact store is therefore never refused.
//!
//! INVARIANT: no write is answered while the recorded number lags behind the map's. A map with a number below the recorded one therefore
//! lacks acknowledged writes, and is refused. A copy with the same number was taken from this map within the lifetime of one journal. It
//! names that journal, which either holds everything that the copy lacks or has a gap, and a gap is damage (`journal/read.rs`).
//!
//! A store has no recorded generation if it was restored, or was last opened by a version that recorded none. Opening it records what its
//! map holds.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::refused::is_full;

/// What must hold for a map, as far as it is known from outside.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Marks {
    /// The mark of the store and tenant that the map belongs to, as in the headers of segments. `None` if it is not compared.
    pub(crate) owner: Option<u64>,
    /// The recorded generation, or `None` if none was recorded yet.
    pub(crate) generation: Option<u64>,
}

impl Marks {
    /// Compares the marks with those of a map. Returns why this is not the map they were recorded for, or `None` if it may be.
    pub(super) fn refused(&self, owner: Option<u64>, generation: u64) -> Option<String> {
        if self.owner.is_some_and(|due| owner.is_some_and(|owner| owner != due)) {
            return Some("it is the map of another store or of another tenant".to_owned());
        }
        let noted = self.generation?;
        if generation < noted {
            return Some(format!(
                "it is an earlier copy: its generation is {generation}, and tenant.json names {noted}"
            ));
        }
        let beyond = generation > noted.saturating_add(1);
        beyond.then(|| {
            format!(
                "its generation is {generation}, and tenant.json names {noted}: one of the two files is from another time"
            )
        })
    }
}

/// Durably records the generation of the map, and that the map exists.
pub(crate) type Note = Box<dyn Fn(u64) -> io::Result<()> + Send + Sync>;

/// The generation of an open map. It never changes if there is no place to record it.
pub(super) struct Generation {
    state: Mutex<State>,
    note: Option<Note>,
}

#[derive(Debug, Clone, Copy)]
struct State {
    map: u64,
    /// `None` if the map is new or was last written by a version that recorded none.
    noted: Option<u64>,
}

impl Generation {
    /// Creates the generation of a map that does not exist yet.
    pub(super) fn of_none(note: Option<Note>) -> Self {
        Self { state: Mutex::new(State { map: 0, noted: None }), note }
    }

    /// Adopts the generation of a map that was just opened, and records it. On a full disk it is recorded later, because reads must
    /// continue.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub(super) fn opened(&self, map: u64, noted: Option<u64>) -> io::Result<()> {
        *self.state() = State { map, noted };
        match self.settle() {
            Err(error) if is_full(&error) => Ok(()),
            settled => settled,
        }
    }

    /// Returns the number that the map must hold once a journal next begins or ends.
    pub(super) fn next(&self) -> Option<u64> {
        let state = *self.state();
        self.note.as_ref().map(|_| next(state.noted.unwrap_or(state.map)))
    }

    /// Registers that the map durably holds this number.
    pub(super) fn written(&self, map: Option<u64>) {
        if let Some(map) = map {
            self.state().map = map;
        }
    }

    /// Records the map's number, unless that was done. Only afterwards may a journal begin or a batch be appended.
    ///
    /// # Errors
    /// Errors of the operating system, after which it is unknown what is recorded.
    pub(super) fn settle(&self) -> io::Result<()> {
        let mut state = self.state();
        let Some(note) = self.note.as_ref().filter(|_| state.noted != Some(state.map)) else { return Ok(()) };
        note(state.map)?;
        state.noted = Some(state.map);
        Ok(())
    }

    /// The seeded bug that records a number before the map holds it.
    pub(super) fn note_too_early(&self) -> io::Result<()> {
        let state = *self.state();
        self.note.as_ref().map_or(Ok(()), |note| note(next(state.noted.unwrap_or(state.map))))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the generation that follows the recorded one.
pub(super) fn next(noted: u64) -> u64 {
    noted.saturating_add(1)
}
