//! The state of groups, as the API shows it.

use serde::{Deserialize, Serialize};

use crate::handlers::HandlerStatus;
use crate::{ByteString, GroupStart};

/// The state of a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupStatus {
    /// Its topics, each with how far behind the group is.
    pub topics: Vec<GroupLag>,
    /// Where it began.
    pub start: GroupStart,
    /// How many keys are in flight at most.
    pub in_flight: u32,
    /// The state of its processor: `lag` is the sum over its topics.
    #[serde(flatten)]
    pub processor: HandlerStatus,
}

/// How far a group is behind in a topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupLag {
    /// The topic.
    pub topic: ByteString,
    /// How many of its messages are not done; counted up to 10,000.
    pub lag: u64,
}

/// A page of groups.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupPage {
    /// The groups, by name.
    pub items: Vec<GroupStatus>,
    /// Where the next page begins; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<ByteString>,
}
