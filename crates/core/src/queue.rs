//! Work queues: items of five priorities, handed out under a cap, each with a lease.
//!
//! ```text
//!  enqueue ─▶ pending ──take──▶ active ──done──▶ gone
//!                ▲                │  ▲
//!                │                │  └─ renew
//!                └── release, or the lease ends ── keeps its age
//! ```

mod choice;
mod definition;
mod error;
mod item;
mod lane;
mod machine;
mod status;
mod stored;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use uuid::Uuid;

use crate::handlers::Reason;

pub use choice::{PASSED_MAX, TAG_UNIT};
pub use definition::{QueueBody, QueueDefinition, QueuePriority};
pub use error::QueueError;
pub use item::{
    CancelledItem, Enqueued, ItemRef, ItemResult, ItemState, ItemStatus, ItemsBody, NewItem, PriorityBody, RenewBody,
    TakeBody, Taken, TakenItem,
};
pub use machine::{Changes, Item, Ledger, Machine};
pub use status::{ItemPage, ItemsQuery, PendingCounts, QueueCounts, QueuePage, QueueStatus};
pub use stored::{
    QUEUE_ITEMS, QUEUE_LEDGERS, QUEUE_PAYLOADS, QUEUES, QueueItemRecord, QueueLedgerRecord, QueuePayloadRecord,
    QueueRecord, item_key,
};

/// The port of an adapter: holds the items of queues. It knows no definitions, so each call brings the one in force.
///
/// An implementation MUST keep these promises; the conformance suite tests each.
///
/// - **Cap.** At most [`cap`](QueueDefinition::cap) items of a queue are active, also among callers that race in several processes. A
///   lowered cap ends no lease: nothing is handed out until fewer are active.
/// - **Order.** Without [`fair`](QueueDefinition::fair) and [`ageing_ms`](QueueDefinition::ageing_ms), the order is strict: the highest
///   priority first, and inside one priority the item that was enqueued first.
/// - **Fair shares.** With `fair`, users of one priority are served in turn, whatever they have enqueued: when n users have items of a
///   priority, each of them gets one of every n hand-outs of that priority. A user's own items keep their order. Items without a user
///   belong to one user, whose name is empty.
/// - **Ageing.** With `ageing_ms`, at most [`PASSED_MAX`] hand-outs in a row pass over the priority of the oldest item once that item has
///   waited for so long. So no item waits forever, and higher priorities keep three quarters of the hand-outs.
/// - **One entry per id.** An id that is pending or active is not enqueued again: the answer is its entry, marked duplicate, which is
///   unchanged.
/// - **Leases.** An active item has a lease, which ends unless it is renewed. Its item is then pending again with the age that it had, and
///   its slot is free. The token of a hand-out is accepted until the item is handed out again: a worker that finishes late, before anybody
///   else has begun, has done the work. A lease that has ended is not renewed, because its slot may be taken.
/// - **Idempotent.** [`done`](Self::done) and [`release`](Self::release) of an id that is not there change nothing and succeed.
/// - **Age.** A change of priority keeps the age of an item: in its new priority it stands before items that were enqueued after it.
/// - **Lost payloads.** An item whose payload is gone is dropped, counted and reported by the [`take`](Self::take) that met it, which
///   hands out the next one instead.
///
/// Times are those of the caller's [`Clock`](crate::Clock). Dropping the future of a call does not undo it.
#[async_trait]
pub trait WorkQueue: Send + Sync + 'static {
    /// Adds an item, unless its id is pending or active.
    ///
    /// # Errors
    /// [`QueueError::Full`] when the queue or the user has too many pending items. Otherwise see [`QueueError`].
    async fn enqueue(&self, queue: &QueueDefinition, item: &NewItem) -> Result<Enqueued, QueueError>;

    /// Hands out up to `max` items with leases of this length.
    ///
    /// # Errors
    /// See [`QueueError`].
    async fn take(
        &self,
        queue: &QueueDefinition,
        max: usize,
        lease: Duration,
        worker: &str,
    ) -> Result<Taken, QueueError>;

    /// Extends leases: each ends this long after now.
    ///
    /// # Errors
    /// See [`QueueError`].
    async fn renew(
        &self,
        queue: &QueueDefinition,
        items: &[ItemRef],
        lease: Duration,
    ) -> Result<Vec<ItemResult>, QueueError>;

    /// Removes active items whose work is done, and frees their slots.
    ///
    /// # Errors
    /// See [`QueueError`].
    async fn done(&self, queue: &QueueDefinition, items: &[ItemRef]) -> Result<Vec<ItemResult>, QueueError>;

    /// Returns active items to the queue, with the age that they had, and frees their slots.
    ///
    /// # Errors
    /// See [`QueueError`].
    async fn release(&self, queue: &QueueDefinition, items: &[ItemRef]) -> Result<Vec<ItemResult>, QueueError>;

    /// Changes the priority of an item, which keeps its age.
    ///
    /// # Errors
    /// [`QueueError::UnknownItem`]. Otherwise see [`QueueError`].
    async fn prioritise(
        &self,
        queue: &QueueDefinition,
        id: &str,
        priority: QueuePriority,
    ) -> Result<ItemStatus, QueueError>;

    /// Removes an item, pending or active, and returns what it was.
    ///
    /// # Errors
    /// [`QueueError::UnknownItem`]. Otherwise see [`QueueError`].
    async fn cancel(&self, queue: &QueueDefinition, id: &str) -> Result<ItemStatus, QueueError>;

    /// Returns an item.
    ///
    /// # Errors
    /// [`QueueError::UnknownItem`]. Otherwise see [`QueueError`].
    async fn item(&self, queue: &QueueDefinition, id: &str) -> Result<ItemStatus, QueueError>;

    /// Returns one page of the items, in the order in which they were enqueued.
    ///
    /// # Errors
    /// See [`QueueError`].
    async fn items(&self, queue: &QueueDefinition, query: &ItemsQuery) -> Result<ItemPage, QueueError>;

    /// Counts the items of a queue, and what happened to them.
    ///
    /// # Errors
    /// See [`QueueError`].
    async fn counts(&self, queue: &QueueDefinition) -> Result<QueueCounts, QueueError>;

    /// Removes everything of a queue.
    ///
    /// # Errors
    /// See [`QueueError`].
    async fn clear(&self, queue: &QueueDefinition) -> Result<(), QueueError>;
}

/// What holds the items of queues in place of the store's records.
pub trait QueueBackend: Send + Sync + 'static {
    /// Returns the queues of one tenant of a store.
    fn of(&self, store_id: Uuid, tenant: &str) -> Arc<dyn WorkQueue>;
}

/// The queues of one tenant, by name: definitions, which are records of the store, over a [`WorkQueue`] that holds their items.
#[async_trait]
pub trait Queues: Send + Sync + 'static {
    /// Returns one page of the queues, in the order of their names.
    ///
    /// # Errors
    /// See [`QueueError`].
    async fn list(&self, after: Option<&str>, limit: usize) -> Result<QueuePage, QueueError>;

    /// Returns the definition of a queue, and what it holds.
    ///
    /// # Errors
    /// [`QueueError::Unknown`]. Otherwise see [`QueueError`].
    async fn get(&self, queue: &str) -> Result<QueueStatus, QueueError>;

    /// Defines a queue, or changes its definition; returns whether it is new. Other processes follow a change within a second.
    ///
    /// # Errors
    /// `invalid_queue` with the setting. Otherwise see [`QueueError`].
    async fn put(&self, definition: QueueDefinition) -> Result<bool, QueueError>;

    /// Deletes a queue with its items.
    ///
    /// # Errors
    /// [`QueueError::Unknown`]. Otherwise see [`QueueError`].
    async fn delete(&self, queue: &str, reason: Reason) -> Result<(), QueueError>;

    /// As [`WorkQueue::enqueue`].
    ///
    /// # Errors
    /// [`QueueError::Unknown`], and as [`WorkQueue::enqueue`].
    async fn enqueue(&self, queue: &str, item: NewItem) -> Result<Enqueued, QueueError>;

    /// As [`WorkQueue::take`].
    ///
    /// # Errors
    /// [`QueueError::Unknown`], and as [`WorkQueue::take`].
    async fn take(&self, queue: &str, take: TakeBody) -> Result<Taken, QueueError>;

    /// As [`WorkQueue::renew`].
    ///
    /// # Errors
    /// [`QueueError::Unknown`], and as [`WorkQueue::renew`].
    async fn renew(&self, queue: &str, renew: RenewBody) -> Result<Vec<ItemResult>, QueueError>;

    /// As [`WorkQueue::done`].
    ///
    /// # Errors
    /// [`QueueError::Unknown`], and as [`WorkQueue::done`].
    async fn done(&self, queue: &str, items: ItemsBody) -> Result<Vec<ItemResult>, QueueError>;

    /// As [`WorkQueue::release`].
    ///
    /// # Errors
    /// [`QueueError::Unknown`], and as [`WorkQueue::release`].
    async fn release(&self, queue: &str, items: ItemsBody) -> Result<Vec<ItemResult>, QueueError>;

    /// Returns an active item to the queue with its age, whichever worker has it. This is the act of an operator, who learns of a mistyped
    /// id: unlike [`release`](Self::release), it refuses an id that is not there.
    ///
    /// # Errors
    /// [`QueueError::UnknownItem`]. Otherwise see [`QueueError`].
    async fn release_item(&self, queue: &str, id: &str, reason: Reason) -> Result<ItemResult, QueueError>;

    /// As [`WorkQueue::item`].
    ///
    /// # Errors
    /// [`QueueError::Unknown`], and as [`WorkQueue::item`].
    async fn item(&self, queue: &str, id: &str) -> Result<ItemStatus, QueueError>;

    /// As [`WorkQueue::items`].
    ///
    /// # Errors
    /// [`QueueError::Unknown`], and as [`WorkQueue::items`].
    async fn items(&self, queue: &str, query: ItemsQuery) -> Result<ItemPage, QueueError>;

    /// As [`WorkQueue::prioritise`].
    ///
    /// # Errors
    /// [`QueueError::Unknown`], and as [`WorkQueue::prioritise`].
    async fn prioritise(&self, queue: &str, id: &str, body: PriorityBody) -> Result<ItemStatus, QueueError>;

    /// As [`WorkQueue::cancel`].
    ///
    /// # Errors
    /// [`QueueError::Unknown`], and as [`WorkQueue::cancel`].
    async fn cancel(&self, queue: &str, id: &str, reason: Reason) -> Result<CancelledItem, QueueError>;
}
