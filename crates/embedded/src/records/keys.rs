//! The keys of records in the engine's map.
//!
//! ```text
//! 1 0 v                                        the catalog's version
//! 1 0 c                                        the catalog: collections and indexes, as JSON
//! 1 0 r                                        the newest revision:8
//! 1 1 collection:4 id                          revision:8, crc32c:4, document
//! 1 2 index:4 entry id                         the length of id:4
//! 1 3 collection:4 change:8                    what happened:1 collection:4, {_id}
//! 1 3 change:8                                 the same, of all collections together: written by versions that kept one feed, and kept
//! 1 4 collection:4                             its feed: the newest change:8 how many are kept:8 the newest that was removed:8
//! ```
//!
//! Ids and entries are encoded as in `annals_core::order`; numbers are big-endian. If the last field of an index is descending, so are
//! the ids of records with equal entries: their bytes are inverted.

use annals_core::{ChangeNumber, Revision, StoreError};

use crate::engine::{Range, Space, View};

const RECORDS: u8 = Space::Records as u8;
const DOCUMENTS: u8 = 1;
const ENTRIES: u8 = 2;
const CHANGE: u8 = 3;
const FEED: u8 = 4;

/// The key of the catalog's version.
pub(super) const CATALOG_VERSION: &[u8] = &[RECORDS, 0, b'v'];
/// The key of the catalog.
pub(super) const CATALOG: &[u8] = &[RECORDS, 0, b'c'];
/// The key of the newest revision.
pub(super) const REVISION: &[u8] = &[RECORDS, 0, b'r'];
/// The prefix of the notes of changes.
pub(super) const CHANGES: &[u8] = &[RECORDS, CHANGE];

/// The prefix of the states of feeds.
pub(super) const FEEDS: &[u8] = &[RECORDS, FEED];

/// Returns the prefix of the documents of a collection.
pub(super) fn documents(collection: u32) -> Vec<u8> {
    numbered(DOCUMENTS, collection, &[])
}

/// Returns the key of the last document of a collection, or the prefix of its documents if it has none.
pub(super) fn last_document(view: &(impl View + ?Sized), collection: u32) -> Result<Vec<u8>, StoreError> {
    let documents = documents(collection);
    let last = view.descending(&Range::prefix(&documents))?.next().transpose()?;
    Ok(last.map_or(documents, |(key, _)| key))
}

/// Returns the key of a document.
pub(super) fn document(collection: u32, id: &[u8]) -> Vec<u8> {
    numbered(DOCUMENTS, collection, &[id])
}

/// Returns the encoded id in the key of a document, or `None` for any other key.
pub(super) fn id_of_document(key: &[u8]) -> Option<&[u8]> {
    key.strip_prefix(&[RECORDS, DOCUMENTS])?.get(4..)
}

/// Returns the ranges of this key space that no key uses.
pub(super) fn unused() -> [Range; 5] {
    [
        Range::between(&[RECORDS], CATALOG),
        Range::between(CATALOG, REVISION),
        Range::between(REVISION, CATALOG_VERSION),
        Range::between(CATALOG_VERSION, &[RECORDS, DOCUMENTS]),
        Range::between(&[RECORDS, FEED + 1], &[RECORDS + 1]),
    ]
}

/// Returns the prefix of the entries of an index.
pub(super) fn entries(index: u32) -> Vec<u8> {
    numbered(ENTRIES, index, &[])
}

/// Returns the key of an entry, without inverting the id.
pub(super) fn entry(index: u32, entry: &[u8], id: &[u8]) -> Vec<u8> {
    numbered(ENTRIES, index, &[entry, id])
}

/// Returns the prefix of the notes of a collection's changes.
pub(super) fn changes(collection: u32) -> Vec<u8> {
    numbered(CHANGE, collection, &[])
}

/// Returns the key of the note of a change.
pub(super) fn change(collection: u32, number: ChangeNumber) -> Vec<u8> {
    numbered(CHANGE, collection, &[&number.to_be_bytes()])
}

/// Returns the number of a change from the key of its note.
pub(super) fn change_number(key: &[u8]) -> Option<ChangeNumber> {
    Some(ChangeNumber::from_be_bytes(key.strip_prefix(CHANGES)?.get(4..)?.try_into().ok()?))
}

/// The prefix of notes in the former feed of all collections: their numbers were small, and no collection has the number 0.
pub(super) const CHANGES_OF_ALL: &[u8] = &[RECORDS, CHANGE, 0, 0, 0, 0];

/// Returns the revision of a note in the former feed of all collections.
pub(super) fn revision_of_all(key: &[u8]) -> Option<Revision> {
    Some(Revision::from_be_bytes(key.strip_prefix(CHANGES)?.try_into().ok()?))
}

/// Returns the key of the state of a collection's feed.
pub(super) fn feed(collection: u32) -> Vec<u8> {
    numbered(FEED, collection, &[])
}

fn numbered(kind: u8, number: u32, rest: &[&[u8]]) -> Vec<u8> {
    let mut key = Vec::with_capacity(6 + rest.iter().map(|part| part.len()).sum::<usize>());
    key.extend_from_slice(&[RECORDS, kind]);
    key.extend_from_slice(&number.to_be_bytes());
    rest.iter().for_each(|part| key.extend_from_slice(part));
    key
}
