//! Processing of events in order per partition: a pure state machine, driven by the task that runs a processor.
//!
//! ```text
//!  source ── read ──▶ window ── take ──▶ in flight ── settle ──▶ settled ──▶ position moves on
//!                        │                   │ failed
//!                        │                   ▼
//!                        └── skipped ──▶ failing partition: its own position, attempts, time of the next attempt
//!                                             │ due, fetched, taken, settled … until it has caught up: it ends
//! ```
//!
//! It does no I/O and reads no clock. The task that drives it reads pages and looks up the next events of failing partitions. It stores
//! [`Machine::progress`] and the changed failing partitions in one batch, and only then acknowledges the settlements.
//!
//! INVARIANTS
//! - Every event below the position is settled, or belongs to a failing partition whose own position is not after the event.
//! - Every settled event at or above the position is in `ahead`, so that it is not handed out again after a restart.
//! - Events of a partition are handed out in order, one batch at a time.
//! - A failing partition does not affect any other. None of its own events is skipped unless an operator or the policy parks it, which is
//!   recorded.

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
