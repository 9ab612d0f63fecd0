//! The state of a stream, as stored in the engine.

use annals_core::{SequenceNumber, StoreError, StreamPosition};

use super::keys::{PartitionNumber, StreamNumber, seal, unseal};
use crate::engine::View;
use crate::varint::{put, take};

/// The version of this encoding, so that a later one can be recognised.
const SHAPE: u64 = 1;

/// The state of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Meta {
    pub(super) number: StreamNumber,
    pub(super) head: StreamPosition,
    pub(super) progress: SequenceNumber,
    /// The highest number assigned to a partition.
    pub(super) partitions: PartitionNumber,
    /// The incarnation of the store in which verdicts were last appended.
    pub(super) incarnation: u32,
    /// The first position that belongs to this incarnation.
    pub(super) incarnation_start: StreamPosition,
}

impl Meta {
    pub(super) fn encode(&self, key: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let small = [self.number, self.partitions, self.incarnation].map(u64::from);
        for number in [SHAPE].into_iter().chain(small).chain([self.head, self.progress, self.incarnation_start]) {
            put(&mut out, number);
        }
        seal(key, out)
    }

    pub(super) fn decode(key: &[u8], sealed: &[u8]) -> Result<Self, StoreError> {
        let mut numbers = [0; 7];
        let whole = unseal(key, sealed).and_then(|mut bytes| {
            for number in &mut numbers {
                *number = take(&mut bytes)?;
            }
            bytes.is_empty().then_some(())
        });
        let [shape, number, partitions, incarnation, head, progress, incarnation_start] = numbers;
        let small = [number, partitions, incarnation].map(u32::try_from);
        match (whole, shape, small) {
            (Some(()), SHAPE, [Ok(number), Ok(partitions), Ok(incarnation)]) => {
                Ok(Self { number, head, progress, partitions, incarnation, incarnation_start })
            }
            _ => Err(damage(key, "the state of a stream")),
        }
    }

    /// Loads the stream under this key, or returns `None` if nothing was ever appended to it.
    pub(super) fn load(view: &dyn View, key: &[u8]) -> Result<Option<Self>, StoreError> {
        view.get(key)?.map(|value| Self::decode(key, &value)).transpose()
    }
}

/// Returns the error for bytes that are not as written.
pub(super) fn damage(key: &[u8], what: &str) -> StoreError {
    StoreError::RecordsDamaged(format!("{what} under key {} is damaged", key.escape_ascii()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_streams_state_survives() {
        let meta = Meta {
            number: u32::MAX,
            head: u64::MAX,
            progress: 70_000,
            partitions: 3,
            incarnation: 2,
            incarnation_start: 300,
        };
        let bytes = meta.encode(b"key");
        assert_eq!(Meta::decode(b"key", &bytes), Ok(meta));
        assert!(Meta::decode(b"other", &bytes).is_err());
        assert!(Meta::decode(b"key", &seal(b"key", vec![1, 2, 3])).is_err());
        assert!(Meta::decode(b"key", &seal(b"key", vec![2, 0, 0, 0, 0, 0, 0])).is_err());
    }
}
