//! The topics of a tenant, as operators see them.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::TopicDifference;
use crate::handlers::Reason;
use crate::{BrokerError, ByteString};

/// The topics of one tenant: one for each registered event type, with the settings of its category.
///
/// Over HTTP, a topic is created as soon as its type is registered. Missing ones are created when topics are listed, when a group names
/// them, and when a relay starts. Only [`apply`](Self::apply) changes an existing topic; until then its differences are reported.
#[async_trait]
pub trait Topics: Send + Sync + 'static {
    /// Lists topics by name: those after `after`, at most `limit`. The list omits their groups.
    ///
    /// # Errors
    /// See [`BrokerError`].
    async fn list(&self, after: Option<&str>, limit: usize) -> Result<TopicPage, BrokerError>;

    /// Returns a topic with the groups that read it.
    ///
    /// # Errors
    /// [`BrokerError::UnknownTopic`]; otherwise see [`BrokerError`].
    async fn get(&self, name: &str) -> Result<TopicStatus, BrokerError>;

    /// Applies the configured settings to a topic as far as possible, and creates it if it is missing.
    ///
    /// # Errors
    /// [`BrokerError::UnknownTopic`]; [`BrokerError::Refused`] for a difference that cannot be applied, in which case nothing is changed.
    async fn apply(&self, name: &str, reason: Reason) -> Result<TopicStatus, BrokerError>;

    /// Creates the missing topics of registered types.
    ///
    /// # Errors
    /// See [`BrokerError`].
    async fn create_missing(&self) -> Result<(), BrokerError>;
}

/// A topic as operators see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TopicStatus {
    /// Its name.
    pub name: ByteString,
    /// The event type that it carries.
    pub event_type: ByteString,
    /// Its category.
    pub category: ByteString,
    /// The number of its partitions.
    pub partitions: u32,
    /// How long its messages are kept, in milliseconds; `None` means forever.
    pub retention_ms: Option<u64>,
    /// The head of each partition: the offset after its last message.
    pub head: Vec<u64>,
    /// The groups that read it, by name.
    #[serde(default)]
    pub groups: Vec<TopicGroup>,
    /// How it differs from its configuration.
    #[serde(default)]
    pub differences: Vec<TopicDifference>,
}

/// A group that reads a topic.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TopicGroup {
    /// The group.
    pub group: ByteString,
    /// The number of messages of the topic that the group has not processed.
    pub lag: u64,
}

/// A page of topics.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TopicPage {
    /// The topics, by name.
    pub items: Vec<TopicStatus>,
    /// Where the next page begins; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<ByteString>,
}
