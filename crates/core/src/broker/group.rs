//! What a group of consumers needs of a broker.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::{BrokerError, Message, TopicPartition};
use crate::ByteString;

/// What a member of a group asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupSubscription {
    /// The group.
    pub group: ByteString,
    /// Its topics. All members of a group name the same.
    pub topics: Vec<ByteString>,
    /// Where a partition begins that the group has no offset of.
    pub start: GroupStart,
    /// Names this member, for messages to people; unique within the group.
    pub member: String,
}

/// Where a group begins in a partition that it has no offset of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupStart {
    /// With the oldest message that is kept.
    #[default]
    Earliest,
    /// With the first message after the group joined.
    Latest,
}

/// A position in a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionOffset {
    /// The partition.
    pub at: TopicPartition,
    /// The offset of the next message to process: everything below is done.
    pub offset: u64,
}

/// A partition that a member is to process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assigned {
    /// The partition.
    pub at: TopicPartition,
    /// The offset of the first message that will be delivered: the committed one, or where the group begins.
    pub offset: u64,
}

/// What happens to a member.
#[derive(Debug, Clone, PartialEq)]
pub enum GroupStep {
    /// These partitions are its own from now on, beside those it has. Their messages follow.
    Assigned(Vec<Assigned>),
    /// These partitions will move to another member. It commits what is done, ends the rest, and then releases them. No messages of
    /// theirs follow.
    Revoked(Vec<TopicPartition>),
    /// These partitions are another member's already, because this one was silent for too long. Nothing can be committed for them.
    Lost(Vec<TopicPartition>),
    /// Messages of its partitions: at least one, those of a partition with ascending offsets. Each is delivered once for each time its
    /// partition is assigned.
    Messages(Vec<Message>),
}

/// How far a group is in a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupOffset {
    /// The partition.
    pub at: TopicPartition,
    /// The committed offset: everything below is done.
    pub offset: u64,
    /// The offset after the partition's last message.
    pub head: u64,
    /// How many messages are from `offset` on. Where offsets have gaps, those that exist are counted, up to 10,000.
    pub lag: u64,
}

/// A member of a group.
///
/// - **One owner.** A partition is assigned to one member of the group at a time. It moves on only after its member released it, left, or
///   was silent for too long. Any number of members may have none.
/// - **At least once.** A partition that is assigned begins at the committed offset, so only what nobody committed is delivered again.
/// - **Nothing is committed by itself.** An offset is committed by [`commit`](Self::commit) alone, in any number and as rarely as the
///   caller likes. It is durable when that returns.
///
/// A member tells the broker that it is alive for as long as it exists, whether or not it is asked for messages. Dropping it is leaving
/// without saying so.
#[async_trait]
pub trait GroupMember: Send {
    /// Waits for the next step, with at most `room` messages. With room for none, waits for what happens to the assignment alone. Steps
    /// that concern the assignment come before messages. Cancelling loses nothing.
    ///
    /// # Errors
    /// See [`BrokerError`]. After [`BrokerError::Unavailable`] it can be called again.
    async fn next(&mut self, room: usize) -> Result<GroupStep, BrokerError>;

    /// Commits offsets of partitions that it has, or that were revoked and not released yet.
    ///
    /// # Errors
    /// [`BrokerError::NotAssigned`], and then none of them is committed; otherwise see [`BrokerError`].
    async fn commit(&mut self, offsets: &[PartitionOffset]) -> Result<(), BrokerError>;

    /// Lets revoked partitions go to other members. It returns before they have them.
    ///
    /// # Errors
    /// See [`BrokerError`].
    async fn release(&mut self, partitions: &[TopicPartition]) -> Result<(), BrokerError>;

    /// Leaves the group, so that others get its partitions at once.
    ///
    /// # Errors
    /// See [`BrokerError`].
    async fn leave(self: Box<Self>) -> Result<(), BrokerError>;
}
