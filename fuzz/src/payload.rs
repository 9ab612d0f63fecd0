//! The payload of a frame: one stored commit, or a change of prepare keys alone.

/// Decodes anything.
pub fn check(bytes: &[u8]) {
    if let Some((events, keys)) = annals_embedded::fuzzing::decode_payload(bytes) {
        assert!(events > 0 || keys > 0, "neither a commit nor a change of keys");
    }
}
