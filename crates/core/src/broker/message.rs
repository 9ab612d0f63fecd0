//! Messages, as they are published and as they are read.

use bytes::Bytes;

use crate::{ByteString, RecordedEvent, SequenceNumber, Timestamp};

/// A partition of a topic.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartition {
    /// The topic.
    pub topic: ByteString,
    /// The partition, from 0.
    pub partition: u32,
}

/// A message for a relay to publish. The relay has already encoded the event; a broker knows nothing about envelopes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMessage {
    /// The topic, which must exist.
    pub topic: ByteString,
    /// The key, which determines the partition by [`partition_of`](crate::partition_of).
    pub key: Bytes,
    /// Its headers, in order.
    pub headers: Vec<(ByteString, Bytes)>,
    /// Its body.
    pub body: Bytes,
    /// The time of the event.
    pub time: Timestamp,
    /// The sequence number of the event in the log. Numbers ascend within a batch and from batch to batch.
    pub sequence_number: SequenceNumber,
}

/// A message that was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// Its partition.
    pub at: TopicPartition,
    /// Its offset in the partition.
    pub offset: u64,
    /// Its key; `None` only for messages of other producers.
    pub key: Option<Bytes>,
    /// Its time according to the broker.
    pub time: Timestamp,
    /// Its content.
    pub content: Content,
}

/// The content of a message.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// The event itself, where topics are views of the log.
    Event(Box<RecordedEvent>),
    /// Bytes that a relay or another producer encoded; the reader decodes and checks them.
    Encoded {
        /// The headers, in order.
        headers: Vec<(ByteString, Bytes)>,
        /// The body; empty if the producer sent none.
        body: Bytes,
    },
}

/// A query for one page of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadMessages {
    /// The partition.
    pub at: TopicPartition,
    /// The offset to start at.
    pub from: u64,
    /// The maximum number of messages in the page.
    pub limit: usize,
}

/// A page of a partition.
#[derive(Debug, Clone, PartialEq)]
pub struct MessagePage {
    /// The messages, with ascending offsets.
    pub messages: Vec<Message>,
    /// Where the next page begins.
    pub next: u64,
    /// The offset after the partition's last message.
    pub head: u64,
}
