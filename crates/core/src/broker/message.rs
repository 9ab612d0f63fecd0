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

/// A message that a relay publishes. The relay has encoded the event; a broker knows nothing of envelopes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMessage {
    /// The topic, which exists.
    pub topic: ByteString,
    /// What decides its partition, by [`partition_of`](crate::partition_of).
    pub key: Bytes,
    /// Its headers, in order.
    pub headers: Vec<(ByteString, Bytes)>,
    /// Its body.
    pub body: Bytes,
    /// The time of the event.
    pub time: Timestamp,
    /// The number of the event in the log. Numbers ascend within a batch and from batch to batch.
    pub sequence_number: SequenceNumber,
}

/// A message as it is read.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// Where it is.
    pub at: TopicPartition,
    /// Its offset there.
    pub offset: u64,
    /// Its key; none only for messages of other producers.
    pub key: Option<Bytes>,
    /// The time that the broker has of it.
    pub time: Timestamp,
    /// What it carries.
    pub content: Content,
}

/// What a message carries.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// The event itself, where topics are views of the log.
    Event(Box<RecordedEvent>),
    /// Bytes that a relay or another producer encoded; whoever reads them decodes and checks them.
    Encoded {
        /// The headers, in order.
        headers: Vec<(ByteString, Bytes)>,
        /// The body; empty where the producer sent none.
        body: Bytes,
    },
}

/// What to read of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadMessages {
    /// The partition.
    pub at: TopicPartition,
    /// The offset to begin at.
    pub from: u64,
    /// Most messages of the page.
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
