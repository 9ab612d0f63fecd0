//! Seals on numbers that are given out, so that only the receiver of a number can present it again.

use annals_core::Randomness;
use siphasher::sip128::SipHasher13;

/// A key that seals numbers. It lives as long as the numbers mean something.
pub struct Seal([u8; 16]);

impl Seal {
    /// Creates a seal with a random key.
    pub fn new(random: &dyn Randomness) -> Self {
        Self(random.bits().to_le_bytes())
    }

    /// Returns the number as text: its hexadecimal digits, and 64 bits that cannot be guessed without the key.
    pub fn seal(&self, number: u64) -> String {
        format!("{number:x}-{:016x}", self.of(number))
    }

    /// Returns the number in a text that [`seal`](Self::seal) returned, or `None` for any other text.
    pub fn open(&self, text: &str) -> Option<u64> {
        let (number, seal) = text.split_once('-')?;
        let number = u64::from_str_radix(number, 16).ok()?;
        (u64::from_str_radix(seal, 16).ok()? == self.of(number)).then_some(number)
    }

    fn of(&self, number: u64) -> u64 {
        SipHasher13::new_with_key(&self.0).hash(&number.to_le_bytes()).h1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SystemRandomness;

    #[test]
    fn a_number_is_accepted_with_its_own_seal_only() {
        let random = SystemRandomness::new();
        let (seal, other) = (Seal::new(&random), Seal::new(&random));
        for number in [0, 1, 1 << 40, u64::MAX] {
            let text = seal.seal(number);
            assert_eq!(seal.open(&text), Some(number));
            assert_eq!(other.open(&text), None, "{text}");
            let (_, sealed) = text.split_once('-').expect("a seal");
            let next = number.wrapping_add(1);
            let forged = [format!("{next:x}-{sealed}"), format!("{number:x}"), format!("{number:x}-0")];
            for text in forged {
                assert_eq!(seal.open(&text), None, "{text}");
            }
        }
    }
}
