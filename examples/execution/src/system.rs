//! The one place that asks the system for randomness.

use annals::{Randomness, Uuid};

/// Random bits of the system.
struct System;

impl Randomness for System {
    fn bits(&self) -> u128 {
        let mut bytes = [0; 16];
        match getrandom::fill(&mut bytes) {
            Ok(()) => u128::from_ne_bytes(bytes),
            Err(error) => panic!("the system gives no randomness, so no id can be made: {error}"),
        }
    }
}

/// A new UUIDv4 (RFC 9562). Random from its first digit on, so that the first eight tell executions apart.
pub(crate) fn random_uuid() -> Uuid {
    const VERSION_AND_VARIANT: u128 = 0x4000_8000_0000_0000_0000;
    const OTHER_BITS: u128 = !0xf000_c000_0000_0000_0000;
    Uuid::from_u128(System.bits() & OTHER_BITS | VERSION_AND_VARIANT)
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
