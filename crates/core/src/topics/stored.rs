//! The stored form of topics that are views of the log.

use serde::{Deserialize, Serialize};

use super::TopicDefinition;
use crate::RecordType;

/// The collection of topics that are views of the log.
pub const TOPICS: &str = "annals-topics";

/// A topic that is a view of the log: its settings, without its messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicRecord {
    /// Its name.
    #[serde(rename = "_id")]
    pub name: String,
    /// Its category at the time when its settings were assigned.
    pub category: String,
    /// The number of its partitions.
    pub partitions: i64,
    /// How long its messages are shown, in milliseconds; null means forever.
    #[serde(rename = "retentionMs")]
    pub retention_ms: Option<i64>,
}

impl RecordType for TopicRecord {
    const COLLECTION: &'static str = TOPICS;
}

impl TopicRecord {
    /// Creates the record of a topic with these settings.
    pub fn of(topic: &TopicDefinition) -> Self {
        Self {
            name: topic.name.to_string(),
            category: topic.category.to_string(),
            partitions: topic.partitions.into(),
            retention_ms: topic.retention_ms.map(u64::cast_signed),
        }
    }

    /// Returns the number of its partitions, at least one.
    pub fn partitions(&self) -> u32 {
        u32::try_from(self.partitions).unwrap_or(1).max(1)
    }

    /// Returns how long its messages are shown, in milliseconds.
    pub fn retention_ms(&self) -> Option<u64> {
        self.retention_ms.map(i64::cast_unsigned)
    }
}
