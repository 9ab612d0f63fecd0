//! The index file of a closed segment, behind checksums that are made to fit.

/// Reads anything as an index.
pub fn check(bytes: &[u8]) {
    annals_embedded::fuzzing::decode_index(bytes);
}
