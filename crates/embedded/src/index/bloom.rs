//! A Bloom filter over terms: says "not here" for certain, so that a look-up reads the index files of few segments.

use crate::terms::Term;

/// Bits per term; with six probes about 1 % of the terms that are not there look as if they were.
const BITS_PER_TERM: usize = 10;
const PROBES: u64 = 6;

pub(crate) struct Bloom {
    words: Vec<u64>,
}

impl Bloom {
    pub(crate) fn of(terms: impl ExactSizeIterator<Item = Term>) -> Self {
        let mut bloom = Self { words: vec![0; (terms.len() * BITS_PER_TERM).div_ceil(64).max(1)] };
        for term in terms {
            for bit in bloom.bits(term) {
                bloom.words[bit / 64] |= 1 << (bit % 64);
            }
        }
        bloom
    }

    pub(crate) fn may_hold(&self, term: Term) -> bool {
        self.bits(term).all(|bit| self.words[bit / 64] & 1 << (bit % 64) != 0)
    }

    // Terms are hashes already; a second one is made of the first (Kirsch and Mitzenmacher, "Less hashing, same performance").
    fn bits(&self, term: Term) -> impl Iterator<Item = usize> + use<> {
        let bits = self.words.len() as u128 * 64;
        let step = term.rotate_left(32) | 1;
        (0..PROBES).map(move |n| ((u128::from(term.wrapping_add(n.wrapping_mul(step))) * bits) >> 64) as usize)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        self.words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (chunks, []) = bytes.as_chunks::<8>() else { return None };
        (!chunks.is_empty()).then(|| Self { words: chunks.iter().map(|chunk| u64::from_le_bytes(*chunk)).collect() })
    }
}
