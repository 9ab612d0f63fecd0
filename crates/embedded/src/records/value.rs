//! Ids and documents as values in the engine's map.

use annals_core::bson::raw::{RawDocument, RawDocumentBuf};
use annals_core::bson::{Bson, RawBson, RawBsonRef};
use annals_core::{Code, Invalid, Record, Revision, StoreError, order};

use super::keys;

/// Encodes an id.
pub(super) fn id_key(id: &Bson) -> Result<Vec<u8>, Invalid> {
    let raw = RawBson::try_from(id.clone())
        .map_err(|error| Invalid::new(Code::InvalidRecord, "_id", format!("cannot be stored: {error}")))?;
    Ok(order::encoded(raw.as_raw_bson_ref()))
}

/// Creates a document that has only this id.
pub(super) fn id_document(id: Bson) -> Result<RawDocumentBuf, Invalid> {
    let raw = RawBson::try_from(id)
        .map_err(|error| Invalid::new(Code::InvalidRecord, "_id", format!("cannot be stored: {error}")))?;
    Ok(only_id(raw.as_raw_bson_ref()))
}

/// Returns the `_id` of a validated document.
pub(super) fn id_of(document: &RawDocument) -> RawBsonRef<'_> {
    document.get("_id").ok().flatten().unwrap_or(RawBsonRef::Null)
}

/// Encodes a document as it is stored: revision, checksum, document. The engine verifies the checksums of its pages only when it is
/// opened; this checksum is verified on every read.
pub(super) fn stored(id: &[u8], revision: Revision, document: &RawDocument) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(12 + document.as_bytes().len());
    bytes.extend_from_slice(&revision.to_be_bytes());
    bytes.extend_from_slice(&checksum(id, &revision.to_be_bytes(), document.as_bytes()).to_be_bytes());
    bytes.extend_from_slice(document.as_bytes());
    bytes
}

/// Returns the revision and the document of a stored record, without copying.
pub(super) fn parts<'a>(id: &[u8], bytes: &'a [u8]) -> Result<(Revision, &'a RawDocument), StoreError> {
    let damaged = || StoreError::RecordsDamaged("a stored record is damaged".to_owned());
    let (revision, rest) = bytes.split_first_chunk::<8>().ok_or_else(damaged)?;
    let (crc, document) = rest.split_first_chunk().ok_or_else(damaged)?;
    if u32::from_be_bytes(*crc) != checksum(id, revision, document) {
        return Err(damaged());
    }
    Ok((Revision::from_be_bytes(*revision), RawDocument::from_bytes(document).map_err(|_| damaged())?))
}

fn checksum(id: &[u8], revision: &[u8; 8], document: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c_append(crc32c::crc32c(id), revision), document)
}

/// Returns whether an entry of the map has a valid checksum. Only documents have one; other entries pass.
pub(crate) fn entry_is_whole(key: &[u8], bytes: &[u8]) -> bool {
    keys::id_of_document(key).is_none_or(|id| parts(id, bytes).is_ok())
}

/// Decodes a stored record.
pub(super) fn record(id: &[u8], bytes: &[u8]) -> Result<Record, StoreError> {
    let (revision, document) = parts(id, bytes)?;
    Ok(Record { document: document.to_owned(), revision })
}

/// Wraps an id in a document with one field, which preserves its type.
pub(super) fn only_id(id: RawBsonRef<'_>) -> RawDocumentBuf {
    let mut document = RawDocumentBuf::new();
    document.append(annals_core::bson::cstr!("_id"), id);
    document
}

/// Returns the id from a document made by [`only_id`].
pub(super) fn only_id_of(bytes: &[u8]) -> Result<Bson, StoreError> {
    let damaged = || StoreError::RecordsDamaged("the note of a change is damaged".to_owned());
    let document = RawDocument::from_bytes(bytes).map_err(|_| damaged())?;
    let id = document.get("_id").ok().flatten().ok_or_else(damaged)?;
    Bson::try_from(id).map_err(|_| damaged())
}
