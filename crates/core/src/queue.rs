//! Work queues: items with five priorities, handed out under a cap, each with a lease.
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

/// The port of an adapter that holds the items of queues. It does not store definitions, so each call passes the current one.
///
/// An implementation MUST keep these guarantees; the conformance suite tests each of them.
///
/// - **Cap.** At most [`cap`](QueueDefinition::cap) items of a queue are active, even if callers race in several processes. Lowering the
///   cap ends no lease: nothing is handed out until fewer items are active.
/// - **Order.** Without [`fair`](QueueDefinition::fair) and [`ageing_ms`](QueueDefinition::ageing_ms), the order is strict: the highest
///   priority first, and within one priority the item that was enqueued first.
/// - **Fair shares.** With `fair`, users of one priority are served in turn, whatever they have enqueued: if n users have items of a
///   priority, each of them gets one of every n hand-outs of that priority. A user's own items keep their order. Items without a user
///   count as items of one user, whose name is empty.
/// - **Ageing.** Once the oldest item has waited for `ageing_ms`, at most [`PASSED_MAX`] hand-outs in a row pass over its priority. So no
///   item waits forever, and higher priorities keep three quarters of the hand-outs.
/// - **One entry per id.** Enqueueing an id that is pending or active changes nothing and returns the existing entry, marked as duplicate.
/// - **Leases.** An active item has a lease, which ends unless it is renewed. The item is then pending again with its original age, and
///   its slot is free. The token of a hand-out is accepted until the item is handed out again: a worker that finishes late, but before
///   another one has started, has done the work. A lease that has ended cannot be renewed, because its slot may be taken.
/// - **Idempotent.** [`done`](Self::done) and [`release`](Self::release) of an unknown id change nothing and succeed.
/// - **Age.** An item whose priority changes keeps its age: in its new priority it precedes items that were enqueued after it.
/// - **Lost payloads.** If the payload of an item is lost, [`take`](Self::take) drops the item, counts and reports it, and hands out the
///   next one instead.
///
/// Times are those of the caller's [`Clock`](crate::Clock). Dropping the future of a call does not undo the call.
#[async_trait]
pub trait WorkQueue: Send + Sync + 'static {
    /// Adds an item, unless its id is pending or active.
    ///
    /// # Errors
    /// [`QueueError::Full`] if the queue or the user has too many pending items. Otherwise see [`QueueError`].
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

    /// Renews leases: each ends this long from now.
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

    /// Returns active items to the queue, with their original age, and frees their slots.
    ///
    /// # Errors
    /// See [`QueueError`].
    async fn release(&self, queue: &QueueDefinition, items: &[ItemRef]) -> Result<Vec<ItemResult>, QueueError>;

    /// Changes the priority of an item; its age is kept.
    ///
    /// # Errors
    /// [`QueueError::UnknownItem`]. Otherwise see [`QueueError`].
    async fn prioritise(
        &self,
        queue: &QueueDefinition,
        id: &str,
        priority: QueuePriority,
    ) -> Result<ItemStatus, QueueError>;

    /// Removes an item, pending or active, and returns its last status.
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

    /// Counts the items of a queue, and its past operations.
    ///
    /// # Errors
    /// See [`QueueError`].
    async fn counts(&self, queue: &QueueDefinition) -> Result<QueueCounts, QueueError>;

    /// Removes all items of a queue and its counters.
    ///
    /// # Errors
    /// See [`QueueError`].
    async fn clear(&self, queue: &QueueDefinition) -> Result<(), QueueError>;
}

/// A backend that holds the items of queues in place of the store's records.
pub trait QueueBackend: Send + Sync + 'static {
    /// Returns the queues of one tenant of a store.
    fn of(&self, store_id: Uuid, tenant: &str) -> Arc<dyn WorkQueue>;
}

/// The queues of one tenant, by name: their definitions are records of the store, and their items are in a [`WorkQueue`].
#[async_trait]
pub trait Queues: Send + Sync + 'static {
    /// Returns one page of the queues, in the order of their names.
    ///
    /// # Errors
    /// See [`QueueError`].
    async fn list(&self, after: Option<&str>, limit: usize) -> Result<QueuePage, QueueError>;

    /// Returns the definition of a queue, and its counts.
    ///
    /// # Errors
    /// [`QueueError::Unknown`]. Otherwise see [`QueueError`].
    async fn get(&self, queue: &str) -> Result<QueueStatus, QueueError>;

    /// Defines a queue, or changes its definition; returns whether it is new. Other processes apply a change within a second.
    ///
    /// # Errors
    /// `invalid_queue` with the setting. Otherwise see [`QueueError`].
    async fn put(&self, definition: QueueDefinition) -> Result<bool, QueueError>;

    /// Deletes a queue with its items.
    ///
    /// # Errors
    /// [`QueueError::Unknown`]. Otherwise see [`QueueError`].
    async fn delete(&self, queue: &str, reason: Reason) -> Result<(), QueueError>;

    /// Enqueues an item; see [`WorkQueue::enqueue`].
    ///
    /// # Errors
    /// [`QueueError::Unknown`], and as [`WorkQueue::enqueue`].
    async fn enqueue(&self, queue: &str, item: NewItem) -> Result<Enqueued, QueueError>;

    /// Hands out items; see [`WorkQueue::take`].
    ///
    /// # Errors
    /// [`QueueError::Unknown`], and as [`WorkQueue::take`].
    async fn take(&self, queue: &str, take: TakeBody) -> Result<Taken, QueueError>;

    /// Renews leases; see [`WorkQueue::renew`].
    ///
    /// # Errors
    /// [`QueueError::Unknown`], and as [`WorkQueue::renew`].
    async fn renew(&self, queue: &str, renew: RenewBody) -> Result<Vec<ItemResult>, QueueError>;

    /// Removes active items whose work is done; see [`WorkQueue::done`].
    ///
    /// # Errors
    /// [`QueueError::Unknown`], and as [`WorkQueue::done`].
    async fn done(&self, queue: &str, items: ItemsBody) -> Result<Vec<ItemResult>, QueueError>;

    /// Returns active items to the queue; see [`WorkQueue::release`].
    ///
    /// # Errors
    /// [`QueueError::Unknown`], and as [`WorkQueue::release`].
    async fn release(&self, queue: &str, items: ItemsBody) -> Result<Vec<ItemResult>, QueueError>;

    /// Returns an active item to the queue with its age, whichever worker has it. This is the act of an operator: unlike
    /// [`release`](Self::release), it refuses an unknown id, so that a typo is noticed.
    ///
    /// # Errors
    /// [`QueueError::UnknownItem`]. Otherwise see [`QueueError`].
    async fn release_item(&self, queue: &str, id: &str, reason: Reason) -> Result<ItemResult, QueueError>;

    /// Returns an item; see [`WorkQueue::item`].
    ///
    /// # Errors
    /// [`QueueError::Unknown`], and as [`WorkQueue::item`].
    async fn item(&self, queue: &str, id: &str) -> Result<ItemStatus, QueueError>;

    /// Returns one page of the items; see [`WorkQueue::items`].
    ///
    /// # Errors
    /// [`QueueError::Unknown`], and as [`WorkQueue::items`].
    async fn items(&self, queue: &str, query: ItemsQuery) -> Result<ItemPage, QueueError>;

    /// Changes the priority of an item; see [`WorkQueue::prioritise`].
    ///
    /// # Errors
    /// [`QueueError::Unknown`], and as [`WorkQueue::prioritise`].
    async fn prioritise(&self, queue: &str, id: &str, body: PriorityBody) -> Result<ItemStatus, QueueError>;

    /// Removes an item, pending or active; see [`WorkQueue::cancel`].
    ///
    /// # Errors
    /// [`QueueError::Unknown`], and as [`WorkQueue::cancel`].
    async fn cancel(&self, queue: &str, id: &str, reason: Reason) -> Result<CancelledItem, QueueError>;
}
