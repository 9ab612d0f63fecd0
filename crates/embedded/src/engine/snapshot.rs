//! The durable state at one moment.

use annals_core::StoreError;
use redb::{Database, ReadOnlyTable, ReadableDatabase, ReadableTable, TableError, TransactionError};

use super::open::MAP;
use super::view::{Entries, Range, View, owned, store_error};

/// The durable state at one moment; none of a table when nothing was ever written.
pub(super) struct Snapshot(Option<ReadOnlyTable<&'static [u8], &'static [u8]>>);

impl Snapshot {
    /// A map without entries.
    pub(super) fn empty() -> Self {
        Self(None)
    }

    /// What the last commit left.
    pub(super) fn take(database: &Database) -> Result<Self, StoreError> {
        let read = database.begin_read().map_err(|error| match error {
            TransactionError::Storage(error) => store_error(error),
            other => StoreError::Io(other.to_string()),
        })?;
        match read.open_table(MAP) {
            Ok(map) => Ok(Self(Some(map))),
            Err(TableError::TableDoesNotExist(_)) => Ok(Self(None)),
            Err(TableError::Storage(error)) => Err(store_error(error)),
            Err(other) => Err(StoreError::Damaged(other.to_string())),
        }
    }
}

impl View for Snapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(map) = &self.0 else { return Ok(None) };
        Ok(ReadableTable::get(map, key).map_err(store_error)?.map(|value| value.value().to_vec()))
    }

    fn ascending(&self, range: &Range) -> Result<Entries<'_>, StoreError> {
        match (&self.0, range.bounds()) {
            (Some(map), Some(bounds)) => {
                let entries = ReadableTable::range::<&[u8]>(map, bounds).map_err(store_error)?;
                Ok(Box::new(entries.map(owned)))
            }
            _ => Ok(Box::new(std::iter::empty())),
        }
    }

    fn descending(&self, range: &Range) -> Result<Entries<'_>, StoreError> {
        match (&self.0, range.bounds()) {
            (Some(map), Some(bounds)) => {
                let entries = ReadableTable::range::<&[u8]>(map, bounds).map_err(store_error)?;
                Ok(Box::new(entries.rev().map(owned)))
            }
            _ => Ok(Box::new(std::iter::empty())),
        }
    }
}
