//! The keys of streams in the engine.
//!
//! ```text
//! 2 0                                              the number that the next new stream gets
//! 2 1 scope 0 name                              →  how the stream is: its number, head, progress …      meta.rs
//! 2 2 stream block                              →  entries [block × 256, block × 256 + 256)             block.rs
//! 2 3 stream text                               →  the partition's number
//! 2 4 stream partition                          →  the partition's text
//! 2 5 stream partition position                 →  up to 256 positions of the partition, from that one  block.rs
//! ```
//!
//! Stream and partition numbers have 4 bytes, blocks and positions 8. All are big-endian, so that keys are in numerical order. Scopes and
//! names contain no NUL. Every value ends with the CRC-32C of its key and itself. A reader therefore notices bytes that are damaged or
//! misplaced.

use annals_core::StreamPosition;

use crate::engine::{Range, Space};

const STREAMS: u8 = Space::Streams as u8;
const CHECKSUM: usize = 4;

/// The number of a stream, which is never reused.
pub(super) type StreamNumber = u32;
/// The number of a partition in its stream; 0 means no partition.
pub(super) type PartitionNumber = u32;

/// The number that means no partition.
pub(super) const NO_PARTITION: PartitionNumber = 0;

/// The prefix of the keys of the streams themselves.
pub(super) const ALL_STREAMS: &[u8] = &[STREAMS, 1];
/// The prefixes of all other keys of streams; the number of the stream follows.
pub(super) const KINDS_OF_A_STREAM: [[u8; 2]; 4] = [[STREAMS, 2], [STREAMS, 3], [STREAMS, 4], [STREAMS, 5]];

/// Returns the ranges of this key space that no key uses.
pub(super) fn unused() -> [Range; 2] {
    [Range::between(&next_number(), ALL_STREAMS), Range::between(&[STREAMS, 6], &[STREAMS + 1])]
}

pub(super) fn next_number() -> Vec<u8> {
    vec![STREAMS, 0]
}

/// Returns the prefix of the keys of a scope's streams.
pub(super) fn scope(scope: &str) -> Vec<u8> {
    [&[STREAMS, 1], scope.as_bytes(), &[0]].concat()
}

pub(super) fn stream(scope_name: &str, name: &str) -> Vec<u8> {
    [&scope(scope_name)[..], name.as_bytes()].concat()
}

pub(super) fn block(stream: StreamNumber, block: u64) -> Vec<u8> {
    [&[STREAMS, 2], &stream.to_be_bytes()[..], &block.to_be_bytes()].concat()
}

pub(super) fn partition(stream: StreamNumber, text: &str) -> Vec<u8> {
    [&[STREAMS, 3], &stream.to_be_bytes()[..], text.as_bytes()].concat()
}

pub(super) fn partition_text(stream: StreamNumber, partition: PartitionNumber) -> Vec<u8> {
    [&[STREAMS, 4], &stream.to_be_bytes()[..], &partition.to_be_bytes()].concat()
}

/// Returns the prefix of the keys of a partition's positions.
pub(super) fn postings(stream: StreamNumber, partition: PartitionNumber) -> Vec<u8> {
    [&[STREAMS, 5], &stream.to_be_bytes()[..], &partition.to_be_bytes()].concat()
}

pub(super) fn postings_from(stream: StreamNumber, partition: PartitionNumber, position: StreamPosition) -> Vec<u8> {
    [&postings(stream, partition)[..], &position.to_be_bytes()].concat()
}

/// Appends a checksum to a value.
pub(super) fn seal(key: &[u8], mut value: Vec<u8>) -> Vec<u8> {
    let checksum = checksum(key, &value);
    value.extend_from_slice(&checksum.to_le_bytes());
    value
}

/// Returns the value given to [`seal`], or `None` if the bytes are anything else.
pub(super) fn unseal<'a>(key: &[u8], sealed: &'a [u8]) -> Option<&'a [u8]> {
    let (value, found) = sealed.split_last_chunk::<CHECKSUM>()?;
    (u32::from_le_bytes(*found) == checksum(key, value)).then_some(value)
}

/// Returns whether an entry of the map has a valid checksum. Every value of a stream has one; entries of other spaces pass.
pub(crate) fn entry_is_whole(key: &[u8], sealed: &[u8]) -> bool {
    key.first() != Some(&STREAMS) || unseal(key, sealed).is_some()
}

fn checksum(key: &[u8], value: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(key), value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_in_the_order_of_what_they_stand_for() {
        let ascending = [
            next_number(),
            stream("default", "a"),
            stream("default", "a-1"),
            stream("default", "b"),
            stream("default2", "a"),
            block(1, 0),
            block(1, 255),
            block(1, 256),
            block(2, 0),
            partition(1, "a"),
            partition_text(1, 1),
            postings_from(1, 0, 7),
            postings_from(1, 1, 255),
            postings_from(1, 1, 256),
            postings_from(1, 2, 0),
            postings_from(2, 0, 0),
        ];
        assert!(ascending.is_sorted());
        assert!(stream("default", "a").starts_with(&scope("default")));
        assert!(!stream("default2", "a").starts_with(&scope("default")));
    }

    #[test]
    fn a_value_under_another_key_or_with_another_byte_is_noticed() {
        let sealed = seal(b"key", b"value".to_vec());
        assert_eq!(unseal(b"key", &sealed), Some(&b"value"[..]));
        assert_eq!(unseal(b"kez", &sealed), None);
        for bit in 0..sealed.len() * 8 {
            let mut other = sealed.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(unseal(b"key", &other), None);
        }
        assert_eq!(unseal(b"key", &sealed[..3]), None);
    }
}
