//! Checks the invariants at the top of `records.rs` against everything that is stored.
//!
//! Only one record and the counts of the indexes are held, so memory does not depend on how much is stored. An index is correct if every
//! entry that its records require exists, and there are no more. Only if there are more is each entry looked at again.

use std::collections::BTreeMap;

use annals_core::bson::raw::RawDocument;
use annals_core::order::{self, Fields};
use annals_core::{Collection, Revision, StoreError, valid_document};

use super::catalog::{Catalog, KnownCollection, KnownIndex};
use super::feed::Feed;
use super::{entries, feed, keys, value};
use crate::engine::{Range, View, after_prefix};

/// Receives each fault: a word for programs, and a sentence.
pub(crate) type Faults<'a> = &'a mut dyn FnMut(&'static str, String);

/// The amounts that were found.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RecordsFound {
    pub(crate) collections: u64,
    pub(crate) indexes: u64,
    pub(crate) records: u64,
    pub(crate) index_entries: u64,
    pub(crate) changes: u64,
}

/// Reads all records of a map and reports their faults.
///
/// # Errors
/// Why the map cannot be read.
pub(crate) fn check(view: &dyn View, faults: Faults<'_>) -> Result<RecordsFound, StoreError> {
    let mut found = RecordsFound::default();
    let catalog = match Catalog::load(view) {
        Ok(catalog) => catalog,
        Err(StoreError::RecordsDamaged(what)) => {
            faults("catalog", what);
            return Ok(found);
        }
        Err(error) => return Err(error),
    };
    check_catalog(view, &catalog, faults)?;
    let last = feed::last_revision(view).unwrap_or(Revision::MAX);
    for (name, collection) in catalog.collections() {
        found.collections += 1;
        found.indexes += collection.indexes.len() as u64;
        let counts = Checking { view, name, collection, last }.documents(&mut found, faults)?;
        for known in &collection.indexes {
            let due = counts.get(&known.id).copied().unwrap_or(0);
            found.index_entries += Checking { view, name, collection, last }.index(known, due, faults)?;
        }
    }
    found.changes = check_changes(view, &catalog, faults)?;
    Ok(found)
}

/// Checks that the catalog is consistent, and that nothing exists which it does not name.
fn check_catalog(view: &dyn View, catalog: &Catalog, faults: Faults<'_>) -> Result<(), StoreError> {
    catalog.faults(view.get(keys::CATALOG_VERSION)?.as_deref()).into_iter().for_each(|what| faults("catalog", what));
    for (name, known) in catalog.collections() {
        let indexes = known.indexes.iter().map(|known| known.index.clone()).collect();
        if let Err(invalid) = (Collection { name: name.clone(), indexes, feed: known.feed }).validate() {
            faults("catalog", format!("collection {name}: {invalid}"));
        }
    }
    let documents: Vec<_> = catalog.collections().map(|(_, collection)| collection.id).collect();
    let indexes: Vec<_> = catalog.collections().flat_map(|(_, it)| it.indexes.iter().map(|it| it.id)).collect();
    strangers(view, keys::documents, &documents, |n| {
        faults("record", format!("records of collection {n}, which is not known"))
    })?;
    strangers(view, keys::entries, &indexes, |n| {
        faults("index_entry", format!("entries of index {n}, which is not known"))
    })?;
    for range in keys::unused() {
        if let Some((key, _)) = view.ascending(&range)?.next().transpose()? {
            faults("map_key", format!("key {} belongs to no record", key.escape_ascii()));
        }
    }
    Ok(())
}

/// Finds keys whose collection or index number is unknown, without reading those of known numbers.
pub(super) fn strangers(
    view: &(impl View + ?Sized),
    prefix: impl Fn(u32) -> Vec<u8>,
    known: &[u32],
    mut found: impl FnMut(u32),
) -> Result<(), StoreError> {
    let kind = &prefix(0)[..2];
    let mut range = Range::prefix(kind);
    while let Some((key, _)) = view.ascending(&range)?.next().transpose()? {
        let Some(number) = key.get(2..6).and_then(|bytes| bytes.try_into().ok()).map(u32::from_be_bytes) else {
            found(0);
            return Ok(());
        };
        if !known.contains(&number) {
            found(number);
        }
        let Some(after) = after_prefix(&prefix(number)) else { return Ok(()) };
        range.from = std::ops::Bound::Included(after);
    }
    Ok(())
}

/// A collection that is being checked.
struct Checking<'a> {
    view: &'a dyn View,
    name: &'a str,
    collection: &'a KnownCollection,
    /// The newest revision of any record.
    last: Revision,
}

impl Checking<'_> {
    /// Checks every record. Returns how many entries each index must have.
    fn documents(&self, found: &mut RecordsFound, faults: Faults<'_>) -> Result<BTreeMap<u32, u64>, StoreError> {
        let mut counts = BTreeMap::new();
        let prefix = keys::documents(self.collection.id);
        for entry in self.view.ascending(&Range::prefix(&prefix))? {
            let (key, bytes) = entry?;
            let id = &key[prefix.len()..];
            found.records += 1;
            match value::parts(id, &bytes) {
                Ok((revision, document)) => {
                    let wrong = self.document(id, document, revision);
                    wrong.into_iter().for_each(|what| faults("record", what));
                    self.entries_of(id, document, &mut counts, faults)?;
                }
                Err(error) => {
                    let (name, id) = (self.name, id.escape_ascii());
                    faults("record", format!("a record of {name}, the encoding of its id is {id}: {error}"));
                }
            }
        }
        Ok(counts)
    }

    fn document(&self, id: &[u8], document: &RawDocument, revision: u64) -> Option<String> {
        let of = |what: &str| format!("record {} of {}: {what}", readable(document), self.name);
        if let Err(invalid) = valid_document(document) {
            return Some(of(&invalid.to_string()));
        }
        if order::encoded(value::id_of(document)) != id {
            return Some(of("it is stored where another id belongs"));
        }
        (revision > self.last).then(|| of(&format!("its revision {revision} is after the newest, {}", self.last)))
    }

    /// Checks that every entry exists that a record must have.
    fn entries_of(
        &self,
        id: &[u8],
        document: &RawDocument,
        counts: &mut BTreeMap<u32, u64>,
        faults: Faults<'_>,
    ) -> Result<(), StoreError> {
        let fields = Fields::of(document);
        for known in &self.collection.indexes {
            let mut fault = |what: String| {
                let (index, name) = (known.index.name(), self.name);
                faults("index_entry", format!("index {index} of {name}, record {}: {what}", readable(document)));
            };
            let due = match entries::entries_of(known, &fields) {
                Ok(due) => due,
                Err(invalid) => {
                    fault(invalid.to_string());
                    continue;
                }
            };
            if due.len() > 1 && !known.several_entries {
                fault("it has several entries, and the catalog says that none has".to_owned());
            }
            *counts.entry(known.id).or_default() += due.len() as u64;
            for entry in due {
                let (key, value) = entries::stored(known, &entry, id);
                if self.view.get(&key)?.as_deref() != Some(&value[..]) {
                    fault("its entry is missing".to_owned());
                }
            }
        }
        Ok(())
    }

    /// Counts the entries of an index. If the count differs from `due`, the number that its records require, reports the superfluous
    /// ones.
    fn index(&self, known: &KnownIndex, due: u64, faults: Faults<'_>) -> Result<u64, StoreError> {
        let prefix = keys::entries(known.id);
        let mut count = 0;
        let mut before: Option<Vec<u8>> = None;
        for entry in self.view.ascending(&Range::prefix(&prefix))? {
            let (key, value) = entry?;
            count += 1;
            let own = entries::entry_of(&key, &value).unwrap_or(&key[..]).to_vec();
            if known.index.is_unique() && before.as_ref() == Some(&own) {
                let (index, name) = (known.index.name(), self.name);
                faults(
                    "index_entry",
                    format!("index {index} of {name} is unique, and two records have the entry {}", own.escape_ascii()),
                );
            }
            before = Some(own);
        }
        if count != due {
            self.extra_entries(known, faults)?;
        }
        Ok(count)
    }

    /// Reports the entries that belong to no record.
    fn extra_entries(&self, known: &KnownIndex, faults: Faults<'_>) -> Result<(), StoreError> {
        for entry in self.view.ascending(&Range::prefix(&keys::entries(known.id)))? {
            let (key, value) = entry?;
            if !self.is_of_a_record(known, &key, &value)? {
                let (index, name, key) = (known.index.name(), self.name, key.escape_ascii());
                faults(
                    "index_entry",
                    format!("index {index} of {name} has an entry that no record has, under key {key}"),
                );
            }
        }
        Ok(())
    }

    /// Returns whether a record has this entry. Also true for a damaged record: nothing can be said about it, and it was already
    /// reported.
    fn is_of_a_record(&self, known: &KnownIndex, key: &[u8], value: &[u8]) -> Result<bool, StoreError> {
        let Some(id) = entries::id_of(known, key, value) else { return Ok(false) };
        let Some(bytes) = self.view.get(&keys::document(self.collection.id, &id))? else { return Ok(false) };
        let Ok((_, document)) = value::parts(&id, &bytes) else { return Ok(true) };
        let Ok(due) = entries::entries_of(known, &Fields::of(document)) else { return Ok(true) };
        Ok(due.iter().any(|entry| entries::stored(known, entry, &id).0 == key))
    }
}

/// Checks that the notes of changes can be read, and that each feed has as many as it records. Returns their number.
fn check_changes(view: &dyn View, catalog: &Catalog, faults: Faults<'_>) -> Result<u64, StoreError> {
    let mut count = 0;
    let mut before = None;
    for entry in view.ascending(&Range::prefix(keys::CHANGES))? {
        let (key, note) = entry?;
        count += 1;
        let of_all = keys::revision_of_all(&key);
        match feed::read(catalog, &key, &note) {
            Ok(_) if of_all.is_some() => {
                if before.is_some_and(|before: u64| Some(before + 1) != of_all) {
                    faults("change", format!("the note of a change before key {} is missing", key.escape_ascii()));
                }
                before = of_all;
            }
            Ok(change) if !key.starts_with(&keys::changes(catalog.id_of(&change.collection))) => {
                faults("change", format!("key {}: it is of another collection", key.escape_ascii()));
            }
            Ok(_) => {}
            Err(error) => faults("change", format!("key {}: {error}", key.escape_ascii())),
        }
    }
    for entry in view.ascending(&Range::prefix(keys::FEEDS))? {
        let (key, _) = entry?;
        if !catalog.collections().any(|(_, known)| known.feed && keys::feed(known.id) == key) {
            faults("change", format!("key {}: it is of no collection with a feed", key.escape_ascii()));
        }
    }
    for (name, known) in catalog.collections() {
        let feed = Feed::load(view, known.id)?;
        let mut found = (0, 0);
        for entry in view.ascending(&Range::prefix(&keys::changes(known.id)))? {
            found = (keys::change_number(&entry?.0).unwrap_or(0), found.1 + 1);
        }
        if found != (feed.last, feed.count) && found.1 + feed.count > 0 {
            let (last, kept) = found;
            let said = (feed.last, feed.count);
            faults(
                "change",
                format!(
                    "a note is missing or too many: the feed of {name} should end at {} with {} changes; {kept} are there, up to {last}",
                    said.0, said.1
                ),
            );
        }
    }
    Ok(count)
}

/// Returns the id of a record in readable form.
fn readable(document: &RawDocument) -> String {
    annals_core::bson::Bson::try_from(value::id_of(document)).map_or_else(|_| "?".to_owned(), |id| id.to_string())
}
