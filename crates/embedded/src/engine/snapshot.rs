//! The durable state at one moment: the map in the file, and above it everything written since.

use std::sync::Arc;

use annals_core::StoreError;
use redb::{Database, ReadOnlyTable, ReadableDatabase, ReadableTable, TableError, TransactionError};

use super::open::MAP;
use super::recent::Recent;
use super::view::{Entries, Range, View, owned, store_error};

/// The durable state at one moment. Copies are cheap.
#[derive(Clone)]
pub(super) struct Snapshot {
    /// What was written since and is still only in memory.
    pub(super) recent: Recent,
    /// The state on top of which it was written.
    pub(super) below: Arc<Below>,
}

/// The map in the file, and above it the writes being moved into it.
pub(super) struct Below {
    moving: Recent,
    /// `None` if nothing was ever written.
    map: Option<Arc<ReadOnlyTable<&'static [u8], &'static [u8]>>>,
}

impl Snapshot {
    /// Returns a state without entries.
    pub(super) fn empty() -> Self {
        Self::of(Below { moving: Recent::default(), map: None })
    }

    /// Returns a state on top of which nothing was written yet.
    pub(super) fn of(below: Below) -> Self {
        Self { recent: Recent::default(), below: Arc::new(below) }
    }

    /// Returns the same state with its recent writes marked as being moved.
    pub(super) fn while_moving(&self) -> Self {
        Self::of(Below { moving: self.recent.clone(), map: self.below.map.clone() })
    }

    /// Returns what the map's file does not hold, oldest first.
    pub(super) fn above_the_map(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        self.below.moving.iter().chain(self.recent.iter())
    }

    /// Returns the same state once the map holds what was being moved.
    pub(super) fn moved(&self, below: Below) -> Self {
        Self { recent: self.recent.clone(), below: Arc::new(below) }
    }
}

impl Below {
    /// Reads the map as the last commit left it, with nothing being moved.
    pub(super) fn take(database: &Database) -> Result<Self, StoreError> {
        let moving = Recent::default();
        let read = database.begin_read().map_err(|error| match error {
            TransactionError::Storage(error) => store_error(error),
            other => StoreError::Io(other.to_string()),
        })?;
        match read.open_table(MAP) {
            Ok(map) => Ok(Self { moving, map: Some(Arc::new(map)) }),
            Err(TableError::TableDoesNotExist(_)) => Ok(Self { moving, map: None }),
            Err(TableError::Storage(error)) => Err(store_error(error)),
            Err(other) => Err(StoreError::RecordsDamaged(other.to_string())),
        }
    }
}

impl View for Below {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        if let Some(value) = self.moving.get(key) {
            return Ok(value.map(<[u8]>::to_vec));
        }
        let Some(map) = &self.map else { return Ok(None) };
        Ok(ReadableTable::get(&**map, key).map_err(store_error)?.map(|value| value.value().to_vec()))
    }

    fn ascending(&self, range: &Range) -> Result<Entries<'_>, StoreError> {
        let map: Entries<'_> = match (&self.map, range.bounds()) {
            (Some(map), Some(bounds)) => {
                Box::new(ReadableTable::range::<&[u8]>(&**map, bounds).map_err(store_error)?.map(owned))
            }
            _ => Box::new(std::iter::empty()),
        };
        Ok(self.moving.ascending_over(range, map))
    }

    fn descending(&self, range: &Range) -> Result<Entries<'_>, StoreError> {
        let map: Entries<'_> = match (&self.map, range.bounds()) {
            (Some(map), Some(bounds)) => {
                Box::new(ReadableTable::range::<&[u8]>(&**map, bounds).map_err(store_error)?.rev().map(owned))
            }
            _ => Box::new(std::iter::empty()),
        };
        Ok(self.moving.descending_over(range, map))
    }
}

impl View for Snapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        match self.recent.get(key) {
            Some(value) => Ok(value.map(<[u8]>::to_vec)),
            None => self.below.get(key),
        }
    }

    fn ascending(&self, range: &Range) -> Result<Entries<'_>, StoreError> {
        Ok(self.recent.ascending_over(range, self.below.ascending(range)?))
    }

    fn descending(&self, range: &Range) -> Result<Entries<'_>, StoreError> {
        Ok(self.recent.descending_over(range, self.below.descending(range)?))
    }
}
