//! Read access to the map.

use std::ops::Bound;

use annals_core::StoreError;

/// A sequence of entries of the map.
pub(crate) type Entries<'a> = Box<dyn Iterator<Item = Result<(Vec<u8>, Vec<u8>), StoreError>> + 'a>;

/// A range of keys, in byte order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Range {
    /// The lower bound.
    pub(crate) from: Bound<Vec<u8>>,
    /// The upper bound.
    pub(crate) to: Bound<Vec<u8>>,
}

impl Range {
    /// Returns the range of all keys.
    pub(crate) fn all() -> Self {
        Self { from: Bound::Unbounded, to: Bound::Unbounded }
    }

    /// Returns the range of all keys below this one.
    pub(crate) fn up_to(key: &[u8]) -> Self {
        Self { from: Bound::Unbounded, to: Bound::Excluded(key.to_vec()) }
    }

    /// Returns the range of all keys strictly between these two.
    pub(crate) fn between(from: &[u8], to: &[u8]) -> Self {
        Self { from: Bound::Excluded(from.to_vec()), to: Bound::Excluded(to.to_vec()) }
    }

    /// Returns the range of this key and all keys above it.
    pub(crate) fn beyond(key: &[u8]) -> Self {
        Self { from: Bound::Included(key.to_vec()), to: Bound::Unbounded }
    }

    /// Returns the range of all keys that begin with these bytes.
    pub(crate) fn prefix(prefix: &[u8]) -> Self {
        let to = after_prefix(prefix).map_or(Bound::Unbounded, Bound::Excluded);
        Self { from: Bound::Included(prefix.to_vec()), to }
    }

    /// Returns whether no key can be in the range; redb panics on such ranges.
    fn is_empty(&self) -> bool {
        match (&self.from, &self.to) {
            (Bound::Included(from), Bound::Included(to)) => from > to,
            (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => from >= to,
            _ => false,
        }
    }

    /// Returns the bounds in redb's form, or `None` if no key can be between them.
    pub(super) fn bounds(&self) -> Option<Bounds<'_>> {
        (!self.is_empty()).then(|| (self.from.as_ref().map(Vec::as_slice), self.to.as_ref().map(Vec::as_slice)))
    }
}

/// The bounds of a range of keys.
pub(super) type Bounds<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// Returns the lowest key above all keys with this prefix, or `None` if there is none.
pub(crate) fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut after = prefix[..=last].to_vec();
    after[last] += 1;
    Some(after)
}

/// A state of the map.
pub(crate) trait View {
    /// Returns the value of a key.
    ///
    /// # Errors
    /// Why it cannot be read.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;

    /// Returns the entries of a range, lowest key first.
    ///
    /// # Errors
    /// Why they cannot be read.
    fn ascending(&self, range: &Range) -> Result<Entries<'_>, StoreError>;

    /// Returns the entries of a range, highest key first.
    ///
    /// # Errors
    /// Why they cannot be read.
    fn descending(&self, range: &Range) -> Result<Entries<'_>, StoreError>;
}

/// Converts redb's error to the store's.
pub(super) fn store_error(error: redb::StorageError) -> StoreError {
    match error {
        redb::StorageError::Corrupted(what) => StoreError::RecordsDamaged(what),
        redb::StorageError::PreviousIo => StoreError::Failed("an earlier read or write failed".to_owned()),
        redb::StorageError::DatabaseClosed => StoreError::Closed,
        other => StoreError::Io(other.to_string()),
    }
}

type Guards<'a> = (redb::AccessGuard<'a, &'static [u8]>, redb::AccessGuard<'a, &'static [u8]>);

/// Copies an entry into owned bytes.
pub(super) fn owned(entry: Result<Guards<'_>, redb::StorageError>) -> Result<(Vec<u8>, Vec<u8>), StoreError> {
    let (key, value) = entry.map_err(store_error)?;
    Ok((key.value().to_vec(), value.value().to_vec()))
}
