//! Words in texts, as MongoDB's text indexes (version 3) see them without a language: no stems, no words that do not count.
//!
//! ```text
//!   words.rs     a text is cut into words at delimiters.txt
//!   folding.rs   case and accents are taken from letters: letters.txt and marks.txt
//!   fields.rs    which texts of a document an index is of
//!   entries.rs   what a text index holds of a document
//!   search.rs    what is looked for: `word "a phrase" -without`
//! ```
//!
//! The three tables are those of MongoDB 6.0 and not of another version of Unicode: a letter that came later has one
//! case and no accent, there and here. A test of the MongoDB adapter asks a server for every character.

mod entries;
mod fields;
mod folding;
mod search;
mod words;

#[cfg(test)]
mod tests;

use crate::{Code, Invalid};

pub use entries::{text_entries, text_entry};
pub(crate) use fields::TextFields;
pub use search::TextSearch;

/// Why a condition with `MATCH` is refused where no text index is declared.
pub fn no_text_index() -> Invalid {
    let message = "MATCH needs a text index of the collection, and there is none; declare one on the fields whose words are looked for, or use CONTAINS";
    Invalid::new(Code::NoTextIndex, "condition", message)
}
