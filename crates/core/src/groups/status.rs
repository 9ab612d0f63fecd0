//! The state of groups, as the API returns it.

use serde::{Deserialize, Serialize};

use crate::handlers::HandlerStatus;
use crate::{ByteString, GroupStart};

/// The state of a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupStatus {
    /// Its topics, each with the group's lag.
    pub topics: Vec<GroupLag>,
    /// Where it began.
    pub start: GroupStart,
    /// The maximum number of keys in flight.
    pub in_flight: u32,
    /// The state of its processor: `lag` is the sum over its topics.
    #[serde(flatten)]
    pub processor: HandlerStatus,
}

/// The lag of a group in a topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupLag {
    /// The topic.
    pub topic: ByteString,
    /// The number of its messages that are not processed yet, counted up to 10,000.
    pub lag: u64,
}

/// A page of groups.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupPage {
    /// The groups, by name.
    pub items: Vec<GroupStatus>,
    /// The cursor of the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<ByteString>,
}
