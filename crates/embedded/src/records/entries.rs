//! The index entries of a record.

use annals_core::order::{self, Fields};
use annals_core::{Code, Invalid, have_same_texts, text_entries};

use super::catalog::KnownIndex;
use super::keys;

/// Returns the entries that an index holds for a document, in order and without duplicates.
///
/// # Errors
/// `invalid_record` if two of its fields lie in different arrays, or if its texts have too many words.
pub(super) fn entries_of(known: &KnownIndex, document: &Fields<'_>) -> Result<Vec<Vec<u8>>, Invalid> {
    if !admits(known, document) {
        return Ok(Vec::new());
    }
    if let Some(index) = known.index.as_text() {
        return Ok(text_entries(index, document.document())?.into_iter().collect());
    }
    let fields = known.fields();
    let (entries, missing) = document.keys(&fields).map_err(|error| {
        let message = format!("{error}, so index {} cannot hold it", known.index.name());
        Invalid::new(Code::InvalidRecord, "document", message)
    })?;
    if known.index.is_sparse() && missing == fields.len() {
        return Ok(Vec::new());
    }
    Ok(entries)
}

/// Returns whether an index certainly holds the same entries for two documents, because they agree in everything that it looks at. If
/// false, it may still hold the same.
pub(super) fn are_same(known: &KnownIndex, one: &Fields<'_>, other: &Fields<'_>) -> bool {
    let agree = match known.index.as_text() {
        Some(index) => have_same_texts(index, one.document(), other.document()),
        None => known.fields().iter().all(|(path, _)| one.has_same(other, path)),
    };
    agree && admits(known, one) == admits(known, other)
}

fn admits(known: &KnownIndex, document: &Fields<'_>) -> bool {
    known.admits.as_ref().is_none_or(|admits| admits.matches(document.document()))
}

/// Returns the key under which an entry is stored, and its value.
pub(super) fn stored(known: &KnownIndex, entry: &[u8], id: &[u8]) -> (Vec<u8>, [u8; 4]) {
    let mut key = keys::entry(known.id, entry, id);
    if known.ids_descend() {
        let start = key.len() - id.len();
        order::invert(&mut key[start..]);
    }
    (key, (id.len() as u32).to_be_bytes())
}

/// Returns the key of a stored entry without the id.
pub(super) fn entry_of<'k>(key: &'k [u8], value: &[u8]) -> Option<&'k [u8]> {
    let length = u32::from_be_bytes(value.try_into().ok()?) as usize;
    key.get(..key.len().checked_sub(length)?)
}

/// Returns the encoded id of a stored entry.
pub(super) fn id_of(known: &KnownIndex, key: &[u8], value: &[u8]) -> Option<Vec<u8>> {
    let length = u32::from_be_bytes(value.try_into().ok()?) as usize;
    let mut id = key.get(key.len().checked_sub(length)?..)?.to_vec();
    if known.ids_descend() {
        order::invert(&mut id);
    }
    Some(id)
}

#[cfg(test)]
mod tests {
    use annals_core::bson::raw::RawDocumentBuf;
    use annals_core::bson::rawdoc;
    use annals_core::{Condition, Index};

    use super::super::catalog::Catalog;
    use super::*;

    fn known(index: impl Into<Index>) -> KnownIndex {
        Catalog::default().add_index("c", index.into())
    }

    #[track_caller]
    fn check(index: &KnownIndex, one: &RawDocumentBuf, other: &RawDocumentBuf, same: bool) {
        let (one, other) = (Fields::of(one), Fields::of(other));
        assert_eq!(are_same(index, &one, &other), same);
        assert_eq!(entries_of(index, &one) == entries_of(index, &other), same);
    }

    #[test]
    fn an_index_has_the_same_entries_of_documents_that_agree_in_what_it_looks_at() {
        let one = rawdoc! { "_id": 1, "a": { "x": 1, "y": 1 }, "b": [1, 2], "open": true, "text": "leave it here" };
        let other = rawdoc! { "_id": 1, "a": { "x": 1, "y": 2 }, "b": [1, 2], "open": false, "text": "leave it there" };
        check(&known(Index::on("a.x")), &one, &other, true);
        check(&known(Index::on("a.y")), &one, &other, false);
        check(&known(Index::on("b").sparse()), &one, &other, true);
        check(&known(Index::on("missing")), &one, &other, true);
        check(&known(Index::text(["text"])), &one, &other, false);
        check(&known(Index::text(["other"])), &one, &other, true);
        let open = Index::on("a.x").partial(Condition::eq("open", true));
        check(&known(open), &one, &other, false);
        let first = Index::on("a.x").partial(Condition::eq("b", 1));
        check(&known(first), &one, &other, true);
    }
}
