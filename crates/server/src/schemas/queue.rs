//! The shapes of work queues.

use utoipa::ToSchema;

/// A work queue.
#[derive(ToSchema)]
pub(crate) struct QueueDefinition {
    /// The maximum number of active items, 1–2,000; 10 when absent.
    cap: Option<u32>,
    /// Whether users of one priority are served in turn; true when absent.
    fair: Option<bool>,
    /// How long the oldest item waits before its priority is served in between; 60,000 when absent, 0 is never.
    ageing_ms: Option<u64>,
    /// The default length of a lease, in milliseconds; 30,000 when absent.
    lease_ms: Option<u64>,
    /// The maximum number of pending items, 1–100,000; 10,000 when absent.
    pending_max: Option<u32>,
    /// The maximum number of pending items of one user; 0, which means no separate limit, when absent.
    pending_max_per_user: Option<u32>,
}

/// A work queue with what it holds.
#[derive(ToSchema)]
pub(crate) struct QueueStatus {
    name: String,
    cap: u32,
    fair: bool,
    ageing_ms: u64,
    lease_ms: u64,
    pending_max: u32,
    pending_max_per_user: u32,
    active: u64,
    pending: PendingCounts,
    /// The number of users with pending items, summed over the priorities.
    users: u64,
    /// When the oldest pending item was enqueued; absent when nothing is pending.
    oldest: Option<String>,
    oldest_seconds: u64,
    enqueued_total: u64,
    /// Hand-outs.
    taken_total: u64,
    done_total: u64,
    /// Leases that ended without a renewal.
    expired_total: u64,
    released_total: u64,
    cancelled_total: u64,
    /// Items dropped because their payloads were gone.
    lost_total: u64,
}

/// Pending items by priority.
#[derive(ToSchema)]
#[schema(as = PendingQueueItems)]
struct PendingCounts {
    critical: u64,
    high: u64,
    normal: u64,
    low: u64,
    background: u64,
}

/// A page of work queues.
#[derive(ToSchema)]
pub(crate) struct QueuePage {
    items: Vec<QueueStatus>,
    cursor: Option<String>,
}

/// An item to be enqueued.
#[derive(ToSchema)]
pub(crate) struct NewQueueItem {
    /// Unique among the pending and active items of the queue.
    id: String,
    /// `critical`, `high`, `normal` (the default), `low` or `background`.
    priority: Option<String>,
    /// The user whose work it is, for fair shares.
    user: Option<String>,
    /// The payload for the worker, at most 256 KiB.
    payload: Option<serde_json::Value>,
}

/// The outcome of enqueuing an item.
#[derive(ToSchema)]
pub(crate) struct EnqueuedItem {
    id: String,
    /// Whether it already existed, in which case nothing was changed.
    duplicate: bool,
    /// `pending` or `active`.
    state: String,
    /// The number of pending items of its priority that were enqueued before it; absent for an active item.
    position: Option<u64>,
}

/// The number of items to take.
#[derive(ToSchema)]
pub(crate) struct TakeItems {
    /// 1–1,000; 1 when absent.
    max: Option<usize>,
    /// The queue's own length when absent.
    lease_ms: Option<u64>,
    worker: Option<String>,
}

/// Items handed out.
#[derive(ToSchema)]
pub(crate) struct TakenItems {
    items: Vec<TakenItem>,
    /// The ids of items that were dropped because their payloads are gone; absent when there are none.
    lost: Option<Vec<String>>,
}

/// A handed-out item.
#[derive(ToSchema)]
struct TakenItem {
    id: String,
    /// The token of this hand-out.
    token: String,
    priority: String,
    user: String,
    payload: serde_json::Value,
    enqueued_at: String,
    /// The number of its hand-outs, including this one.
    attempt: u32,
    lease_until: String,
}

/// An item and one of its hand-outs.
#[derive(ToSchema)]
struct QueueItemRef {
    id: String,
    /// Absent for the current hand-out, of any worker.
    token: Option<String>,
}

/// Several items, or one by `id` and `token`.
#[derive(ToSchema)]
pub(crate) struct SettledItems {
    items: Option<Vec<QueueItemRef>>,
    id: Option<String>,
    token: Option<String>,
}

/// Several items, or one by `id` and `token`, and the new length of their leases, from now.
#[derive(ToSchema)]
pub(crate) struct RenewItems {
    items: Option<Vec<QueueItemRef>>,
    id: Option<String>,
    token: Option<String>,
    /// The queue's own length when absent.
    lease_ms: Option<u64>,
}

/// The outcomes for the items of a request, in its order.
#[derive(ToSchema)]
pub(crate) struct QueueItemResults {
    results: Vec<QueueItemResult>,
}

/// The outcome for an item.
#[derive(ToSchema)]
pub(crate) struct QueueItemResult {
    id: String,
    /// Whether the item is now in the requested state.
    accepted: bool,
    /// Whether this request changed it.
    changed: bool,
    /// `lease_lost`; absent for what was accepted.
    error: Option<String>,
    /// The end of the lease after a renewal.
    lease_until: Option<String>,
}

/// An item of a work queue, without its payload.
#[derive(ToSchema)]
pub(crate) struct QueueItem {
    id: String,
    /// `pending` or `active`.
    state: String,
    priority: String,
    user: String,
    enqueued_at: String,
    /// The number of its hand-outs.
    attempt: u32,
    /// The worker that took it last.
    worker: Option<String>,
    /// While it is active.
    lease_until: Option<String>,
}

/// A page of the items of a work queue.
#[derive(ToSchema)]
pub(crate) struct QueueItemPage {
    items: Vec<QueueItem>,
    cursor: Option<String>,
}

/// The new priority of an item.
#[derive(ToSchema)]
pub(crate) struct QueueItemPriority {
    /// `critical`, `high`, `normal`, `low` or `background`.
    priority: String,
    reason: Option<String>,
    by: Option<String>,
}

/// A cancelled item.
#[derive(ToSchema)]
pub(crate) struct CancelledQueueItem {
    /// What it was before.
    cancelled: QueueItem,
}
