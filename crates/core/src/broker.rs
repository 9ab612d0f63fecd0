//! The broker port: what carries events to consumers, and the contract that every broker keeps.

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
/// There are two kinds. An *external broker* (Kafka) holds copies that a relay publishes. Where *topics are views of the log* (the
/// embedded broker), nothing is copied: a topic is the events of its type, an offset is a sequence number, and retention limits what is
/// visible. Callers see the difference in two places. [`publisher`](Self::publisher) returns `None` for views, and groups do not
/// [`join`](Self::join) there, because the processor engine follows the log itself.
///
/// An implementation MUST keep these promises; the conformance suite tests each of them on both kinds.
///
/// - **Order.** Messages of a partition have ascending offsets, which never change and may have gaps. Messages of one key are in one
///   partition ([`partition_of`](crate::partition_of)) as long as the number of partitions does not change.
/// - **Exactly once for committed readers.** A batch of a [`Publisher`] becomes visible together with its position or not at all, and
///   every read through this port sees committed batches only.
/// - **Groups are independent.** Each group sees every message of its topics, whatever other groups do.
/// - **Nothing is altered silently.** An existing topic keeps its partitions and retention until [`alter_topic`](Self::alter_topic)
///   changes them.
///
/// One value serves one tenant. It is cheap to clone behind an `Arc`, and all calls may run concurrently. A call that cannot reach the
/// broker fails with [`BrokerError::Unavailable`] within seconds; callers retry with back-off. Dropping a future is safe.
#[async_trait]
pub trait Broker: Send + Sync + 'static {
    /// Creates a topic, unless one with this name exists, whatever its partitions and retention. Returns whether it was created.
    ///
    /// # Errors
    /// See [`BrokerError`].
    async fn create_topic(&self, topic: &TopicDefinition) -> Result<bool, BrokerError>;

    /// Returns those of the named topics that exist, ordered by name; with `None`, all topics of this tenant.
    ///
    /// # Errors
    /// See [`BrokerError`].
    async fn topics(&self, names: Option<&[ByteString]>) -> Result<Vec<TopicState>, BrokerError>;

    /// Changes an existing topic's partitions and retention to those of its definition. Called only on an operator's request.
    ///
    /// # Errors
    /// [`BrokerError::UnknownTopic`]; [`BrokerError::Refused`] for fewer partitions than the topic has, which no broker supports.
    async fn alter_topic(&self, topic: &TopicDefinition) -> Result<(), BrokerError>;

    /// Opens the publisher of a store. It fences every other publisher of the same store whose incarnation is the same or earlier: none of
    /// their batches becomes visible after this returns. Returns `None` where topics are views of the log and there is nothing to publish.
    ///
    /// # Errors
    /// [`BrokerError::Fenced`] if a publisher of a later incarnation has published; see [`BrokerError`] for the others.
    async fn publisher(&self, identity: &PublisherIdentity) -> Result<Option<Box<dyn Publisher>>, BrokerError>;

    /// Joins a group. No partition is assigned until [`GroupMember::next`] reports it.
    ///
    /// # Errors
    /// [`BrokerError::UnknownTopic`] if a topic does not exist; [`BrokerError::Refused`] where topics are views of the log; see
    /// [`BrokerError`] for the others.
    async fn join(&self, subscription: GroupSubscription) -> Result<Box<dyn GroupMember>, BrokerError>;

    /// Returns the committed offsets of a group, one entry for each partition that has one, ordered by topic and partition. Empty if the
    /// group has never committed.
    ///
    /// # Errors
    /// See [`BrokerError`].
    async fn group_offsets(&self, group: &str) -> Result<Vec<GroupOffset>, BrokerError>;

    /// Returns the groups that have committed offsets in a topic, by name, each with its lag. Empty where topics are views of the log,
    /// because no group joins there.
    ///
    /// # Errors
    /// See [`BrokerError`].
    async fn joined_groups(&self, topic: &str) -> Result<Vec<TopicGroup>, BrokerError>;

    /// Deletes the offsets of a group without members. An unknown group is not an error.
    ///
    /// # Errors
    /// [`BrokerError::Refused`] if it has members or is defined; see [`BrokerError`] for the others.
    async fn delete_group(&self, group: &str) -> Result<(), BrokerError>;

    /// Reads a page of one partition outside any group, starting at an offset. If older messages are no longer kept, the page starts with
    /// the oldest one that is. An empty page means that the end is reached.
    ///
    /// # Errors
    /// [`BrokerError::UnknownTopic`] also if the topic has no such partition; see [`BrokerError`] for the others.
    async fn read(&self, query: ReadMessages) -> Result<MessagePage, BrokerError>;
}

/// The current state of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicState {
    /// Its name.
    pub name: ByteString,
    /// How long its messages are kept, in milliseconds; `None` keeps them for ever.
    pub retention_ms: Option<u64>,
    /// The head of each partition, in order: the offset after its last message. There is one for each partition. Where topics are views of
    /// the log, each is the head of the log, from which the next offset of any partition is taken.
    pub heads: Vec<u64>,
}

impl TopicState {
    /// Returns the number of its partitions.
    pub fn partitions(&self) -> u32 {
        u32::try_from(self.heads.len()).unwrap_or(u32::MAX)
    }
}
