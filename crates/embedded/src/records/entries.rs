//! The index entries of a record.

use std::collections::BTreeSet;

use annals_core::bson::raw::RawDocument;
use annals_core::{Code, Invalid, order, text_entries};

use super::catalog::KnownIndex;
use super::keys;

/// The entries that an index holds of a document.
///
/// # Errors
/// `invalid_record` when two of its fields lie in different arrays, or when its texts have too many words.
pub(super) fn entries_of(known: &KnownIndex, document: &RawDocument) -> Result<BTreeSet<Vec<u8>>, Invalid> {
    if known.admits.as_ref().is_some_and(|admits| !admits.matches(document)) {
        return Ok(BTreeSet::new());
    }
    if let Some(index) = known.index.as_text() {
        return text_entries(index, document);
    }
    let fields = known.fields();
    let (entries, missing) = order::document_keys(document, &fields).map_err(|error| {
        let message = format!("{error}, so index {} cannot hold it", known.index.name());
        Invalid::new(Code::InvalidRecord, "document", message)
    })?;
    if known.index.is_sparse() && missing == fields.len() {
        return Ok(BTreeSet::new());
    }
    Ok(entries.into_iter().collect())
}

/// Where an entry stands, and what stands there.
pub(super) fn stored(known: &KnownIndex, entry: &[u8], id: &[u8]) -> (Vec<u8>, [u8; 4]) {
    let length = (id.len() as u32).to_be_bytes();
    let mut id = id.to_vec();
    if known.ids_descend() {
        order::invert(&mut id);
    }
    (keys::entry(known.id, entry, &id), length)
}

/// The key of a stored entry without the id.
pub(super) fn entry_of<'k>(key: &'k [u8], value: &[u8]) -> Option<&'k [u8]> {
    let length = u32::from_be_bytes(value.try_into().ok()?) as usize;
    key.get(..key.len().checked_sub(length)?)
}

/// The id's encoding, of a stored entry.
pub(super) fn id_of(known: &KnownIndex, key: &[u8], value: &[u8]) -> Option<Vec<u8>> {
    let length = u32::from_be_bytes(value.try_into().ok()?) as usize;
    let mut id = key.get(key.len().checked_sub(length)?..)?.to_vec();
    if known.ids_descend() {
        order::invert(&mut id);
    }
    Some(id)
}
