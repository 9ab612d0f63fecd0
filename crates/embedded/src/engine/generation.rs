//! The generation of a map: how an earlier copy of its file is told from the map itself.
//!
//! The map holds a number that grows when a journal begins before it and when that journal ends. `tenant.json`, a file outside the
//! engine's folder, notes the number. They are written in this order:
//!
//! ```text
//! first write of a process:   noted = N ─▶ one commit of redb: the journal's name and N + 1 ─▶ note N + 1 ─▶ first batch ─▶ answer
//! closing, and opening        noted = N ─▶ one commit of redb: what the journal holds, no journal, N + 1 ─▶ note N + 1
//! after a kill:                            ─▶ the journal's files are removed
//! ```
//!
//! INVARIANT: the number in the map is the noted one or the next. A process that ends between the commit and the note leaves the
//! next, and the following process writes that same number again before it notes it. So a good store is never refused.
//!
//! INVARIANT: no write is answered while the note is behind the map. So a map with a number below the noted one lacks something that was
//! answered, and is refused. One with the same number was copied from this map within one life of its journal: it names that journal,
//! which either holds all that the copy lacks or has a gap, and a gap is damage (`journal/read.rs`).
//!
//! A store that was restored, or was last open in a version that noted no generation, has no note. Opening it notes what its map says.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::refused::is_full;

/// What must be true of a map, as far as it is known beside it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Marks {
    /// The mark of the store and tenant whose map it is, as the headers of segments have one. `None` where it is not compared.
    pub(crate) owner: Option<u64>,
    /// The generation that is noted. `None` where none was noted yet.
    pub(crate) generation: Option<u64>,
}

impl Marks {
    /// Compares the marks with those that a map holds, and answers why it is not the map they were noted of.
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
                "its generation is {generation}, and tenant.json names {noted}: one of the two files is of another time"
            )
        })
    }
}

/// Notes, durably, the generation of the map, and that there is one.
pub(crate) type Note = Box<dyn Fn(u64) -> io::Result<()> + Send + Sync>;

/// The generation of an open map. Without a place to note it, it stays as it is.
pub(super) struct Generation {
    state: Mutex<State>,
    note: Option<Note>,
}

#[derive(Debug, Clone, Copy)]
struct State {
    map: u64,
    /// `None` where the map is new, or of a version that noted none.
    noted: Option<u64>,
}

impl Generation {
    /// The generation of a map that is not there yet.
    pub(super) fn of_none(note: Option<Note>) -> Self {
        Self { state: Mutex::new(State { map: 0, noted: None }), note }
    }

    /// Takes over what a map says that was just opened, and notes it. On a full disk that is done later: reads must go on.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn opened(&self, map: u64, noted: Option<u64>) -> io::Result<()> {
        *self.state() = State { map, noted };
        match self.settle() {
            Err(error) if is_full(&error) => Ok(()),
            settled => settled,
        }
    }

    /// The number that the map is to hold when a journal begins or ends next.
    pub(super) fn next(&self) -> Option<u64> {
        let state = *self.state();
        self.note.as_ref().map(|_| next(state.noted.unwrap_or(state.map)))
    }

    /// The map holds this number, durably.
    pub(super) fn written(&self, map: Option<u64>) {
        if let Some(map) = map {
            self.state().map = map;
        }
    }

    /// Notes what the map holds, unless that was done. A journal may begin, and a batch be appended, only after it.
    ///
    /// # Errors
    /// What the system says; it is unknown then what is noted.
    pub(super) fn settle(&self) -> io::Result<()> {
        let mut state = self.state();
        let Some(note) = self.note.as_ref().filter(|_| state.noted != Some(state.map)) else { return Ok(()) };
        note(state.map)?;
        state.noted = Some(state.map);
        Ok(())
    }

    /// The defect of noting a number before the map holds it.
    pub(super) fn note_too_early(&self) -> io::Result<()> {
        let state = *self.state();
        self.note.as_ref().map_or(Ok(()), |note| note(next(state.noted.unwrap_or(state.map))))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The generation after the noted one.
pub(super) fn next(noted: u64) -> u64 {
    noted.saturating_add(1)
}
