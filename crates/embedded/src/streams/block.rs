//! Encodes entries and positions as bytes. A value close to the previous one takes one or two bytes.
//!
//! ```text
//! entries     count · sequence number of the first · distance of each next one, less 1 … · partition of all + 1,
//!                                                                                          or 0 and each one's
//! positions   count · the first · distance of each next one, less 1 …
//! ```

use annals_core::{SequenceNumber, StreamPosition};

use super::keys::PartitionNumber;
use crate::varint::{put, take};

/// The most entries in a block of entries, and the most positions in a block of positions.
pub(super) const BLOCK: usize = 256;

/// An entry without its position, which is its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Placed {
    pub(super) sequence_number: SequenceNumber,
    pub(super) partition: PartitionNumber,
}

/// Encodes a block of entries with ascending sequence numbers.
pub(super) fn encode_entries(entries: &[Placed]) -> Vec<u8> {
    let mut out = Vec::with_capacity(2 * entries.len() + 16);
    encode_ascending(&mut out, entries.iter().map(|entry| entry.sequence_number));
    match entries.first() {
        Some(first) if entries.iter().all(|entry| entry.partition == first.partition) => {
            put(&mut out, u64::from(first.partition) + 1);
        }
        _ => {
            put(&mut out, 0);
            entries.iter().for_each(|entry| put(&mut out, u64::from(entry.partition)));
        }
    }
    out
}

/// Decodes what [`encode_entries`] encoded, or returns `None` if the bytes are anything else.
pub(super) fn decode_entries(mut bytes: &[u8]) -> Option<Vec<Placed>> {
    let numbers = decode_ascending(&mut bytes)?;
    let all = take(&mut bytes)?.checked_sub(1);
    let mut entries = Vec::with_capacity(numbers.len());
    for sequence_number in numbers {
        let partition = match all {
            Some(all) => all,
            None => take(&mut bytes)?,
        };
        entries.push(Placed { sequence_number, partition: partition.try_into().ok()? });
    }
    bytes.is_empty().then_some(entries)
}

/// Encodes a block of ascending positions.
pub(super) fn encode_positions(positions: &[StreamPosition]) -> Vec<u8> {
    let mut out = Vec::with_capacity(positions.len() + 16);
    encode_ascending(&mut out, positions.iter().copied());
    out
}

/// Decodes what [`encode_positions`] encoded, or returns `None` if the bytes are anything else.
pub(super) fn decode_positions(mut bytes: &[u8]) -> Option<Vec<StreamPosition>> {
    let positions = decode_ascending(&mut bytes)?;
    bytes.is_empty().then_some(positions)
}

fn encode_ascending(out: &mut Vec<u8>, numbers: impl ExactSizeIterator<Item = u64>) {
    put(out, numbers.len() as u64);
    let mut next = 0;
    for number in numbers {
        put(out, number - next);
        next = number + 1;
    }
}

fn decode_ascending(bytes: &mut &[u8]) -> Option<Vec<u64>> {
    let count = usize::try_from(take(bytes)?).ok().filter(|count| *count <= BLOCK)?;
    let mut numbers = Vec::with_capacity(count);
    let mut next = 0u64;
    for _ in 0..count {
        let number = next.checked_add(take(bytes)?)?;
        numbers.push(number);
        next = number.checked_add(1)?;
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(sequence_number: u64, partition: u32) -> Placed {
        Placed { sequence_number, partition }
    }

    #[test]
    fn a_block_of_neighbours_takes_a_byte_each() {
        let entries: Vec<_> = (0..256).map(|n| placed(5_000_000_000 + n * 3, 7)).collect();
        assert!(encode_entries(&entries).len() < 256 + 10);
        let mixed: Vec<_> = (0..256).map(|n| placed(5_000_000_000 + n * 90, (n % 120) as u32)).collect();
        assert!(encode_entries(&mixed).len() < 2 * 256 + 10);
        assert!(encode_positions(&(0..256).map(|n| n * 127).collect::<Vec<_>>()).len() < 256 + 5);
    }

    #[test]
    fn bytes_that_nobody_wrote_give_nothing() {
        let bytes = encode_entries(&[placed(3, 1), placed(9, 2), placed(10, 0)]);
        for length in 0..bytes.len() {
            assert_eq!(decode_entries(&bytes[..length]), None);
        }
        assert_eq!(decode_entries(&[&bytes[..], &[0]].concat()), None);
        let mut too_many = Vec::new();
        encode_ascending(&mut too_many, (0..257).collect::<Vec<_>>().into_iter());
        assert_eq!(decode_positions(&too_many), None);
        let mut past_the_end = vec![2];
        put(&mut past_the_end, u64::MAX - 1);
        put(&mut past_the_end, 5);
        assert_eq!(decode_positions(&past_the_end), None);
    }

    #[test]
    fn any_block_survives() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..2_000 {
            let mut at = random.u64(..) >> random.u32(1..64);
            let partitions = [1, 2, 300, u32::MAX][random.usize(0..4)];
            let entries: Vec<Placed> = (0..random.usize(0..=BLOCK))
                .map(|_| {
                    at += 1 + (random.u64(..) >> random.u32(24..64));
                    placed(at, random.u32(0..partitions))
                })
                .collect();
            assert_eq!(decode_entries(&encode_entries(&entries)), Some(entries.clone()));
            let positions: Vec<u64> = entries.iter().map(|entry| entry.sequence_number).collect();
            assert_eq!(decode_positions(&encode_positions(&positions)), Some(positions));
        }
    }
}
