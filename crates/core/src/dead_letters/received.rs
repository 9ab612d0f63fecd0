//! Events that a consumer passes without having processed them, and the ids of their letters.

use super::DeadLetter;
use crate::{RecordedEvent, Timestamp};

/// The number of low bits of a position that hold the offset of a message. The bits above them hold its partition.
const OFFSET_BITS: u32 = 48;

/// The place of an event in its consumer's source. It identifies the letter of the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A position in the log or in a stream, which is unique to the event.
    Position(u64),
    /// A message on an external broker. Its producers number their events independently, so a sequence number does not identify an event
    /// there.
    Message {
        /// The partition of its topic.
        partition: u32,
        /// Its offset in the partition.
        offset: u64,
    },
}

impl Place {
    /// Returns the position of a letter, which orders the letters of a key: messages of a partition by their offsets. An event that was
    /// published twice has two positions in its topic.
    pub fn position(self) -> u64 {
        match self {
            Self::Position(position) => position,
            Self::Message { partition, offset } => {
                let partition = u64::from(partition) << OFFSET_BITS;
                // Positions are stored as signed numbers.
                (partition & (u64::MAX >> 1)) | (offset & ((1 << OFFSET_BITS) - 1))
            }
        }
    }
}

/// An event that a consumer passes without having processed it.
#[derive(Debug, Clone)]
pub struct Received<'a> {
    /// The consumer.
    pub processor: &'a str,
    /// The event.
    pub event: &'a RecordedEvent,
    /// The topic of the event.
    pub topic: &'a str,
    /// The place of the event in the consumer's source.
    pub place: Place,
    /// Its key.
    pub key: &'a str,
    /// The number of attempts.
    pub attempts: u32,
    /// The error of the last attempt.
    pub error: &'a str,
    /// When the consumer passed it.
    pub at: Timestamp,
}

impl Received<'_> {
    /// Returns the id of the event's letter: `group.billing.42` for the event at position 42 of the log, and
    /// `group.billing@order_placed.2.41.1d1c3f4a` for the message at offset 41 of partition 2. No name contains `@`, so the two forms
    /// never clash.
    ///
    /// The last part of the longer form is derived from the event's id, because a topic that was deleted and created again reuses its
    /// offsets.
    pub fn id(&self) -> String {
        match self.place {
            Place::Position(position) => DeadLetter::id_of(self.processor, position),
            Place::Message { partition, offset } => {
                let (processor, topic) = (self.processor.replacen('/', ".", 1), &self.event.event_type);
                let event = self.event.id.as_u128() & u128::from(u32::MAX);
                format!("{processor}@{topic}.{partition}.{offset}.{event:08x}")
            }
        }
    }
}
