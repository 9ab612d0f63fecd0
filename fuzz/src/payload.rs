//! The payload of a frame: one stored commit.

/// Decodes anything.
pub fn check(bytes: &[u8]) {
    if let Some(events) = annals_embedded::fuzzing::decode_payload(bytes) {
        assert!(events > 0, "a commit without events");
    }
}
