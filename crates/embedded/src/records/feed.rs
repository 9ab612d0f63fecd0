//! Change feeds: a note of each change of a collection that has a feed, of which the newest are kept.
//!
//! The number of a change is the revision that it produced. Revisions increase across the whole tenant, because a single thread writes
//! all of it.

use annals_core::bson::RawBsonRef;
use annals_core::{ChangeKind, ChangeNumber, ChangesError, RecordedChange, Revision, StoreError};

use super::catalog::Catalog;
use super::{keys, value};
use crate::engine::{Change, Range, View};

/// The most surplus notes that a batch removes in addition to its own share. If fewer notes are to be kept than before, the rest is
/// removed in small steps.
const TRIMMED_WITH_A_BATCH: u64 = 64;
/// The most notes beyond the kept ones that gather before they are removed together.
const TRIMMED_AT_ONCE_MAX: u64 = 256;

/// The extent of a collection's feed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Feed {
    /// The newest change, or 0 if there was none.
    pub(super) last: ChangeNumber,
    /// The number of notes that are kept.
    pub(super) count: u64,
    /// The newest change whose note was removed.
    gone: ChangeNumber,
}

impl Feed {
    /// Loads the feed of a collection from this view.
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

/// Returns the newest revision of any record, or 0 if there was none.
pub(super) fn last_revision(view: &(impl View + ?Sized)) -> Result<Revision, StoreError> {
    if let Some(bytes) = view.get(keys::REVISION)? {
        return Ok(Revision::from_be_bytes(bytes.as_slice().try_into().map_err(|_| damaged())?));
    }
    match view.descending(&Range::prefix(keys::CHANGES_OF_ALL))?.next().transpose()? {
        None => Ok(0),
        Some((key, _)) => keys::revision_of_all(&key).ok_or_else(damaged),
    }
}

/// Records a change in the feed.
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

/// Begins the feed of a collection. If a former version kept one feed for all collections, the numbers continue above those of that feed.
/// A position in the old feed is therefore refused as no longer kept, and never mistaken for one in this feed.
pub(super) fn begin(map: &mut Change, collection: u32) -> Result<(), StoreError> {
    if map.ascending(&Range::prefix(keys::CHANGES_OF_ALL))?.next().transpose()?.is_some() {
        let last = last_revision(&*map)? + 1;
        map.put(keys::REVISION, &last.to_be_bytes());
        Feed { last, count: 0, gone: last }.store(map, collection);
    }
    Ok(())
}

/// Advances a feed by the changes that a batch recorded, and removes notes beyond those that are kept. Many are removed at once, because
/// looking for the oldest note passes over recently removed ones.
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

/// Returns the feed of a collection that has one.
pub(super) fn of(view: &dyn View, catalog: &Catalog, name: &str) -> Result<(u32, Feed), ChangesError> {
    let known = catalog.collection(name).map_err(|_| ChangesError::UnknownCollection(name.to_owned()))?;
    if !known.feed {
        return Err(ChangesError::NoFeed(name.to_owned()));
    }
    Ok((known.id, Feed::load(view, known.id)?))
}

/// Returns the changes of a collection after a number, oldest first.
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

/// Decodes the note of a change.
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
    StoreError::RecordsDamaged("the note of a change is damaged".to_owned())
}
