//! The content of queues, for people and metrics.

use bytestring::ByteString;
use serde::{Deserialize, Serialize};

use super::{ItemState, ItemStatus, QueueDefinition};
use crate::Timestamp;

/// The number of pending items, by priority.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingCounts {
    /// Critical items.
    pub critical: u64,
    /// Items of high priority.
    pub high: u64,
    /// Items of normal priority.
    pub normal: u64,
    /// Items of low priority.
    pub low: u64,
    /// Background items.
    pub background: u64,
}

impl PendingCounts {
    /// Creates counts in the order from the highest priority to the lowest.
    pub fn from_highest([critical, high, normal, low, background]: [u64; 5]) -> Self {
        Self { critical, high, normal, low, background }
    }

    /// Returns the counts in the order from the highest priority to the lowest.
    pub fn highest_first(&self) -> [u64; 5] {
        [self.critical, self.high, self.normal, self.low, self.background]
    }
}

/// The number of items of a queue, and totals since it was created.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueCounts {
    /// The number of active items.
    pub active: u64,
    /// The number of pending items, by priority.
    pub pending: PendingCounts,
    /// The number of users with pending items, summed over the priorities.
    pub users: u64,
    /// When the oldest pending item was enqueued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest: Option<Timestamp>,
    /// The number of items that were enqueued.
    pub enqueued_total: u64,
    /// The number of hand-outs.
    pub taken_total: u64,
    /// The number of items whose work was done.
    pub done_total: u64,
    /// The number of leases that ended without being renewed.
    pub expired_total: u64,
    /// The number of items that were returned to the queue.
    pub released_total: u64,
    /// The number of items that were cancelled.
    pub cancelled_total: u64,
    /// The number of items that were dropped because their payloads were lost.
    pub lost_total: u64,
}

/// A queue: its definition and its counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueStatus {
    /// Its definition.
    #[serde(flatten)]
    pub definition: QueueDefinition,
    /// Its counts.
    #[serde(flatten)]
    pub counts: QueueCounts,
    /// How long the oldest pending item has waited, in seconds; 0 if nothing is pending.
    pub oldest_seconds: u64,
}

/// A page of queues.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuePage {
    /// The queues, in the order of their names.
    pub items: Vec<QueueStatus>,
    /// The cursor of the next page; `None` at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<ByteString>,
}

/// Selects the items to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ItemsQuery {
    /// Only items in this state.
    pub state: Option<ItemState>,
    /// Only items of this user.
    pub user: Option<ByteString>,
    /// The cursor of the previous page.
    pub after: Option<ByteString>,
    /// The length of the page; 0 means the default.
    pub limit: usize,
}

impl ItemsQuery {
    /// Returns whether an item is selected.
    pub fn admits(&self, item: &ItemStatus) -> bool {
        self.state.is_none_or(|state| state == item.state) && self.user.as_ref().is_none_or(|user| *user == item.user)
    }

    /// Returns the length of the page.
    pub fn page_length(&self) -> usize {
        match self.limit {
            0 => crate::limits::PAGE_DEFAULT,
            limit => limit.min(crate::limits::PAGE_MAX),
        }
    }

    /// Returns the sequence number in the queue after which the page begins; 0 for the first page.
    ///
    /// # Errors
    /// `invalid_query` if the text is not a cursor.
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
    /// The cursor of the next page; `None` at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<ByteString>,
}
