//! The stored form of a record: its document with `_id` first, as MongoDB requires, and one field of our own at the end.
//!
//! ```text
//! {_id, …, _annals: {revision int64, idAt int32, checks int64}}
//!      idAt: before which field the _id stood; left out when it stood in front
//!      checks: how often other changes depended on it since it was written; see checks.rs
//! ```
//!
//! Software that accesses fields by name finds them as in the original document. A document without our field was written by other
//! software: its revision is 0.

use annals_core::bson::raw::{RawDocument, RawDocumentBuf, cstr};
use annals_core::bson::{Bson, RawBsonRef};
use annals_core::{Code, Invalid, RecordChange, Revision};

use crate::layout::fields::{inner, integer, natural};

/// The field of our own.
pub(super) const OWN: &str = "_annals";

/// The path of the record's revision.
pub(super) const REVISION: &str = "_annals.revision";
/// The path of the index of the field before which the `_id` originally was.
pub(super) const ID_AT: &str = "_annals.idAt";
/// The path of the number of transactions that checked the record.
pub(super) const CHECKS: &str = "_annals.checks";

const ID: &str = "_id";

/// Checks that the document or fields of a change can be stored.
///
/// # Errors
/// `invalid_record`.
pub(super) fn storable_change(change: &RecordChange) -> Result<(), Invalid> {
    match change {
        RecordChange::Insert { document, .. } | RecordChange::Replace { document, .. } => storable(document),
        RecordChange::Set { fields, unset, .. } => {
            let mut paths = fields.iter().map(|(path, _)| path).chain(unset);
            match paths.any(|path| path.split('.').next() == Some(OWN)) {
                true => Err(own("fields")),
                false => Ok(()),
            }
        }
        RecordChange::Delete { .. } | RecordChange::Check { .. } => Ok(()),
    }
}

fn storable(document: &RawDocument) -> Result<(), Invalid> {
    match document.get(OWN) {
        Ok(None) => Ok(()),
        _ => Err(own("document")),
    }
}

fn own(path: &str) -> Invalid {
    let message = format!("has the field {OWN:?}, which a store on MongoDB keeps for itself; give it another name");
    Invalid::new(Code::InvalidRecord, path, message)
}

/// Returns the index of the field before which a document's `_id` is.
pub(super) fn id_at(document: &RawDocument) -> i32 {
    let at = document.iter().flatten().position(|(name, _)| name.as_str() == ID);
    at.and_then(|at| i32::try_from(at).ok()).unwrap_or(0)
}

/// Returns the stored form of a document.
pub(super) fn stored(document: &RawDocument, revision: Revision) -> RawDocumentBuf {
    let mut out = RawDocumentBuf::new();
    out.append(cstr!("_id"), id_of(document));
    let mut id_at = 0;
    for (at, (name, value)) in document.iter().flatten().enumerate() {
        if name.as_str() == ID {
            id_at = at as i32;
        } else {
            out.append(name, value);
        }
    }
    let mut own = RawDocumentBuf::new();
    own.append(cstr!("revision"), i64::try_from(revision).unwrap_or(i64::MAX));
    if id_at > 0 {
        own.append(cstr!("idAt"), id_at);
    }
    out.append(cstr!("_annals"), own);
    out
}

/// Returns the original document of a stored record.
pub(super) fn given(stored: &RawDocument) -> RawDocumentBuf {
    let id_at =
        inner(stored, OWN).and_then(|own| integer(own, "idAt")).and_then(|at| usize::try_from(at).ok()).unwrap_or(0);
    let mut out = RawDocumentBuf::new();
    let mut count = 0;
    let mut id = Some(id_of(stored));
    for (name, value) in stored.iter().flatten() {
        if name.as_str() == OWN || name.as_str() == ID {
            continue;
        }
        if count == id_at
            && let Some(id) = id.take()
        {
            out.append(cstr!("_id"), id);
        }
        out.append(name, value);
        count += 1;
    }
    if let Some(id) = id {
        out.append(cstr!("_id"), id);
    }
    out
}

/// Returns the revision of a stored document.
pub(super) fn revision_of(stored: &RawDocument) -> Revision {
    inner(stored, OWN).and_then(|own| natural(own, "revision")).unwrap_or(0)
}

/// Returns the `_id` of a document.
pub(super) fn id_of(document: &RawDocument) -> RawBsonRef<'_> {
    document.get(ID).ok().flatten().unwrap_or(RawBsonRef::Null)
}

/// Returns a copy of the `_id` of a document.
pub(super) fn owned_id(document: &RawDocument) -> Bson {
    Bson::try_from(id_of(document)).unwrap_or(Bson::Null)
}

/// Returns a document with nothing but this `_id`.
pub(super) fn only_id(id: &Bson) -> Result<RawDocumentBuf, Invalid> {
    let invalid = |error: annals_core::bson::error::Error| {
        Invalid::new(Code::InvalidRecord, "_id", format!("cannot be stored: {error}"))
    };
    RawDocumentBuf::try_from(&annals_core::bson::doc! { "_id": id.clone() }).map_err(invalid)
}

/// Returns whether a `$set` stores this value unchanged: the server interprets documents, and fills in empty timestamps.
pub(super) fn is_plain(value: &Bson) -> bool {
    !matches!(
        value,
        Bson::Document(_) | Bson::Array(_) | Bson::Timestamp(_) | Bson::DbPointer(_) | Bson::JavaScriptCodeWithScope(_)
    ) || matches!(value, Bson::Document(inner) if inner.iter().all(|(name, value)| !name.starts_with('$') && is_plain(value)))
        || matches!(value, Bson::Array(inner) if inner.iter().all(is_plain))
}

/// Returns whether the server would change or refuse the document in an ordinary insert or replacement: it fills in empty timestamps, and
/// interprets names that begin with a dollar as operators.
pub(super) fn is_odd(document: &RawDocument) -> bool {
    let odd = |value: RawBsonRef<'_>| matches!(value, RawBsonRef::Timestamp(at) if at.time == 0 && at.increment == 0);
    document.iter().flatten().any(|(name, value)| name.as_str().starts_with('$') || odd(value))
}

#[cfg(test)]
mod tests {
    use annals_core::bson::rawdoc;

    use super::*;

    #[test]
    fn a_document_is_given_back_as_it_came_wherever_its_id_stands() {
        for document in [
            rawdoc! { "_id": 1 },
            rawdoc! { "_id": 1, "a": 2, "b": 3 },
            rawdoc! { "a": 2, "_id": 1, "b": 3 },
            rawdoc! { "a": 2, "b": 3, "_id": { "x": 1 } },
        ] {
            let kept = stored(&document, 7);
            assert_eq!((given(&kept), revision_of(&kept)), (document, 7));
            assert_eq!(kept.iter().next().map(|first| first.is_ok_and(|(name, _)| name.as_str() == "_id")), Some(true));
        }
    }

    #[test]
    fn what_other_software_wrote_is_a_record_of_revision_0() {
        let document = rawdoc! { "_id": "key", "value": 5 };
        assert_eq!((given(&document), revision_of(&document)), (document.clone(), 0));
    }

    #[test]
    fn our_own_field_is_refused_in_documents() {
        assert_eq!(storable(&rawdoc! { "_id": 1, "_annals": 1 }).expect_err("refused").code, Code::InvalidRecord);
        assert_eq!(storable(&rawdoc! { "_id": 1, "a": { "_annals": 1 } }), Ok(()));
    }
}
