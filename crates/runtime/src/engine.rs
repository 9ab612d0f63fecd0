//! The processor engine. Everything that advances through a log or a stream with a stored position runs on it.
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
//! - One owner: it holds the processor's lease, and every write expects its epoch and turn ([`ProcessorRecord`]). A process that lost the
//!   lease cannot write.
//! - A settlement is answered only after the batch that holds it and its effects was written.
//! - State that the owner knows but has not written may be lost: the next owner resumes from what is stored.
//!
//! [`ProcessorRecord`]: annals_core::handlers::ProcessorRecord

pub(crate) mod journal;
pub(crate) mod local;
pub(crate) mod owner;
pub(crate) mod reader;
pub(crate) mod retries;
pub(crate) mod source;
