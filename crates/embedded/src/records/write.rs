//! Changes records, on the engine's writer and within one of its batches.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use annals_core::bson::Bson;
use annals_core::bson::raw::{RawDocument, RawDocumentBuf};
use annals_core::order::Fields;
use annals_core::{
    ChangeKind, ChangeNumber, Code, Expected, Invalid, Matcher, RecordChange, RecordError, Revision, StoreError,
    limits, order, with_fields,
};

use super::catalog::{Catalog, CatalogCache, KnownCollection, KnownIndex};
use super::totals::Totals;
use super::{entries, feed, keys, value};
use crate::Options;
use crate::engine::{Change, Range, View};
use crate::options::SeededBug;

/// The name of the index on `_id`.
pub(super) const ID_INDEX: &str = "_id_";

/// The most bytes of records that a batch may make the writer reread, or write without having sent them. Otherwise a request with a few
/// bytes per change could occupy the writer and its memory in proportion to the number of its changes.
const STORED_BYTES_MAX: usize = 4 * limits::RECORD_CHANGES_BYTES_MAX;
/// Smaller records are not counted, because a batch cannot contain enough of them.
const LARGE_BYTES_MIN: usize = 64 * 1024;
/// Evaluating a condition counts as one pass over its record per this many parts.
const PARTS_AT_ONCE: usize = 16;

/// Applies changes in order. If one is refused, the engine undoes them all.
pub(super) fn write(
    map: &mut Change,
    catalogs: &CatalogCache,
    totals: &Totals,
    options: &Options,
    changes: Vec<RecordChange>,
) -> Result<Vec<ChangeNumber>, RecordError> {
    let catalog = catalogs.of(&*map)?;
    let mut batch = Batch::begin(map, catalog, totals, options)?;
    for (n, change) in changes.into_iter().enumerate() {
        batch.change = n;
        let number = batch.apply(change)?;
        batch.numbers.push(number);
    }
    batch.finish()
}

/// A batch in progress.
pub(super) struct Batch<'b> {
    map: &'b mut Change,
    catalog: Arc<Catalog>,
    totals: &'b Totals,
    options: &'b Options,
    /// The revision that the next change produces.
    next: Revision,
    /// The index of the current change.
    change: usize,
    /// The number of changes made so far.
    made: u64,
    /// For each collection with a feed, the newest change and the number of recorded changes.
    noted: BTreeMap<u32, (ChangeNumber, u64)>,
    /// Indexes in which a record got several entries.
    several_entries: Vec<u32>,
    /// Large records that were read.
    large: HashSet<(u32, Vec<u8>)>,
    /// Bytes counted against [`STORED_BYTES_MAX`].
    stored_bytes: usize,
    /// For each collection with totals to which records were appended, the key of its last document.
    last: BTreeMap<u32, Vec<u8>>,
    /// Collections that were changed other than by appending.
    disturbed: BTreeSet<u32>,
    numbers: Vec<ChangeNumber>,
}

/// An existing record.
struct Found {
    revision: Revision,
    document: RawDocumentBuf,
}

impl<'b> Batch<'b> {
    fn begin(
        map: &'b mut Change,
        catalog: Arc<Catalog>,
        totals: &'b Totals,
        options: &'b Options,
    ) -> Result<Self, StoreError> {
        let next = feed::last_revision(&*map)? + 1;
        Ok(Self {
            map,
            catalog,
            totals,
            options,
            next,
            change: 0,
            made: 0,
            noted: BTreeMap::new(),
            several_entries: Vec::new(),
            large: HashSet::new(),
            stored_bytes: 0,
            last: BTreeMap::new(),
            disturbed: BTreeSet::new(),
            numbers: Vec::new(),
        })
    }

    fn apply(&mut self, change: RecordChange) -> Result<ChangeNumber, RecordError> {
        let catalog = self.catalog.clone();
        let name = change.collection().to_owned();
        let collection = catalog.collection(&name)?;
        match change {
            RecordChange::Insert { document, .. } => {
                let id = order::encoded(value::id_of(&document));
                if self.found(collection, &id)?.is_some() {
                    let key = Box::new(value_document("_id", bson_id(&document)));
                    let index = ID_INDEX.to_owned();
                    return Err(RecordError::DuplicateKey { collection: name, index, key, change: self.change });
                }
                self.put(&name, collection, &id, None, &document)
            }
            RecordChange::Replace { document, expected, .. } => {
                let id = order::encoded(value::id_of(&document));
                let found = self.found(collection, &id)?;
                self.count(collection, &id, found.as_ref(), &expected)?;
                self.check(&name, || bson_id(&document), found.as_ref(), &expected)?;
                self.put(&name, collection, &id, found, &document)
            }
            RecordChange::Delete { id, expected, .. } => {
                let key = value::id_key(&id)?;
                let found = self.found(collection, &key)?;
                self.count(collection, &key, found.as_ref(), &expected)?;
                self.check(&name, || id.clone(), found.as_ref(), &expected)?;
                match found {
                    Some(found) => self.delete(collection, &key, &found),
                    None => Ok(0),
                }
            }
            RecordChange::Set { id, fields, unset, expected, .. } => {
                let key = value::id_key(&id)?;
                let found = self.found(collection, &key)?;
                self.count(collection, &key, found.as_ref(), &expected)?;
                self.check(&name, || id.clone(), found.as_ref(), &expected)?;
                let document = match &found {
                    Some(found) => with_fields(&found.document, &fields, &unset),
                    None => with_fields(&value::id_document(id)?, &fields, &unset),
                };
                let document = document.map_err(|error| error.inside(&format!("changes[{}]", self.change)))?;
                if document.as_bytes().len() >= LARGE_BYTES_MIN {
                    self.add(document.as_bytes().len())?;
                }
                self.put(&name, collection, &key, found, &document)
            }
            RecordChange::Check { id, expected, .. } => {
                let key = value::id_key(&id)?;
                let found = self.found(collection, &key)?;
                self.count(collection, &key, found.as_ref(), &expected)?;
                self.check(&name, || id.clone(), found.as_ref(), &expected)?;
                Ok(found.map_or(0, |found| found.revision))
            }
        }
    }

    fn found(&self, collection: &KnownCollection, id: &[u8]) -> Result<Option<Found>, StoreError> {
        let Some(bytes) = self.map.get(&keys::document(collection.id, id))? else { return Ok(None) };
        let (revision, document) = value::parts(id, &bytes)?;
        Ok(Some(Found { revision, document: document.to_owned() }))
    }

    /// Counts the cost of evaluating a record: once if it was already read, and once for each group of parts of a condition.
    fn count(
        &mut self,
        collection: &KnownCollection,
        id: &[u8],
        found: Option<&Found>,
        expected: &Expected,
    ) -> Result<(), RecordError> {
        let Some(found) = found else { return Ok(()) };
        let bytes = found.document.as_bytes().len();
        let mut times = match expected {
            Expected::Matching(condition) | Expected::AbsentOr(condition) => condition.parts() / PARTS_AT_ONCE,
            _ => 0,
        };
        if bytes >= LARGE_BYTES_MIN && !self.large.insert((collection.id, id.to_vec())) {
            times += 1;
        }
        self.add(bytes.saturating_mul(times))
    }

    fn add(&mut self, bytes: usize) -> Result<(), RecordError> {
        self.stored_bytes = self.stored_bytes.saturating_add(bytes);
        if self.stored_bytes <= STORED_BYTES_MAX {
            return Ok(());
        }
        let message = format!(
            "brings the batch to more than {STORED_BYTES_MAX} bytes of stored records; split the batch, or change \
             each large record once"
        );
        Err(Invalid::new(Code::InvalidRecord, format!("changes[{}]", self.change), message).into())
    }

    fn check(
        &self,
        collection: &str,
        id: impl FnOnce() -> Bson,
        found: Option<&Found>,
        expected: &Expected,
    ) -> Result<(), RecordError> {
        let as_expected = match (expected, found) {
            (Expected::AbsentOr(_) | Expected::Absent, None) | (Expected::Present, Some(_)) => true,
            (Expected::Revision(revision), Some(found)) => found.revision == *revision,
            (Expected::Matching(condition) | Expected::AbsentOr(condition), Some(found)) => {
                Matcher::new(condition).matches(&found.document)
            }
            (_, None) | (Expected::Absent, _) => false,
        };
        if as_expected {
            return Ok(());
        }
        let (collection, id) = (collection.to_owned(), id().to_string());
        let actual = found.map(|found| found.revision);
        Err(RecordError::NotAsExpected { collection, id, change: self.change, actual })
    }

    fn put(
        &mut self,
        name: &str,
        collection: &KnownCollection,
        id: &[u8],
        old: Option<Found>,
        document: &RawDocument,
    ) -> Result<ChangeNumber, RecordError> {
        self.put_entries(name, collection, id, old.as_ref().map(|old| &*old.document), document)?;
        let key = keys::document(collection.id, id);
        if old.is_some() || !self.is_appended(collection.id, &key)? {
            self.disturbed.insert(collection.id);
        }
        let kind = if old.is_some() { ChangeKind::Replaced } else { ChangeKind::Inserted };
        let number = self.note(collection, kind, document)?;
        let revision = match old {
            Some(old) if self.options.has(SeededBug::KeepRevisions) => old.revision,
            _ => number,
        };
        self.map.put(&key, &value::stored(id, revision, document));
        Ok(number)
    }

    /// Returns whether a new document comes after all others of its collection. If no total is kept the answer does not matter, and is
    /// false.
    fn is_appended(&mut self, collection: u32, key: &[u8]) -> Result<bool, StoreError> {
        if self.disturbed.contains(&collection) || !self.totals.has(collection) {
            return Ok(false);
        }
        let is_last = match self.last.get(&collection) {
            Some(last) => key > last.as_slice(),
            None => key > keys::last_document(&*self.map, collection)?.as_slice(),
        };
        if is_last {
            self.last.insert(collection, key.to_vec());
        }
        Ok(is_last)
    }

    /// Changes the entries of the indexes for which the documents differ.
    fn put_entries(
        &mut self,
        name: &str,
        collection: &KnownCollection,
        id: &[u8],
        old: Option<&RawDocument>,
        document: &RawDocument,
    ) -> Result<(), RecordError> {
        let (before, after) = (old.map(Fields::of), Fields::of(document));
        for known in &collection.indexes {
            if before.as_ref().is_some_and(|before| entries::are_same(known, before, &after)) {
                continue;
            }
            let removed = before.as_ref().map_or_else(|| Ok(Vec::new()), |it| entries::entries_of(known, it))?;
            let added = entries::entries_of(known, &after)?;
            if added.len() > 1 {
                self.several_entries.push(known.id);
            }
            for entry in added.iter().filter(|entry| removed.binary_search(entry).is_err()) {
                self.check_unique(name, known, document, entry, id)?;
                let (key, value) = entries::stored(known, entry, id);
                self.map.put(&key, &value);
            }
            if !self.options.has(SeededBug::KeepOldIndexEntries) {
                self.remove_entries(known, removed.iter().filter(|entry| added.binary_search(entry).is_err()), id);
            }
        }
        Ok(())
    }

    fn delete(&mut self, collection: &KnownCollection, id: &[u8], old: &Found) -> Result<ChangeNumber, RecordError> {
        let fields = Fields::of(&old.document);
        for known in &collection.indexes {
            self.remove_entries(known, entries::entries_of(known, &fields)?.iter(), id);
        }
        self.disturbed.insert(collection.id);
        self.map.remove(&keys::document(collection.id, id));
        Ok(self.note(collection, ChangeKind::Deleted, &old.document)?)
    }

    fn remove_entries<'e>(&mut self, known: &KnownIndex, entries: impl Iterator<Item = &'e Vec<u8>>, id: &[u8]) {
        entries.for_each(|entry| self.map.remove(&entries::stored(known, entry, id).0));
    }

    fn check_unique(
        &self,
        collection: &str,
        known: &KnownIndex,
        document: &RawDocument,
        entry: &[u8],
        id: &[u8],
    ) -> Result<(), RecordError> {
        if !known.index.is_unique() || !has_entry(&*self.map, known, entry, id)? {
            return Ok(());
        }
        Err(RecordError::DuplicateKey {
            collection: collection.to_owned(),
            index: known.index.name().to_owned(),
            key: Box::new(known.index.readable_entry(document, entry)),
            change: self.change,
        })
    }

    fn note(
        &mut self,
        collection: &KnownCollection,
        kind: ChangeKind,
        document: &RawDocument,
    ) -> Result<ChangeNumber, StoreError> {
        let number = self.next;
        self.next += 1;
        if collection.feed {
            if self.made == 0 || !self.options.has(SeededBug::NoteOneChangeOfABatch) {
                feed::note(self.map, number, collection.id, kind, value::id_of(document))?;
            }
            let noted = self.noted.entry(collection.id).or_default();
            *noted = (number, noted.1 + 1);
        }
        self.made += 1;
        Ok(number)
    }

    fn finish(self) -> Result<Vec<ChangeNumber>, RecordError> {
        if !self.several_entries.is_empty() {
            let mut changed = Catalog::clone(&self.catalog);
            if changed.note_several_entries(&self.several_entries) {
                changed.store(self.map)?;
            }
        }
        if self.made > 0 {
            self.map.put(keys::REVISION, &(self.next - 1).to_be_bytes());
        }
        self.totals.disturb(&self.disturbed, self.next - 1);
        for (collection, (last, added)) in self.noted {
            feed::advance(self.map, collection, last, added, self.options.record_changes_kept)?;
        }
        Ok(self.numbers)
    }
}

/// Returns whether a record other than this one has the entry.
pub(super) fn has_entry(view: &impl View, known: &KnownIndex, entry: &[u8], id: &[u8]) -> Result<bool, StoreError> {
    let own = entries::stored(known, entry, id).0;
    let range = Range::prefix(&keys::entry(known.id, entry, &[]));
    for found in view.ascending(&range)? {
        if found?.0 != own {
            return Ok(true);
        }
    }
    Ok(false)
}

fn bson_id(document: &RawDocument) -> Bson {
    Bson::try_from(value::id_of(document)).unwrap_or(Bson::Null)
}

fn value_document(name: &str, value: Bson) -> annals_core::bson::Document {
    [(name.to_owned(), value)].into_iter().collect()
}

/// Deletes those records that still have an expired entry. A record that was changed meanwhile may no longer have one.
pub(super) fn delete_expired(
    map: &mut Change,
    catalogs: &CatalogCache,
    totals: &Totals,
    options: &Options,
    (collection, index): (&str, &str),
    ids: impl Iterator<Item = Vec<u8>>,
    expired: impl Fn(&KnownIndex, &[u8]) -> bool,
) -> Result<(), RecordError> {
    let catalog = catalogs.of(&*map)?;
    let collection = catalog.collection(collection)?;
    let Some(known) = collection.index(index) else { return Ok(()) };
    let mut batch = Batch::begin(map, catalog.clone(), totals, options)?;
    for id in ids {
        if let Some(found) = batch.found(collection, &id)?
            && entries::entries_of(known, &Fields::of(&found.document))?.iter().any(|entry| expired(known, entry))
        {
            batch.delete(collection, &id, &found)?;
        }
    }
    batch.finish()?;
    Ok(())
}
