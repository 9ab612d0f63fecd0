//! The port of a broker: what carries events to consumers. The contract every broker keeps.

mod error;
mod group;
mod message;
mod publisher;

use async_trait::async_trait;

use crate::{ByteString, TopicDefinition, TopicGroup};

pub use error::BrokerError;
pub use group::{Assigned, GroupMember, GroupOffset, GroupStart, GroupStep, GroupSubscription, PartitionOffset};
pub use message::{Content, Message, MessagePage, NewMessage, ReadMessages, TopicPartition};
pub use publisher::{Fork, Publisher, PublisherIdentity, RelayPosition};

/// A broker: topics with partitions, one for each event type, written by a relay and read by groups of consumers.
///
/// ```text
///                       topic order_placed                      group billing         position of each partition
///  log ─▶ relay ─▶ ┌ partition 0  │ 0 │ 3 │ 7 │ ─▶ member 1 ─▶ keys in flight ─▶ committed offset
///     (not where   └ partition 1  │ 1 │ 2 │      ─▶ member 2
///      topics are views of the log)
/// ```
///
/// There are two kinds. A *broker of its own* (Kafka) holds copies that a relay publishes. Where *topics are views of the log* (the
/// embedded broker) nothing is copied: a topic is the events of its type, an offset is a sequence number, and retention bounds what is
/// shown. Callers see the difference in two places: [`publisher`](Self::publisher) returns none for views, and groups do not
/// [`join`](Self::join) there, because the processor engine follows the log itself.
///
/// An implementation MUST keep these promises; the conformance suite tests each of them on both kinds.
///
/// - **Order.** Messages of one partition have ascending offsets, without a change afterwards; offsets may have gaps. Messages of one key
///   are in one partition ([`partition_of`](crate::partition_of)) as long as the number of partitions stays.
/// - **Exactly once for committed readers.** A batch of a [`Publisher`] becomes visible together with its position or not at all, and
///   every read here sees committed batches only.
/// - **Groups are independent.** Each group sees every message of its topics, whatever other groups do.
/// - **Nothing is altered silently.** An existing topic keeps its numbers until [`alter_topic`](Self::alter_topic).
///
/// One value serves one tenant. It is cheap to clone behind an `Arc`, and every call may be made at the same time as any other. A call
/// that cannot reach the broker is [`BrokerError::Unavailable`] within seconds; callers retry with back-off. Dropping a future is safe.
#[async_trait]
pub trait Broker: Send + Sync + 'static {
    /// Creates a topic with these numbers unless there is one of this name, whatever numbers that has. Returns whether it was created.
    ///
    /// # Errors
    /// See [`BrokerError`].
    async fn create_topic(&self, topic: &TopicDefinition) -> Result<bool, BrokerError>;

    /// Returns the topics of these names that exist, in the order of their names; all topics of this tenant for none.
    ///
    /// # Errors
    /// See [`BrokerError`].
    async fn topics(&self, names: Option<&[ByteString]>) -> Result<Vec<TopicState>, BrokerError>;

    /// Gives an existing topic the numbers of its definition. Only an operator asks for that.
    ///
    /// # Errors
    /// [`BrokerError::UnknownTopic`]; [`BrokerError::Refused`] for fewer partitions than it has, which no broker can do.
    async fn alter_topic(&self, topic: &TopicDefinition) -> Result<(), BrokerError>;

    /// Opens the publisher of a store, and fences every other one of the same store whose incarnation is the same or earlier: none of
    /// their batches becomes visible after this returns. None where topics are views of the log, so that there is nothing to publish.
    ///
    /// # Errors
    /// [`BrokerError::Fenced`] when a publisher of a later incarnation has published; otherwise see [`BrokerError`].
    async fn publisher(&self, identity: &PublisherIdentity) -> Result<Option<Box<dyn Publisher>>, BrokerError>;

    /// Joins a group. Nothing is assigned until [`GroupMember::next`] says so.
    ///
    /// # Errors
    /// [`BrokerError::UnknownTopic`] when a topic does not exist; [`BrokerError::Refused`] where topics are views of the log; otherwise see
    /// [`BrokerError`].
    async fn join(&self, subscription: GroupSubscription) -> Result<Box<dyn GroupMember>, BrokerError>;

    /// Returns the offsets of a group: one entry for each partition of the topics that it has committed an offset of, in the order of
    /// topics and partitions. Empty for a group that never did.
    ///
    /// # Errors
    /// See [`BrokerError`].
    async fn group_offsets(&self, group: &str) -> Result<Vec<GroupOffset>, BrokerError>;

    /// Returns the groups that have committed offsets in a topic, by name, with how many of its messages each has not done. No group joins
    /// where topics are views of the log, so there are none.
    ///
    /// # Errors
    /// See [`BrokerError`].
    async fn joined_groups(&self, topic: &str) -> Result<Vec<TopicGroup>, BrokerError>;

    /// Deletes the offsets of a group without members. A group that is not known is no error.
    ///
    /// # Errors
    /// [`BrokerError::Refused`] while it has members, or is defined; otherwise see [`BrokerError`].
    async fn delete_group(&self, group: &str) -> Result<(), BrokerError>;

    /// Reads a page of one partition outside of any group, from an offset on. Reading from below the oldest message that is kept begins
    /// with that one. An empty page is the end.
    ///
    /// # Errors
    /// [`BrokerError::UnknownTopic`] also for a partition that the topic does not have; otherwise see [`BrokerError`].
    async fn read(&self, query: ReadMessages) -> Result<MessagePage, BrokerError>;
}

/// A topic as the broker has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicState {
    /// Its name.
    pub name: ByteString,
    /// How long its messages are kept, in milliseconds; none is without end.
    pub retention_ms: Option<u64>,
    /// The head of each partition, in order: the offset after its last message. Its length is the number of partitions. Where topics are
    /// views of the log, each is the head of the log, from which the next offset of any partition is taken.
    pub heads: Vec<u64>,
}

impl TopicState {
    /// The number of its partitions.
    pub fn partitions(&self) -> u32 {
        u32::try_from(self.heads.len()).unwrap_or(u32::MAX)
    }
}
