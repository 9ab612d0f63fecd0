//! Where records stand in the engine's map.
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
//! Ids and entries are in the encoding of `annals_core::order`; numbers are big-endian. Where the last field of an index goes down, so do
//! the ids of records with the same entry: their bytes are inverted.

use annals_core::{ChangeNumber, Revision, StoreError};

use crate::engine::{Range, Space, View};

const RECORDS: u8 = Space::Records as u8;
const DOCUMENTS: u8 = 1;
const ENTRIES: u8 = 2;
const CHANGE: u8 = 3;
const FEED: u8 = 4;

/// Where the catalog's version stands.
pub(super) const CATALOG_VERSION: &[u8] = &[RECORDS, 0, b'v'];
/// Where the catalog stands.
pub(super) const CATALOG: &[u8] = &[RECORDS, 0, b'c'];
/// Where the newest revision stands.
pub(super) const REVISION: &[u8] = &[RECORDS, 0, b'r'];
/// What the notes of changes begin with.
pub(super) const CHANGES: &[u8] = &[RECORDS, CHANGE];

/// What the states of feeds begin with.
pub(super) const FEEDS: &[u8] = &[RECORDS, FEED];

/// What the documents of a collection begin with.
pub(super) fn documents(collection: u32) -> Vec<u8> {
    numbered(DOCUMENTS, collection, &[])
}

/// The key of the last document of a collection, or what its documents begin with where it has none.
pub(super) fn last_document(view: &(impl View + ?Sized), collection: u32) -> Result<Vec<u8>, StoreError> {
    let documents = documents(collection);
    let last = view.descending(&Range::prefix(&documents))?.next().transpose()?;
    Ok(last.map_or(documents, |(key, _)| key))
}

/// Where a document stands.
pub(super) fn document(collection: u32, id: &[u8]) -> Vec<u8> {
    numbered(DOCUMENTS, collection, &[id])
}

/// The id's encoding in the key of a document; none of another key.
pub(super) fn id_of_document(key: &[u8]) -> Option<&[u8]> {
    key.strip_prefix(&[RECORDS, DOCUMENTS])?.get(4..)
}

/// The keys of this space that nothing has.
pub(super) fn unused() -> [Range; 5] {
    [
        Range::between(&[RECORDS], CATALOG),
        Range::between(CATALOG, REVISION),
        Range::between(REVISION, CATALOG_VERSION),
        Range::between(CATALOG_VERSION, &[RECORDS, DOCUMENTS]),
        Range::between(&[RECORDS, FEED + 1], &[RECORDS + 1]),
    ]
}

/// What the entries of an index begin with.
pub(super) fn entries(index: u32) -> Vec<u8> {
    numbered(ENTRIES, index, &[])
}

/// Where an entry stands.
pub(super) fn entry(index: u32, entry: &[u8], id: &[u8]) -> Vec<u8> {
    numbered(ENTRIES, index, &[entry, id])
}

/// What the notes of a collection's changes begin with.
pub(super) fn changes(collection: u32) -> Vec<u8> {
    numbered(CHANGE, collection, &[])
}

/// Where the note of a change stands.
pub(super) fn change(collection: u32, number: ChangeNumber) -> Vec<u8> {
    numbered(CHANGE, collection, &[&number.to_be_bytes()])
}

/// The number of a noted change.
pub(super) fn change_number(key: &[u8]) -> Option<ChangeNumber> {
    Some(ChangeNumber::from_be_bytes(key.strip_prefix(CHANGES)?.get(4..)?.try_into().ok()?))
}

/// What the notes begin with that were of all collections: their numbers were small, and no collection has the number 0.
pub(super) const CHANGES_OF_ALL: &[u8] = &[RECORDS, CHANGE, 0, 0, 0, 0];

/// The revision that such a note is of.
pub(super) fn revision_of_all(key: &[u8]) -> Option<Revision> {
    Some(Revision::from_be_bytes(key.strip_prefix(CHANGES)?.try_into().ok()?))
}

/// Where the state of a collection's feed stands.
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
