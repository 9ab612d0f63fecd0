//! What a consumer passes without having processed it, and how its letter is named.

use super::DeadLetter;
use crate::{RecordedEvent, Timestamp};

/// The lower bits of a position that hold the offset of a message. The bits above them hold its partition.
const OFFSET_BITS: u32 = 48;

/// Where an event is in the source of its consumer. It names the letter of the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A position of the log or of a stream, which no other event has.
    Position(u64),
    /// A message on a broker of its own. Its producers number their events independently of each other, so the sequence number does not
    /// name an event there.
    Message {
        /// The partition of its topic.
        partition: u32,
        /// Its offset in the partition.
        offset: u64,
    },
}

impl Place {
    /// Returns the position of a letter. It orders the letters of a key: messages of a partition by their offsets. An event that was
    /// published twice has two positions on its topic.
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
    /// Where the event is in the consumer's source.
    pub place: Place,
    /// Its key.
    pub key: &'a str,
    /// How often it was attempted.
    pub attempts: u32,
    /// What the last attempt failed with.
    pub error: &'a str,
    /// When.
    pub at: Timestamp,
}

impl Received<'_> {
    /// Returns the id of the event's letter: `group.billing.42` for the event at position 42 of the log, and
    /// `group.billing@order_placed.2.41.1d1c3f4a` for the message at offset 41 of partition 2. No name has an `@`, so the two forms never
    /// meet.
    ///
    /// The last part of the longer form is of the event's id: a topic that was deleted and created again has the same offsets again.
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
