//! What has changed: a note of each change, the newest of them kept.

use annals_core::bson::RawBsonRef;
use annals_core::{ChangeKind, ChangeNumber, ChangesError, RecordedChange, StoreError};

use super::catalog::Catalog;
use super::{keys, value};
use crate::engine::{Change, Range, View};

/// How many notes beyond what a batch adds are removed with it: those of a time when more were kept go in small steps.
const TRIMMED_WITH_A_BATCH: u64 = 64;
/// How many notes are removed at once, if so many more than these are kept.
const TRIMMED_AT_ONCE_MAX: u64 = 256;

/// The number of the newest change; 0 when there was none.
pub(super) fn last(view: &(impl View + ?Sized)) -> Result<ChangeNumber, StoreError> {
    match view.descending(&Range::prefix(keys::CHANGES))?.next().transpose()? {
        None => Ok(0),
        Some((key, _)) => keys::change_number(&key).ok_or_else(damaged),
    }
}

/// The number of the oldest change that is kept.
fn oldest(view: &(impl View + ?Sized)) -> Result<Option<ChangeNumber>, StoreError> {
    match view.ascending(&Range::prefix(keys::CHANGES))?.next().transpose()? {
        None => Ok(None),
        Some((key, _)) => keys::change_number(&key).ok_or_else(damaged).map(Some),
    }
}

/// Notes a change.
pub(super) fn note(
    map: &mut Change,
    number: ChangeNumber,
    collection: u32,
    kind: ChangeKind,
    id: RawBsonRef<'_>,
) -> Result<(), StoreError> {
    let mut note = vec![kind_byte(kind)];
    note.extend_from_slice(&collection.to_be_bytes());
    note.extend_from_slice(value::only_id(id).as_bytes());
    map.put(&keys::change(number), &note);
    Ok(())
}

/// Removes notes of changes beyond those that are kept, many at once: looking for the oldest passes over those that were removed lately.
/// The newest always stays: it tells the next number.
pub(super) fn trim(map: &mut Change, last: ChangeNumber, added: u64, kept: u64) -> Result<(), StoreError> {
    let kept = kept.max(1);
    let at_once = (kept / 8).clamp(1, TRIMMED_AT_ONCE_MAX);
    if last / at_once == (last - added) / at_once {
        return Ok(());
    }
    let Some(oldest) = oldest(&*map)? else { return Ok(()) };
    let first_kept = (last + 1).saturating_sub(kept);
    let end = first_kept.min(oldest + added + at_once + TRIMMED_WITH_A_BATCH);
    (oldest..end).for_each(|number| map.remove(&keys::change(number)));
    Ok(())
}

/// Changes after a number, oldest first.
pub(super) fn changes(
    view: &dyn View,
    catalog: &Catalog,
    after: ChangeNumber,
    limit: usize,
) -> Result<Vec<RecordedChange>, ChangesError> {
    let newest = last(view)?;
    if after > newest {
        return Err(ChangesError::Unknown { after, last: newest });
    }
    match oldest(view)? {
        Some(oldest) if after + 1 < oldest => return Err(ChangesError::Gone { after, oldest }),
        _ => {}
    }
    let mut range = Range::prefix(keys::CHANGES);
    range.from = std::ops::Bound::Excluded(keys::change(after));
    let mut changes = Vec::new();
    for entry in view.ascending(&range)?.take(limit) {
        let (key, note) = entry?;
        changes.push(read(catalog, &key, &note)?);
    }
    Ok(changes)
}

/// The change that a note is of.
pub(super) fn read(catalog: &Catalog, key: &[u8], note: &[u8]) -> Result<RecordedChange, StoreError> {
    let number = keys::change_number(key).ok_or_else(damaged)?;
    let (kind, rest) = note.split_first().ok_or_else(damaged)?;
    let (collection, id) = rest.split_first_chunk().ok_or_else(damaged)?;
    let collection = catalog.name_of(u32::from_be_bytes(*collection)).ok_or_else(damaged)?.to_owned();
    let what = match kind {
        0 => ChangeKind::Inserted,
        1 => ChangeKind::Replaced,
        2 => ChangeKind::Deleted,
        _ => return Err(damaged()),
    };
    Ok(RecordedChange { number, collection, id: value::only_id_of(id)?, what })
}

fn kind_byte(kind: ChangeKind) -> u8 {
    match kind {
        ChangeKind::Inserted => 0,
        ChangeKind::Replaced => 1,
        ChangeKind::Deleted => 2,
    }
}

fn damaged() -> StoreError {
    StoreError::RecordsDamaged("the note of a change is not what was written".to_owned())
}
