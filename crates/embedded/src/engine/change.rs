//! One caller's write, inside a batch.

use annals_core::StoreError;
use redb::ReadableTable;

use super::view::{Entries, Range, View, owned, store_error};

/// The map inside a batch: what earlier writes of it left, and what this one changes.
pub(crate) struct Change<'t> {
    map: redb::Table<'t, &'static [u8], &'static [u8]>,
    /// What to put back, in reverse, when the write under way is refused.
    before: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// Whether any write of the batch changed something.
    changed: bool,
    /// The map could not be read or written: the batch cannot be committed.
    failure: Option<StoreError>,
    /// The defect not to undo, for the tests of the tests.
    keeps_refused: bool,
}

impl<'t> Change<'t> {
    pub(super) fn new(map: redb::Table<'t, &'static [u8], &'static [u8]>, keeps_refused: bool) -> Self {
        Self { map, before: Vec::new(), changed: false, failure: None, keeps_refused }
    }

    /// Sets a key's value.
    ///
    /// # Errors
    /// Why the map cannot be written; the whole batch fails then.
    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        let before = self.map.insert(key, value).map(|old| old.map(|old| old.value().to_vec()));
        self.remember(key, before)
    }

    /// Removes a key, if it is there.
    ///
    /// # Errors
    /// Why the map cannot be written; the whole batch fails then.
    pub(crate) fn remove(&mut self, key: &[u8]) -> Result<(), StoreError> {
        let before = self.map.remove(key).map(|old| old.map(|old| old.value().to_vec()));
        self.remember(key, before)
    }

    fn remember(&mut self, key: &[u8], before: Result<Option<Vec<u8>>, redb::StorageError>) -> Result<(), StoreError> {
        match before {
            Ok(before) => {
                self.before.push((key.to_vec(), before));
                self.changed = true;
                Ok(())
            }
            Err(error) => {
                let error = store_error(error);
                self.failure.get_or_insert(error.clone());
                Err(error)
            }
        }
    }

    /// Runs one write. What it changed is undone when it refuses.
    pub(super) fn run<T, E>(&mut self, work: impl FnOnce(&mut Change<'t>) -> Result<T, E>) -> Result<T, E> {
        self.before.clear();
        let outcome = work(self);
        if outcome.is_err() && !self.keeps_refused {
            self.undo();
        }
        outcome
    }

    fn undo(&mut self) {
        for (key, value) in std::mem::take(&mut self.before).into_iter().rev() {
            let undone = match value {
                Some(value) => self.map.insert(&key[..], &value[..]).map(drop),
                None => self.map.remove(&key[..]).map(drop),
            };
            if let Err(error) = undone {
                self.failure.get_or_insert(store_error(error));
            }
        }
    }

    /// Whether the batch holds something to commit.
    pub(super) fn finish(self) -> Result<bool, StoreError> {
        match self.failure {
            Some(failure) => Err(failure),
            None => Ok(self.changed),
        }
    }
}

impl View for Change<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.map.get(key).map_err(store_error)?.map(|value| value.value().to_vec()))
    }

    fn ascending(&self, range: &Range) -> Result<Entries<'_>, StoreError> {
        let Some(bounds) = range.bounds() else { return Ok(Box::new(std::iter::empty())) };
        Ok(Box::new(self.map.range::<&[u8]>(bounds).map_err(store_error)?.map(owned)))
    }

    fn descending(&self, range: &Range) -> Result<Entries<'_>, StoreError> {
        let Some(bounds) = range.bounds() else { return Ok(Box::new(std::iter::empty())) };
        Ok(Box::new(self.map.range::<&[u8]>(bounds).map_err(store_error)?.rev().map(owned)))
    }
}
