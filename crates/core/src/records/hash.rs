//! A hash of a collection's content that does not depend on the backend.

use bson::raw::RawDocument;
use sha2::{Digest, Sha256};

/// The SHA-256 of the documents of a collection, concatenated in the order of their `_id`s. Each document contains its length, so no two
/// lists of documents have the same bytes. Revisions and change numbers are not included, because they belong to the store.
#[derive(Debug, Clone, Default)]
pub struct RecordsHash(Sha256);

impl RecordsHash {
    /// Adds the next document.
    pub fn add(&mut self, document: &RawDocument) {
        self.0.update(document.as_bytes());
    }

    /// Returns the hash, as 64 hexadecimal digits.
    pub fn finish(self) -> String {
        self.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
