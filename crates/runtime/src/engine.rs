//! The processor engine: everything that advances through a log or a stream with a stored position runs on it.
//!
//! ```text
//!  source.rs   where events come from: the log or a stream, by position and by partition
//!  reader.rs   reads ahead, one page
//!  owner.rs    the task that owns a processor: feeds the state machine of `annals_core::processing`, hands events out
//!  journal.rs  one batch of records for all that changed: progress, failing partitions, parked events, effects
//!  local.rs    a handler in Rust as a worker of its own processor
//!  retries.rs  how often this process attempts events again
//! ```
//!
//! INVARIANTS
//! - One owner: it holds the processor's lease, and its epoch and turn are expected by every write ([`ProcessorRecord`]). A process that
//!   lost the lease writes nothing.
//! - A settlement is answered after the batch that holds it, with its effects, was written.
//! - Whatever the owner knows and has not written may be lost: it begins again from what is stored.
//!
//! [`ProcessorRecord`]: annals_core::handlers::ProcessorRecord

pub(crate) mod journal;
pub(crate) mod local;
pub(crate) mod owner;
pub(crate) mod reader;
pub(crate) mod retries;
pub(crate) mod source;
