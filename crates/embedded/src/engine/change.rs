//! One caller's write within a batch.

use annals_core::StoreError;

use super::recent::{Recent, Stored, Write};
use super::snapshot::Snapshot;
use super::view::{Entries, Range, View};

/// The state within a batch: the result of its earlier writes, and the changes of the current one.
pub(crate) struct Change {
    state: Snapshot,
    /// Everything that the batch writes, in order.
    written: Vec<Write>,
    /// The values that the current write replaced. They are restored in reverse order if it is refused.
    before: Vec<Option<Stored>>,
    /// A seeded bug that skips the undo, to test the tests.
    keeps_refused: bool,
}

impl Change {
    /// Starts a batch on top of this state.
    pub(super) fn new(state: Snapshot, keeps_refused: bool) -> Self {
        Self { state, written: Vec::new(), before: Vec::new(), keeps_refused }
    }

    /// Sets a key's value.
    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) {
        self.set((key.into(), Some(value.into())));
    }

    /// Removes a key, if it exists.
    pub(crate) fn remove(&mut self, key: &[u8]) {
        self.set((key.into(), None));
    }

    fn set(&mut self, write: Write) {
        self.before.push(self.state.recent.set(&write));
        self.written.push(write);
    }

    /// Runs one write, and undoes its changes if it refuses.
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

    /// Returns everything that the batch writes, and the recent writes including it.
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
