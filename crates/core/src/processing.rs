//! Processing events in order per partition: a pure state machine, fed by the task that runs a processor.
//!
//! ```text
//!  source ── read ──▶ window ── take ──▶ in flight ── settle ──▶ settled ──▶ position moves on
//!                        │                   │ failed
//!                        │                   ▼
//!                        └── skipped ──▶ failing partition: its own position, attempts, time of the next attempt
//!                                             │ due, fetched, taken, settled … until it has caught up: it ends
//! ```
//!
//! It does no I/O and reads no clock. The task that feeds it reads pages and asks for failing partitions' next events; it stores
//! [`Machine::progress`] and the changed failing partitions in one batch, and only then answers those who settled.
//!
//! INVARIANTS
//! - Every event below the position is settled, or belongs to a failing partition that stands at it or before it.
//! - Every event at or above the position that is settled is in `ahead`, so that a restart never hands it out again.
//! - Events of a partition are handed out in order, and one batch of them at a time.
//! - A failing partition changes nothing for any other, and none of its own events is skipped unless an operator or the policy
//!   parks it, which is recorded.

mod health;
mod machine;
mod partition;
mod progress;
mod retry;

pub use health::{STALLED_AFTER_SECONDS, Vitals};
pub use machine::{
    ActError, Changes, FAILING_MAX, Fetched, LetterFailure, LetterOutcome, Machine, Offered, Outcome, Parked, Replay,
    Settings, SettleError, Settled, Taken, Wanted, shortened,
};
pub use partition::{NO_PARTITION, PartitionBy};
pub use progress::{Failing, Progress};
pub use retry::{ProcessingRetry, Then};
