//! What has changed: a note of each change of a collection that has a feed, the newest of them kept.
//!
//! The number of a change is the revision that it made. Revisions go up in the whole tenant, because one thread writes all of it.

use annals_core::bson::RawBsonRef;
use annals_core::{ChangeKind, ChangeNumber, ChangesError, RecordedChange, Revision, StoreError};

use super::catalog::Catalog;
use super::{keys, value};
use crate::engine::{Change, Range, View};

/// How many notes beyond what a batch adds are removed with it: those of a time when more were kept go in small steps.
const TRIMMED_WITH_A_BATCH: u64 = 64;
/// How many notes are removed at once, if so many more than these are kept.
const TRIMMED_AT_ONCE_MAX: u64 = 256;

/// How far a collection's feed goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Feed {
    /// The newest change; 0 when there was none.
    pub(super) last: ChangeNumber,
    /// How many are kept.
    pub(super) count: u64,
    /// The newest that was removed.
    gone: ChangeNumber,
}

impl Feed {
    /// The feed as this view has it.
    pub(super) fn load(view: &(impl View + ?Sized), collection: u32) -> Result<Self, StoreError> {
        let Some(bytes) = view.get(&keys::feed(collection))? else { return Ok(Self::default()) };
        let bytes: &[u8; 24] = bytes.as_slice().try_into().map_err(|_| damaged())?;
        let number = |at: usize| bytes[at..at + 8].iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        Ok(Self { last: number(0), count: number(8), gone: number(16) })
    }

    fn store(self, map: &mut Change, collection: u32) {
        let numbers = [self.last, self.count, self.gone].map(u64::to_be_bytes);
        map.put(&keys::feed(collection), &numbers.concat());
    }
}

/// The newest revision of any record; 0 when there was none.
pub(super) fn last_revision(view: &(impl View + ?Sized)) -> Result<Revision, StoreError> {
    if let Some(bytes) = view.get(keys::REVISION)? {
        return Ok(Revision::from_be_bytes(bytes.as_slice().try_into().map_err(|_| damaged())?));
    }
    match view.descending(&Range::prefix(keys::CHANGES_OF_ALL))?.next().transpose()? {
        None => Ok(0),
        Some((key, _)) => keys::revision_of_all(&key).ok_or_else(damaged),
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
    map.put(&keys::change(collection, number), &note);
    Ok(())
}

/// Begins the feed of a collection. Where a former version kept one feed of all collections, its numbers go on above those of that one: a
/// position in that one is refused as no longer kept, and never taken for one in this feed.
pub(super) fn begin(map: &mut Change, collection: u32) -> Result<(), StoreError> {
    if map.ascending(&Range::prefix(keys::CHANGES_OF_ALL))?.next().transpose()?.is_some() {
        let last = last_revision(&*map)? + 1;
        map.put(keys::REVISION, &last.to_be_bytes());
        Feed { last, count: 0, gone: last }.store(map, collection);
    }
    Ok(())
}

/// Moves a feed on by the changes that a batch noted, and removes notes beyond those that are kept, many at once: looking for the oldest
/// passes over those that were removed lately.
pub(super) fn advance(
    map: &mut Change,
    collection: u32,
    last: ChangeNumber,
    added: u64,
    kept: u64,
) -> Result<(), StoreError> {
    let mut feed = Feed::load(&*map, collection)?;
    feed.last = last;
    feed.count += added;
    let kept = kept.max(1);
    let at_once = (kept / 8).clamp(1, TRIMMED_AT_ONCE_MAX);
    if feed.count >= kept + at_once {
        let surplus = (feed.count - kept).min(added + at_once + TRIMMED_WITH_A_BATCH);
        let surplus_keys: Vec<_> = map
            .ascending(&Range::prefix(&keys::changes(collection)))?
            .take(usize::try_from(surplus).unwrap_or(usize::MAX))
            .map(|entry| entry.map(|(key, _)| key))
            .collect::<Result<_, _>>()?;
        if let Some(newest) = surplus_keys.last() {
            feed.gone = keys::change_number(newest).ok_or_else(damaged)?;
        }
        feed.count -= surplus_keys.len() as u64;
        surplus_keys.iter().for_each(|key| map.remove(key));
    }
    feed.store(map, collection);
    Ok(())
}

/// The feed of a collection that has one.
pub(super) fn of(view: &dyn View, catalog: &Catalog, name: &str) -> Result<(u32, Feed), ChangesError> {
    let known = catalog.collection(name).map_err(|_| ChangesError::UnknownCollection(name.to_owned()))?;
    if !known.feed {
        return Err(ChangesError::NoFeed(name.to_owned()));
    }
    Ok((known.id, Feed::load(view, known.id)?))
}

/// Changes of a collection after a number, oldest first.
pub(super) fn changes(
    view: &dyn View,
    catalog: &Catalog,
    name: &str,
    after: ChangeNumber,
    limit: usize,
) -> Result<Vec<RecordedChange>, ChangesError> {
    let (collection, feed) = of(view, catalog, name)?;
    if after > feed.last {
        return Err(ChangesError::Unknown { after, last: feed.last });
    }
    let all = Range::prefix(&keys::changes(collection));
    if after < feed.gone {
        let oldest = match view.ascending(&all)?.next().transpose()? {
            Some((key, _)) => keys::change_number(&key).ok_or_else(damaged)?,
            None => feed.last + 1,
        };
        return Err(ChangesError::Gone { after, oldest });
    }
    let mut range = all;
    range.from = std::ops::Bound::Excluded(keys::change(collection, after));
    let mut changes = Vec::new();
    for entry in view.ascending(&range)?.take(limit) {
        let (key, note) = entry?;
        changes.push(read(catalog, &key, &note)?);
    }
    Ok(changes)
}

/// The change that a note is of.
pub(super) fn read(catalog: &Catalog, key: &[u8], note: &[u8]) -> Result<RecordedChange, StoreError> {
    let number = keys::change_number(key).or_else(|| keys::revision_of_all(key)).ok_or_else(damaged)?;
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
