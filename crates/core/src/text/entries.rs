//! The entries of a document in a text index.

use std::collections::BTreeSet;

use bson::RawBsonRef;
use bson::raw::RawDocument;

use super::TextFields;
use super::words::words;
use crate::order::encoded;
use crate::{Code, Invalid, TextIndex, limits};

/// The number of bytes of a word that an entry holds. Longer words with the same beginning share an entry, and are distinguished when the
/// record is evaluated.
const WORD_BYTES_MAX: usize = 256;

/// Returns the entries of a document in a text index: one for each distinct word.
///
/// # Errors
/// `invalid_record` if the entries exceed [`TEXT_INDEX_BYTES_MAX`](limits::TEXT_INDEX_BYTES_MAX).
pub fn text_entries(index: &TextIndex, document: &RawDocument) -> Result<BTreeSet<Vec<u8>>, Invalid> {
    let fields = TextFields::new(index.paths.iter().map(String::as_str));
    let mut entries = BTreeSet::new();
    let mut bytes = 0;
    for text in fields.texts(document) {
        for word in words(text) {
            let entry = text_entry(&word);
            let size = entry.len() + limits::TEXT_WORD_BYTES;
            bytes += if entries.insert(entry) { size } else { 0 };
            if bytes > limits::TEXT_INDEX_BYTES_MAX {
                let name = &index.name;
                let message = format!("has more distinct words than text index {name} can hold; index a shorter field");
                return Err(Invalid::new(Code::InvalidRecord, "document", message));
            }
        }
    }
    Ok(entries)
}

/// Returns whether two documents have the same texts in the fields of a text index, and so the same entries.
pub fn have_same_texts(index: &TextIndex, one: &RawDocument, other: &RawDocument) -> bool {
    let fields = TextFields::new(index.paths.iter().map(String::as_str));
    fields.texts(one) == fields.texts(other)
}

/// Returns whether only documents with this very word have its entry, because longer words are cut at a later byte.
pub fn has_own_text_entry(word: &str) -> bool {
    const LETTER_BYTES_MAX: usize = 4;
    word.len() + LETTER_BYTES_MAX <= WORD_BYTES_MAX
}

/// Returns the entry of a word.
pub fn text_entry(word: &str) -> Vec<u8> {
    let end = (0..=WORD_BYTES_MAX.min(word.len())).rev().find(|end| word.is_char_boundary(*end));
    encoded(RawBsonRef::String(&word[..end.unwrap_or_default()]))
}
