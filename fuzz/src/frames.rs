//! The frames of a segment, behind checksums that are made to fit.

/// Reads anything as a segment.
pub fn check(bytes: &[u8]) {
    annals_embedded::fuzzing::decode_frames(bytes);
}
