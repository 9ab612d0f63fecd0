//! The durable state at one moment: the map in the file, and above it what was written since.

use std::sync::Arc;

use annals_core::StoreError;
use redb::{Database, ReadOnlyTable, ReadableDatabase, ReadableTable, TableError, TransactionError};

use super::open::MAP;
use super::recent::Recent;
use super::view::{Entries, Range, View, owned, store_error};

/// The durable state at one moment. A copy costs nothing.
#[derive(Clone)]
pub(super) struct Snapshot {
    /// What was written since, and stays in memory for now.
    pub(super) recent: Recent,
    /// What it was written upon.
    pub(super) below: Arc<Below>,
}

/// The map in the file, and above it what is being moved into it.
pub(super) struct Below {
    moving: Recent,
    /// None when nothing was ever written.
    map: Option<Arc<ReadOnlyTable<&'static [u8], &'static [u8]>>>,
}

impl Snapshot {
    /// A state without entries.
    pub(super) fn empty() -> Self {
        Self::of(Below { moving: Recent::default(), map: None })
    }

    /// A state above which nothing was written yet.
    pub(super) fn of(below: Below) -> Self {
        Self { recent: Recent::default(), below: Arc::new(below) }
    }

    /// The same state when what is recent is about to be moved.
    pub(super) fn while_moving(&self) -> Self {
        Self::of(Below { moving: self.recent.clone(), map: self.below.map.clone() })
    }

    /// What the map in the file does not hold, oldest first.
    pub(super) fn above_the_map(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        self.below.moving.iter().chain(self.recent.iter())
    }

    /// The same state when the map holds what was being moved.
    pub(super) fn moved(&self, below: Below) -> Self {
        Self { recent: self.recent.clone(), below: Arc::new(below) }
    }
}

impl Below {
    /// The map as the last commit left it; nothing is being moved.
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
