//! API keys: `ann_<id>_<secret>`, both in hexadecimal digits.

use std::fmt;
use std::hint::black_box;

use sha2::{Digest, Sha256};

const PREFIX: &str = "ann_";
/// Bytes of an id and of a secret.
const ID_BYTES: usize = 8;
const SECRET_BYTES: usize = 32;

/// An API key. Its id is not secret: it identifies the credential in lists and logs. Its `Debug` form contains only the id.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey {
    id: [u8; ID_BYTES],
    secret: [u8; SECRET_BYTES],
}

impl ApiKey {
    /// Creates a key from random bytes, which must come from the system's generator.
    pub fn new(id: [u8; ID_BYTES], secret: [u8; SECRET_BYTES]) -> Self {
        Self { id, secret }
    }

    /// Parses a key; `None` if the text is not one.
    pub fn parse(text: &str) -> Option<Self> {
        let (id, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
        Some(Self { id: bytes(id)?, secret: bytes(secret)? })
    }

    /// Returns the id of its credential.
    pub fn id(&self) -> String {
        hex(&self.id)
    }

    /// Returns the hash of its secret that is stored: its SHA-256. A slow hash is only needed for secrets that people choose; 256 random
    /// bits cannot be guessed.
    pub fn hash(&self) -> [u8; 32] {
        Sha256::digest(self.secret).into()
    }

    /// Returns the key as text. Anyone who has this text can use the credential.
    pub fn reveal(&self) -> String {
        format!("{PREFIX}{}_{}", hex(&self.id), hex(&self.secret))
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiKey({})", self.id())
    }
}

/// Compares in constant time, wherever the two differ.
pub fn same_bytes(one: &[u8; 32], other: &[u8; 32]) -> bool {
    let mut difference = 0;
    for (a, b) in one.iter().zip(other) {
        difference |= black_box(a ^ b);
    }
    black_box(difference) == 0
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Parses lower-case hexadecimal digits.
fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    let mut bytes = [0; N];
    if digits.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

fn digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_as_it_was_written_and_nothing_like_it_is() {
        let key = ApiKey::new([7; 8], [0xab; 32]);
        let text = key.reveal();
        assert_eq!((text.len(), ApiKey::parse(&text)), (85, Some(key.clone())));
        assert_eq!(key.id(), "0707070707070707");
        for bad in ["", "ann_", "ann_07_ab", &text[1..], &text[..84], &text.to_uppercase(), &format!("{text}0")] {
            assert_eq!(ApiKey::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_key_shows_its_id_and_never_its_secret_when_it_is_logged() {
        let shown = format!("{:?}", ApiKey::new([7; 8], [0xab; 32]));
        assert_eq!(shown, "ApiKey(0707070707070707)");
    }

    #[test]
    fn equal_bytes_are_the_same_and_one_different_bit_is_not() {
        let one = ApiKey::new([0; 8], [1; 32]).hash();
        assert!(same_bytes(&one, &one.clone()));
        for place in [0, 15, 31] {
            let mut other = one;
            other[place] ^= 1;
            assert!(!same_bytes(&one, &other), "{place}");
        }
    }
}
