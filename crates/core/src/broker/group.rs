//! The part of the broker port that consumer groups use.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::{BrokerError, Message, TopicPartition};
use crate::ByteString;

/// What a member needs to join a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupSubscription {
    /// The group.
    pub group: ByteString,
    /// Its topics, which must be the same for all members of a group.
    pub topics: Vec<ByteString>,
    /// Where to start in a partition in which the group has no offset.
    pub start: GroupStart,
    /// The name of this member in messages to people; unique within the group.
    pub member: String,
}

/// Where a group starts in a partition in which it has no offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupStart {
    /// At the oldest message that is kept.
    #[default]
    Earliest,
    /// At the first message after the group joined.
    Latest,
}

/// A position in a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionOffset {
    /// The partition.
    pub at: TopicPartition,
    /// The offset of the next message to process: everything below it is done.
    pub offset: u64,
}

/// A partition that is assigned to a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assigned {
    /// The partition.
    pub at: TopicPartition,
    /// The offset of the first message that will be delivered: the committed offset, or the group's start.
    pub offset: u64,
}

/// A change of a member's assignment, or messages for it.
#[derive(Debug, Clone, PartialEq)]
pub enum GroupStep {
    /// These partitions are assigned to the member in addition to those it has. Their messages follow.
    Assigned(Vec<Assigned>),
    /// These partitions will move to another member. The member commits what is done, stops the rest, and then releases them. No more of
    /// their messages follow.
    Revoked(Vec<TopicPartition>),
    /// These partitions already belong to another member, because this one was silent for too long. Their offsets can no longer be
    /// committed.
    Lost(Vec<TopicPartition>),
    /// One or more messages of the member's partitions, those of a partition with ascending offsets. Each is delivered once per assignment
    /// of its partition.
    Messages(Vec<Message>),
}

/// A group's progress in a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupOffset {
    /// The partition.
    pub at: TopicPartition,
    /// The committed offset: everything below it is done.
    pub offset: u64,
    /// The offset after the partition's last message.
    pub head: u64,
    /// The number of messages from `offset` on. If offsets have gaps, existing messages are counted, up to 10,000.
    pub lag: u64,
}

/// A member of a group.
///
/// - **One owner.** A partition is assigned to one member of the group at a time. It moves only after its member has released it, left, or
///   been silent for too long. Members may be left without a partition.
/// - **At least once.** An assigned partition starts at the committed offset, so only messages that nobody committed are delivered again.
/// - **No automatic commits.** Only [`commit`](Self::commit) commits offsets, as many at once and as rarely as the caller likes. They are
///   durable when it returns.
///
/// A member sends heartbeats for as long as it exists, whether or not its caller asks for messages. Dropping it leaves the group without
/// notice.
#[async_trait]
pub trait GroupMember: Send {
    /// Waits for the next step, which has at most `room` messages. With a `room` of 0, waits for changes of the assignment only. Changes
    /// of the assignment come before messages. Cancelling loses nothing.
    ///
    /// # Errors
    /// See [`BrokerError`]. After [`BrokerError::Unavailable`], it can be called again.
    async fn next(&mut self, room: usize) -> Result<GroupStep, BrokerError>;

    /// Commits offsets of partitions that the member has, or that were revoked and not yet released.
    ///
    /// # Errors
    /// [`BrokerError::NotAssigned`], in which case no offset is committed; see [`BrokerError`] for the others.
    async fn commit(&mut self, offsets: &[PartitionOffset]) -> Result<(), BrokerError>;

    /// Releases revoked partitions to other members. Returns before those have them.
    ///
    /// # Errors
    /// See [`BrokerError`].
    async fn release(&mut self, partitions: &[TopicPartition]) -> Result<(), BrokerError>;

    /// Leaves the group, so that other members get its partitions at once.
    ///
    /// # Errors
    /// See [`BrokerError`].
    async fn leave(self: Box<Self>) -> Result<(), BrokerError>;
}
