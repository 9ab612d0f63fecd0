//! What is stored of topics that are views of the log.

use serde::{Deserialize, Serialize};

use super::TopicDefinition;
use crate::RecordType;

/// The collection of topics that are views of the log.
pub const TOPICS: &str = "annals-topics";

/// A topic that is a view of the log: its numbers, and nothing of its messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicRecord {
    /// Its name.
    #[serde(rename = "_id")]
    pub name: String,
    /// Its category when its numbers were given to it.
    pub category: String,
    /// The number of its partitions.
    pub partitions: i64,
    /// How long its messages are shown, in milliseconds; null is without end.
    #[serde(rename = "retentionMs")]
    pub retention_ms: Option<i64>,
}

impl RecordType for TopicRecord {
    const COLLECTION: &'static str = TOPICS;
}

impl TopicRecord {
    /// The record of a topic with these numbers.
    pub fn of(topic: &TopicDefinition) -> Self {
        Self {
            name: topic.name.to_string(),
            category: topic.category.to_string(),
            partitions: topic.partitions.into(),
            retention_ms: topic.retention_ms.map(u64::cast_signed),
        }
    }

    /// The number of its partitions; at least one.
    pub fn partitions(&self) -> u32 {
        u32::try_from(self.partitions).unwrap_or(1).max(1)
    }

    /// How long its messages are shown, in milliseconds.
    pub fn retention_ms(&self) -> Option<u64> {
        self.retention_ms.map(i64::cast_unsigned)
    }
}
