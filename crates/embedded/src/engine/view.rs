//! What can be read of the map.

use std::ops::Bound;

use annals_core::StoreError;

/// Entries of the map, one after the other.
pub(crate) type Entries<'a> = Box<dyn Iterator<Item = Result<(Vec<u8>, Vec<u8>), StoreError>> + 'a>;

/// Keys from one bound to another, in the order of their bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Range {
    /// The lowest.
    pub(crate) from: Bound<Vec<u8>>,
    /// The highest.
    pub(crate) to: Bound<Vec<u8>>,
}

impl Range {
    /// All keys.
    pub(crate) fn all() -> Self {
        Self { from: Bound::Unbounded, to: Bound::Unbounded }
    }

    /// All keys below this one.
    pub(crate) fn up_to(key: &[u8]) -> Self {
        Self { from: Bound::Unbounded, to: Bound::Excluded(key.to_vec()) }
    }

    /// All keys between these two, without them.
    pub(crate) fn between(from: &[u8], to: &[u8]) -> Self {
        Self { from: Bound::Excluded(from.to_vec()), to: Bound::Excluded(to.to_vec()) }
    }

    /// This key and all above it.
    pub(crate) fn beyond(key: &[u8]) -> Self {
        Self { from: Bound::Included(key.to_vec()), to: Bound::Unbounded }
    }

    /// All keys that begin with these bytes.
    pub(crate) fn prefix(prefix: &[u8]) -> Self {
        let to = after_prefix(prefix).map_or(Bound::Unbounded, Bound::Excluded);
        Self { from: Bound::Included(prefix.to_vec()), to }
    }

    /// Whether there can be a key in it; redb panics where there cannot.
    fn is_empty(&self) -> bool {
        match (&self.from, &self.to) {
            (Bound::Included(from), Bound::Included(to)) => from > to,
            (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => from >= to,
            _ => false,
        }
    }

    /// The bounds as redb takes them; none when no key can be between them.
    pub(super) fn bounds(&self) -> Option<Bounds<'_>> {
        (!self.is_empty()).then(|| (self.from.as_ref().map(Vec::as_slice), self.to.as_ref().map(Vec::as_slice)))
    }
}

/// Where a range of keys starts and ends.
pub(super) type Bounds<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// The lowest key that is higher than all keys with this prefix; none when there is none.
pub(crate) fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut after = prefix[..=last].to_vec();
    after[last] += 1;
    Some(after)
}

/// A state of the map.
pub(crate) trait View {
    /// The value of a key.
    ///
    /// # Errors
    /// Why it cannot be read.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;

    /// The entries of a range, lowest key first.
    ///
    /// # Errors
    /// Why they cannot be read.
    fn ascending(&self, range: &Range) -> Result<Entries<'_>, StoreError>;

    /// The entries of a range, highest key first.
    ///
    /// # Errors
    /// Why they cannot be read.
    fn descending(&self, range: &Range) -> Result<Entries<'_>, StoreError>;
}

/// What redb says, in the store's words.
pub(super) fn store_error(error: redb::StorageError) -> StoreError {
    match error {
        redb::StorageError::Corrupted(what) => StoreError::RecordsDamaged(what),
        redb::StorageError::PreviousIo => StoreError::Failed("an earlier read or write failed".to_owned()),
        redb::StorageError::DatabaseClosed => StoreError::Closed,
        other => StoreError::Io(other.to_string()),
    }
}

type Guards<'a> = (redb::AccessGuard<'a, &'static [u8]>, redb::AccessGuard<'a, &'static [u8]>);

/// An entry as owned bytes.
pub(super) fn owned(entry: Result<Guards<'_>, redb::StorageError>) -> Result<(Vec<u8>, Vec<u8>), StoreError> {
    let (key, value) = entry.map_err(store_error)?;
    Ok((key.value().to_vec(), value.value().to_vec()))
}
