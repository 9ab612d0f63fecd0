//! The shapes of work queues.

use utoipa::ToSchema;

/// A work queue.
#[derive(ToSchema)]
pub(crate) struct QueueDefinition {
    /// How many items are active at most, 1–2,000; 10 when absent.
    cap: Option<u32>,
    /// Whether users of one priority are served in turn; true when absent.
    fair: Option<bool>,
    /// How long the oldest item waits before its priority is served in between; 60,000 when absent, 0 is never.
    ageing_ms: Option<u64>,
    /// The length of a lease that names none; 30,000 when absent.
    lease_ms: Option<u64>,
    /// How many items are pending at most, 1–100,000; 10,000 when absent.
    pending_max: Option<u32>,
    /// How many items of one user are pending at most; 0, no limit of its own, when absent.
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
    /// How many users have pending items, summed over the priorities.
    users: u64,
    /// When the oldest pending item was enqueued; absent when nothing is pending.
    oldest: Option<String>,
    oldest_seconds: u64,
    enqueued_total: u64,
    /// Hand-outs.
    taken_total: u64,
    done_total: u64,
    /// Leases that ended without being renewed.
    expired_total: u64,
    released_total: u64,
    cancelled_total: u64,
    /// Items that were dropped because their payloads were gone.
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
    /// Whose work it is, for fair shares.
    user: Option<String>,
    /// What the worker needs, at most 256 KiB.
    payload: Option<serde_json::Value>,
}

/// What became of an item that was enqueued.
#[derive(ToSchema)]
pub(crate) struct EnqueuedItem {
    id: String,
    /// Whether it was there before; nothing was changed then.
    duplicate: bool,
    /// `pending` or `active`.
    state: String,
    /// How many pending items of its priority were enqueued before it; absent for an active item.
    position: Option<u64>,
}

/// How many items are taken.
#[derive(ToSchema)]
pub(crate) struct TakeItems {
    /// 1–1,000; 1 when absent.
    max: Option<usize>,
    /// The queue's own length when absent.
    lease_ms: Option<u64>,
    worker: Option<String>,
}

/// Items that were handed out.
#[derive(ToSchema)]
pub(crate) struct TakenItems {
    items: Vec<TakenItem>,
    /// The ids of items that were dropped because their payloads are gone; absent when there are none.
    lost: Option<Vec<String>>,
}

/// An item that was handed out.
#[derive(ToSchema)]
struct TakenItem {
    id: String,
    /// Names this hand-out.
    token: String,
    priority: String,
    user: String,
    payload: serde_json::Value,
    enqueued_at: String,
    /// How often it was handed out, this time included.
    attempt: u32,
    lease_until: String,
}

/// An item, and the hand-out that is meant.
#[derive(ToSchema)]
struct QueueItemRef {
    id: String,
    /// Without it the current hand-out is meant, of any worker.
    token: Option<String>,
}

/// Several items, or one by `id` and `token`.
#[derive(ToSchema)]
pub(crate) struct SettledItems {
    items: Option<Vec<QueueItemRef>>,
    id: Option<String>,
    token: Option<String>,
}

/// Several items, or one by `id` and `token`, and how long their leases are from now.
#[derive(ToSchema)]
pub(crate) struct RenewItems {
    items: Option<Vec<QueueItemRef>>,
    id: Option<String>,
    token: Option<String>,
    /// The queue's own length when absent.
    lease_ms: Option<u64>,
}

/// What became of the items of a request, in its order.
#[derive(ToSchema)]
pub(crate) struct QueueItemResults {
    results: Vec<QueueItemResult>,
}

/// What became of an item.
#[derive(ToSchema)]
pub(crate) struct QueueItemResult {
    id: String,
    /// Whether it is as the caller wants it.
    accepted: bool,
    /// Whether this request changed it.
    changed: bool,
    /// `lease_lost`; absent for what was accepted.
    error: Option<String>,
    /// After a renewal.
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
    /// How often it was handed out.
    attempt: u32,
    /// Who took it last.
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

/// The priority that an item gets.
#[derive(ToSchema)]
pub(crate) struct QueueItemPriority {
    /// `critical`, `high`, `normal`, `low` or `background`.
    priority: String,
    reason: Option<String>,
    by: Option<String>,
}

/// An item that was cancelled.
#[derive(ToSchema)]
pub(crate) struct CancelledQueueItem {
    /// What it was before.
    cancelled: QueueItem,
}
