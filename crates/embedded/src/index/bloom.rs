//! A Bloom filter over terms: it tells for certain that a term is absent, so that a look-up reads the index files of few segments.
//!
//! The filter is blocked (Putze, Sanders, Singler, "Cache-, hash- and space-efficient Bloom filters"): all bits of a term lie in one
//! cache line. Each commit queries the filter of every closed segment for its request id, so memory accesses matter more than size.

use crate::terms::Term;

/// Bits per term. About 0.7 % of absent terms appear to be present.
const BITS_PER_TERM: usize = 12;
/// The number of 64-bit words in a block: one cache line.
const BLOCK: usize = 8;
/// The number of bits that a term sets in its block, each selected by 9 bits of a hash.
const PROBES: u32 = 7;
/// An odd number without a pattern: 2^64 divided by the golden ratio.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

pub(crate) struct Bloom {
    blocks: Vec<[u64; BLOCK]>,
}

impl Bloom {
    pub(crate) fn of(terms: impl ExactSizeIterator<Item = Term>) -> Self {
        let blocks = (terms.len() * BITS_PER_TERM).div_ceil(64 * BLOCK).max(1);
        let mut bloom = Self { blocks: vec![[0; BLOCK]; blocks] };
        for term in terms {
            let block = bloom.block(term);
            for (word, bit) in bits(term) {
                bloom.blocks[block][word] |= bit;
            }
        }
        bloom
    }

    pub(crate) fn may_hold(&self, term: Term) -> bool {
        let block = &self.blocks[self.block(term)];
        bits(term).all(|(word, bit)| block[word] & bit != 0)
    }

    fn block(&self, term: Term) -> usize {
        ((u128::from(term) * self.blocks.len() as u128) >> 64) as usize
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        self.blocks.as_flattened().iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (words, []) = bytes.as_chunks::<8>() else { return None };
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let (blocks, []) = words.as_chunks::<BLOCK>() else { return None };
        (!blocks.is_empty()).then(|| Self { blocks: blocks.to_vec() })
    }
}

/// Returns the words and bits of a term in its block. The high bits of the term choose the block, all of its bits choose these.
fn bits(term: Term) -> impl Iterator<Item = (usize, u64)> {
    let hash = term.wrapping_mul(MIX) ^ (term >> 32);
    (0..PROBES).map(move |n| {
        let bit = (hash >> (9 * n)) & 511;
        ((bit / 64) as usize, 1 << (bit % 64))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_found_and_little_else() {
        let mut random = fastrand::Rng::with_seed(5);
        let terms: Vec<Term> = (0..20_000).map(|_| random.u64(..)).collect();
        let bloom = Bloom::of(terms.iter().copied());
        let bloom = Bloom::decode(&bloom.encode()).expect("decodes");
        assert!(terms.iter().all(|term| bloom.may_hold(*term)));
        let wrong = (0..100_000).filter(|_| bloom.may_hold(random.u64(..))).count();
        assert!(wrong < 1_500, "{wrong} of 100,000 look as if they were there");
    }
}
