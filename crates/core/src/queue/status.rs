//! What a queue holds, for people and metrics.

use bytestring::ByteString;
use serde::{Deserialize, Serialize};

use super::{ItemState, ItemStatus, QueueDefinition};
use crate::Timestamp;

/// How many items are pending, by priority.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingCounts {
    /// Of the highest priority.
    pub critical: u64,
    /// Of high priority.
    pub high: u64,
    /// Of normal priority.
    pub normal: u64,
    /// Of low priority.
    pub low: u64,
    /// Of the lowest priority.
    pub background: u64,
}

impl PendingCounts {
    /// The counts from the highest priority to the lowest.
    pub fn from_highest([critical, high, normal, low, background]: [u64; 5]) -> Self {
        Self { critical, high, normal, low, background }
    }

    /// The counts from the highest priority to the lowest.
    pub fn highest_first(&self) -> [u64; 5] {
        [self.critical, self.high, self.normal, self.low, self.background]
    }
}

/// What a queue holds, and what happened to its items since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueCounts {
    /// How many items are active.
    pub active: u64,
    /// How many items are pending, by priority.
    pub pending: PendingCounts,
    /// How many users have pending items of one priority at least, summed over the priorities.
    pub users: u64,
    /// When the oldest pending item was enqueued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest: Option<Timestamp>,
    /// Items that were enqueued.
    pub enqueued_total: u64,
    /// Hand-outs.
    pub taken_total: u64,
    /// Items whose work was done.
    pub done_total: u64,
    /// Leases that ended without being renewed.
    pub expired_total: u64,
    /// Items that were returned.
    pub released_total: u64,
    /// Items that were cancelled.
    pub cancelled_total: u64,
    /// Items that were dropped because their payloads were gone.
    pub lost_total: u64,
}

/// A queue: its definition, and what it holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueStatus {
    /// Its definition.
    #[serde(flatten)]
    pub definition: QueueDefinition,
    /// What it holds.
    #[serde(flatten)]
    pub counts: QueueCounts,
    /// How long the oldest pending item has waited, in seconds; 0 when nothing is pending.
    pub oldest_seconds: u64,
}

/// A page of queues.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuePage {
    /// The queues, in the order of their names.
    pub items: Vec<QueueStatus>,
    /// Where the next page begins; none at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<ByteString>,
}

/// Which items are listed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ItemsQuery {
    /// Only those that are there.
    pub state: Option<ItemState>,
    /// Only those of this user.
    pub user: Option<ByteString>,
    /// The cursor of the page before.
    pub after: Option<ByteString>,
    /// The length of the page; 0 is the usual one.
    pub limit: usize,
}

impl ItemsQuery {
    /// Whether an item is listed.
    pub fn admits(&self, item: &ItemStatus) -> bool {
        self.state.is_none_or(|state| state == item.state) && self.user.as_ref().is_none_or(|user| *user == item.user)
    }

    /// The length of the page.
    pub fn page_length(&self) -> usize {
        match self.limit {
            0 => crate::limits::PAGE_DEFAULT,
            limit => limit.min(crate::limits::PAGE_MAX),
        }
    }

    /// The number in the queue after which the page begins; 0 at the beginning.
    ///
    /// # Errors
    /// `invalid_query` for what is no cursor.
    pub fn start(&self) -> Result<u64, crate::Invalid> {
        let Some(cursor) = &self.after else { return Ok(0) };
        let wrong = |_| {
            let message = format!("{cursor:?} is not the cursor of a page of items");
            crate::Invalid::new(crate::Code::InvalidQuery, "cursor", message)
        };
        cursor.parse().map_err(wrong)
    }
}

/// A page of items.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemPage {
    /// The items, in the order in which they were enqueued.
    pub items: Vec<ItemStatus>,
    /// Where the next page begins; none at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<ByteString>,
}
