//! One caller's write, inside a batch.

use annals_core::StoreError;

use super::recent::{Recent, Stored, Write};
use super::snapshot::Snapshot;
use super::view::{Entries, Range, View};

/// The state inside a batch: what earlier writes of it left, and what this one changes.
pub(crate) struct Change {
    state: Snapshot,
    /// All that the batch writes, in the order in which it was written.
    written: Vec<Write>,
    /// What the last of these had written over: it is put back, in reverse, when the write under way is refused.
    before: Vec<Option<Stored>>,
    /// The defect not to undo, for the tests of the tests.
    keeps_refused: bool,
}

impl Change {
    /// A batch upon this state.
    pub(super) fn new(state: Snapshot, keeps_refused: bool) -> Self {
        Self { state, written: Vec::new(), before: Vec::new(), keeps_refused }
    }

    /// Sets a key's value.
    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) {
        self.set((key.into(), Some(value.into())));
    }

    /// Removes a key, if it is there.
    pub(crate) fn remove(&mut self, key: &[u8]) {
        self.set((key.into(), None));
    }

    fn set(&mut self, write: Write) {
        self.before.push(self.state.recent.set(&write));
        self.written.push(write);
    }

    /// Runs one write. What it changed is undone when it refuses.
    pub(super) fn run<T, E>(&mut self, work: impl FnOnce(&mut Self) -> Result<T, E>) -> Result<T, E> {
        self.before.clear();
        let outcome = work(self);
        if outcome.is_err() && !self.keeps_refused {
            let undone = self.written.split_off(self.written.len() - self.before.len());
            for ((key, _), before) in undone.iter().zip(self.before.drain(..)).rev() {
                self.state.recent.unset(key, before);
            }
        }
        outcome
    }

    /// What the batch writes, and what is recent with it.
    pub(super) fn finish(self) -> (Vec<Write>, Recent) {
        (self.written, self.state.recent)
    }
}

impl View for Change {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.state.get(key)
    }

    fn ascending(&self, range: &Range) -> Result<Entries<'_>, StoreError> {
        self.state.ascending(range)
    }

    fn descending(&self, range: &Range) -> Result<Entries<'_>, StoreError> {
        self.state.descending(range)
    }
}
