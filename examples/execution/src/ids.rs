//! Random ids of executions.

use std::sync::LazyLock;

use annals::{Randomness, SystemRandomness, Uuid};

static RANDOMNESS: LazyLock<SystemRandomness> = LazyLock::new(SystemRandomness::new);

/// Returns a new UUIDv4 (RFC 9562). It is random from its first digit on, so that the first eight digits distinguish executions.
pub(crate) fn random_uuid() -> Uuid {
    const VERSION_AND_VARIANT: u128 = 0x4000_8000_0000_0000_0000;
    const OTHER_BITS: u128 = !0xf000_c000_0000_0000_0000;
    Uuid::from_u128(RANDOMNESS.bits() & OTHER_BITS | VERSION_AND_VARIANT)
}

#[cfg(test)]
mod tests {
    use super::random_uuid;

    #[test]
    fn a_random_uuid_is_version_4_and_each_is_another() {
        let (one, other) = (random_uuid(), random_uuid());
        assert_eq!(one.get_version_num(), 4);
        assert_eq!(
            one.get_variant(),
            "00000000-0000-4000-8000-000000000000".parse::<annals::Uuid>().expect("is one").get_variant()
        );
        assert_ne!(one, other);
    }
}
