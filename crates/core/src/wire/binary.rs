//! The same shapes as BSON, for programs with many commits. Event data is passed on as stored, with all its types. A sequence of documents
//! needs no separator, because each document begins with its length.

mod found;
mod horizon;
mod read;
mod write;

pub use found::{FoundEnd, FoundWriter, read_found, read_found_of_stream};
pub use horizon::{read_offered, write_offered};
pub use read::{read_commit, read_reply};
pub use write::{write_commit, write_outcome, write_refusal};

/// A document, and the bytes that follow it.
pub type Split<'a> = (&'a [u8], &'a [u8]);

/// Splits the first document off a sequence. Returns its bytes and the rest, or `None` if the document is incomplete.
///
/// # Errors
/// A sentence, if the bytes cannot be the beginning of a document.
pub fn split_document(bytes: &[u8]) -> Result<Option<Split<'_>>, String> {
    const LEAST: usize = 5;
    let Some(length) = bytes.first_chunk::<4>() else { return Ok(None) };
    let length = i32::from_le_bytes(*length);
    match usize::try_from(length) {
        Ok(length) if length >= LEAST => Ok(bytes.split_at_checked(length)),
        _ => Err(format!("a document cannot be {length} bytes long")),
    }
}

#[cfg(test)]
mod tests;
