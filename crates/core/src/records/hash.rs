//! A hash of what a collection holds that does not depend on where it is stored.

use bson::raw::RawDocument;
use sha2::{Digest, Sha256};

/// The SHA-256 of the documents of a collection, one behind the other in the order of their `_id`s. A document says how long it is, so
/// no two lists of documents have the same bytes. Revisions and the numbers of changes are no part of it: they are the store's.
#[derive(Debug, Clone, Default)]
pub struct RecordsHash(Sha256);

impl RecordsHash {
    /// Adds the next document.
    pub fn add(&mut self, document: &RawDocument) {
        self.0.update(document.as_bytes());
    }

    /// The hash, as 64 hexadecimal digits.
    pub fn finish(self) -> String {
        self.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
