//! Words in texts, as MongoDB's text indexes (version 3) define them without a language: no stemming and no stop words.
//!
//! ```text
//!   words.rs     splits a text into words at delimiters.txt
//!   folding.rs   removes case and accents from letters: letters.txt and marks.txt
//!   fields.rs    selects the texts of a document that an index covers
//!   entries.rs   the entries that a text index has for a document
//!   search.rs    the search string: `word "a phrase" -without`
//! ```
//!
//! The three tables are those of MongoDB 6.0, not of a later version of Unicode: on both backends, letters that were added since have one
//! case and no accent. A test of the MongoDB adapter compares every character with a server.

mod entries;
mod fields;
mod folding;
mod search;
mod words;

#[cfg(test)]
mod tests;

use crate::{Code, Invalid};

pub use entries::{has_own_text_entry, have_same_texts, text_entries, text_entry};
pub(crate) use fields::TextFields;
pub use search::TextSearch;

/// Returns the refusal of a `MATCH` condition on a collection without a text index.
pub fn no_text_index() -> Invalid {
    let message =
        "MATCH needs a text index, and the collection has none; declare one on the fields to search, or use CONTAINS";
    Invalid::new(Code::NoTextIndex, "condition", message)
}
