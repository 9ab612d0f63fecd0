//! Items of a queue, in the form in which callers send and receive them.

use std::time::Duration;

use bytestring::ByteString;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::definition::DAY_MS;
use super::{QueueDefinition, QueuePriority};
use crate::{Code, Invalid, Timestamp, limits, valid_id};

/// An item to be enqueued.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewItem {
    /// Its id, unique among the pending and active items of the queue.
    pub id: ByteString,
    /// Its priority.
    #[serde(default)]
    pub priority: QueuePriority,
    /// The user to whom it belongs, for fair shares; may be empty.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub user: ByteString,
    /// The data for its worker.
    #[serde(default)]
    pub payload: Value,
}

impl NewItem {
    /// Creates an item of normal priority without a user or a payload.
    pub fn new(id: impl Into<ByteString>) -> Self {
        Self { id: id.into(), priority: QueuePriority::Normal, user: ByteString::new(), payload: Value::Null }
    }

    /// Sets the priority.
    #[must_use]
    pub fn priority(self, priority: QueuePriority) -> Self {
        Self { priority, ..self }
    }

    /// Sets the user.
    #[must_use]
    pub fn user(self, user: impl Into<ByteString>) -> Self {
        Self { user: user.into(), ..self }
    }

    /// Sets the payload.
    #[must_use]
    pub fn payload(self, payload: Value) -> Self {
        Self { payload, ..self }
    }

    /// Checks the id, the user and the size of the payload.
    ///
    /// # Errors
    /// `invalid_id`; `invalid_body` for a payload that is too large.
    pub fn validate(&self) -> Result<(), Invalid> {
        valid_id("id", &self.id)?;
        if !self.user.is_empty() {
            valid_id("user", &self.user)?;
        }
        let bytes = self.payload_text().len();
        if bytes > limits::QUEUE_PAYLOAD_BYTES_MAX {
            let most = limits::QUEUE_PAYLOAD_BYTES_MAX;
            let message = format!(
                "has {bytes} bytes; at most {most} are allowed, so store larger content elsewhere and enqueue a reference"
            );
            return Err(Invalid::new(Code::InvalidBody, "payload", message));
        }
        Ok(())
    }

    /// Returns the payload as JSON text, the form in which adapters store it.
    pub fn payload_text(&self) -> String {
        self.payload.to_string()
    }
}

fn is_empty(text: &ByteString) -> bool {
    text.is_empty()
}

/// The result of enqueueing an item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enqueued {
    /// Its id.
    pub id: ByteString,
    /// Whether the item already existed, so that nothing was changed.
    pub duplicate: bool,
    /// Whether it is pending or active.
    pub state: ItemState,
    /// The number of pending items of its priority that were enqueued before it; `None` for an active item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
}

/// The state of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ItemState {
    /// It waits for a worker.
    Pending,
    /// A worker has it under a lease.
    Active,
}

/// An item of a queue, without its payload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemStatus {
    /// Its id.
    pub id: ByteString,
    /// Its state.
    pub state: ItemState,
    /// Its priority.
    pub priority: QueuePriority,
    /// The user to whom it belongs; may be empty.
    pub user: ByteString,
    /// When it was enqueued.
    pub enqueued_at: Timestamp,
    /// The number of hand-outs.
    pub attempt: u32,
    /// The worker that took it last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<ByteString>,
    /// When its lease ends, while it is active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_until: Option<Timestamp>,
}

/// The body of `POST /v1/queues/{queue}/take`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TakeBody {
    /// The most items to take, 1–1,000.
    pub max: usize,
    /// The length of the leases; the queue's default if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
    /// The worker that takes them, for people.
    pub worker: ByteString,
}

impl Default for TakeBody {
    fn default() -> Self {
        Self { max: 1, lease_ms: None, worker: ByteString::new() }
    }
}

impl TakeBody {
    /// Takes up to this many items.
    pub fn up_to(max: usize) -> Self {
        Self { max, ..Self::default() }
    }

    /// Checks the numbers and the worker's name, and returns the length of the leases.
    ///
    /// # Errors
    /// `invalid_body` with the field.
    pub fn validate(&self, queue: &QueueDefinition) -> Result<Duration, Invalid> {
        if !(1..=limits::PAGE_MAX).contains(&self.max) {
            let message = format!("{} is not between 1 and {}", self.max, limits::PAGE_MAX);
            return Err(Invalid::new(Code::InvalidBody, "max", message));
        }
        if !self.worker.is_empty() {
            valid_id("worker", &self.worker)?;
        }
        lease(self.lease_ms, queue)
    }
}

fn lease(named: Option<u64>, queue: &QueueDefinition) -> Result<Duration, Invalid> {
    let millis = named.unwrap_or(queue.lease_ms);
    if (1..=DAY_MS).contains(&millis) {
        return Ok(Duration::from_millis(millis));
    }
    Err(Invalid::new(Code::InvalidBody, "lease_ms", format!("{millis} is not between 1 and {DAY_MS}")))
}

/// The result of taking items.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Taken {
    /// The items, in the order in which they were chosen; empty if nothing is pending or the cap is reached.
    pub items: Vec<TakenItem>,
    /// The ids of items that were dropped because their payloads were lost.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<ByteString>,
}

/// An item that was handed out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TakenItem {
    /// Its id.
    pub id: ByteString,
    /// Identifies this hand-out in renewals and settlements.
    pub token: ByteString,
    /// Its priority.
    pub priority: QueuePriority,
    /// The user to whom it belongs; may be empty.
    pub user: ByteString,
    /// The data that was enqueued with it.
    pub payload: Value,
    /// When it was enqueued.
    pub enqueued_at: Timestamp,
    /// The number of hand-outs, including this one.
    pub attempt: u32,
    /// When the lease ends.
    pub lease_until: Timestamp,
}

impl TakenItem {
    /// Returns a reference to this hand-out.
    pub fn reference(&self) -> ItemRef {
        ItemRef { id: self.id.clone(), token: Some(self.token.clone()) }
    }
}

/// A reference to an item and one of its hand-outs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ItemRef {
    /// Its id.
    pub id: ByteString,
    /// The token of the hand-out; without it, the current hand-out to any worker is meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<ByteString>,
}

impl ItemRef {
    /// Refers to the current hand-out of an item.
    pub fn current(id: impl Into<ByteString>) -> Self {
        Self { id: id.into(), token: None }
    }
}

/// The body of `POST /v1/queues/{queue}/{done|release}`: several items, or one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ItemsBody {
    /// The items.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<ItemRef>,
    /// The id, if there is only one item.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<ByteString>,
    /// Its token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<ByteString>,
}

impl ItemsBody {
    /// Refers to several items.
    pub fn of(items: impl IntoIterator<Item = ItemRef>) -> Self {
        Self { items: items.into_iter().collect(), id: None, token: None }
    }

    /// Returns the items that the body names.
    ///
    /// # Errors
    /// `invalid_body` if none or too many are named.
    pub fn named(self) -> Result<Vec<ItemRef>, Invalid> {
        named(self.items, self.id, self.token)
    }
}

/// The body of `POST /v1/queues/{queue}/renew`: several items, or one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RenewBody {
    /// The items.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<ItemRef>,
    /// The id, if there is only one item.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<ByteString>,
    /// Its token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<ByteString>,
    /// The length of the leases from now; the queue's default if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
}

impl RenewBody {
    /// Refers to several items.
    pub fn of(items: impl IntoIterator<Item = ItemRef>, lease_ms: u64) -> Self {
        Self { items: items.into_iter().collect(), id: None, token: None, lease_ms: Some(lease_ms) }
    }

    /// Returns the items that the body names, and the length of their leases.
    ///
    /// # Errors
    /// `invalid_body` if none or too many are named, or if the lease is too long.
    pub fn named(self, queue: &QueueDefinition) -> Result<(Vec<ItemRef>, Duration), Invalid> {
        let lease = lease(self.lease_ms, queue)?;
        Ok((named(self.items, self.id, self.token)?, lease))
    }
}

fn named(mut items: Vec<ItemRef>, id: Option<ByteString>, token: Option<ByteString>) -> Result<Vec<ItemRef>, Invalid> {
    items.extend(id.map(|id| ItemRef { id, token }));
    if (1..=limits::PAGE_MAX).contains(&items.len()) {
        return Ok(items);
    }
    let message = format!("names {} items; name 1 to {}, or give `id`", items.len(), limits::PAGE_MAX);
    Err(Invalid::new(Code::InvalidBody, "items", message))
}

/// The result for one item of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemResult {
    /// Its id.
    pub id: ByteString,
    /// Whether the item is now in the state that the caller requested.
    pub accepted: bool,
    /// Whether this request changed it.
    pub changed: bool,
    /// Why it was not accepted: `lease_lost`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ByteString>,
    /// When its lease ends, after a renewal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_until: Option<Timestamp>,
}

impl ItemResult {
    /// Returns the result of a request that was accepted.
    pub fn accepted(id: impl Into<ByteString>, changed: bool) -> Self {
        Self { id: id.into(), accepted: true, changed, error: None, lease_until: None }
    }

    /// Returns the result for a caller that no longer has the item.
    pub fn lost(id: impl Into<ByteString>) -> Self {
        let error = Some(ByteString::from_static("lease_lost"));
        Self { id: id.into(), accepted: false, changed: false, error, lease_until: None }
    }

    /// Returns the result of a renewal, with the new end of the lease.
    pub fn renewed(id: impl Into<ByteString>, until: Timestamp) -> Self {
        Self { lease_until: Some(until), ..Self::accepted(id, true) }
    }
}

/// The body of `PATCH /v1/queues/{queue}/items/{id}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriorityBody {
    /// The new priority.
    pub priority: QueuePriority,
    /// The reason, for the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The operator, for the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// An item that was cancelled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelledItem {
    /// Its status before.
    pub cancelled: ItemStatus,
}
