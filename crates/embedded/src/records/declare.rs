//! Declares collections, on the engine's writer and within one of its batches.

use std::mem::discriminant;

use annals_core::order::Fields;
use annals_core::{Collection, Index, RecordError, StoreError, TextIndex, TextLanguage};

use super::catalog::{Catalog, CatalogCache, KnownIndex};
use super::{entries, feed, keys, value, write};
use crate::engine::{Change, Range, View};

/// Creates the missing parts of a collection.
pub(super) fn declare(map: &mut Change, catalogs: &CatalogCache, declared: &Collection) -> Result<(), RecordError> {
    let before = catalogs.of(&*map)?;
    if before.has_all_of(declared) {
        return Ok(());
    }
    let mut catalog = Catalog::clone(&before);
    catalog.add_collection(&declared.name);
    without_language(declared.text_index())?;
    declared.one_text_index(catalog.collection(&declared.name)?.indexes.iter().map(|known| &known.index))?;
    let mut several_entries = Vec::new();
    for index in &declared.indexes {
        let known = catalog.collection(&declared.name)?;
        match known.index(index.name()) {
            Some(known) if known.index == *index => {}
            Some(known) => return Err(conflict(declared, &known.index, index)),
            None => {
                let collection = known.id;
                let new = catalog.add_index(&declared.name, index.clone());
                if fill(map, &declared.name, collection, &new)? {
                    several_entries.push(new.id);
                }
            }
        }
    }
    catalog.note_several_entries(&several_entries);
    if declared.feed
        && let Some(collection) = catalog.add_feed(&declared.name)
    {
        feed::begin(map, collection)?;
    }
    Ok(catalog.store(map)?)
}

/// Refuses a text index with a language: this store compares words as they are written.
fn without_language(index: Option<&TextIndex>) -> Result<(), StoreError> {
    match index {
        Some(index) if index.language != TextLanguage::None => {
            let TextIndex { name, language, .. } = index;
            let what = format!(
                "text index {name} with the language {:?} (the embedded store compares words as they are written: leave the \
                 language out, or use a store on MongoDB)",
                language.name()
            );
            Err(StoreError::NotSupported(what))
        }
        _ => Ok(()),
    }
}

/// Adds the entries of all existing records. Returns whether any record has several.
pub(super) fn fill(map: &mut Change, name: &str, collection: u32, known: &KnownIndex) -> Result<bool, RecordError> {
    let prefix = keys::documents(collection);
    let mut range = Range::prefix(&prefix);
    let mut several = false;
    loop {
        // Read in pieces, because the map cannot be changed while it is being read.
        let piece: Vec<_> = map.ascending(&range)?.take(PIECE).collect::<Result<_, _>>()?;
        let Some((last, _)) = piece.last() else { return Ok(several) };
        range.from = std::ops::Bound::Excluded(last.clone());
        for (key, bytes) in &piece {
            let id = &key[prefix.len()..];
            let (_, document) = value::parts(id, bytes)?;
            let entries = entries::entries_of(known, &Fields::of(document))?;
            several |= entries.len() > 1;
            for entry in entries {
                if known.index.is_unique() && write::has_entry(&*map, known, &entry, id)? {
                    return Err(RecordError::DuplicateKey {
                        collection: name.to_owned(),
                        index: known.index.name().to_owned(),
                        key: Box::new(known.index.readable_entry(document, &entry)),
                        change: 0,
                    });
                }
                let (key, value) = entries::stored(known, &entry, id);
                map.put(&key, &value);
            }
        }
    }
}

/// The number of documents held in memory at once while an index is filled.
const PIECE: usize = 200;

fn conflict(collection: &Collection, there: &Index, declared: &Index) -> RecordError {
    let differs = |what: &str| {
        format!(
            "exists with a different {what} from the declared one; declare it as it exists, or give the new one another name"
        )
    };
    let message = match () {
        () if discriminant(there) != discriminant(declared) => differs("kind"),
        () if there.fields() != declared.fields() => differs("fields"),
        () if there.is_unique() != declared.is_unique() => differs("uniqueness"),
        () if there.is_sparse() != declared.is_sparse() => differs("sparseness"),
        () if there.partial() != declared.partial() => differs("partial condition"),
        () => differs("expiry"),
    };
    RecordError::IndexConflict { collection: collection.name.clone(), index: declared.name().to_owned(), message }
}
