//! What follows the log. It is a crate of its own because it needs an async runtime and nothing else: whoever embeds a store gets
//! processors without HTTP, and they are tested without a socket.
//!
//! A [`Processor`] hands the events of a log to a [`Handler`], one after the other, and never skips one: a failing event is tried
//! again, later and later, until it succeeds or somebody stops the processor.
//!
//! [`Aggregates`] load the aggregates of a type from a log, and commit what commands make of them.

mod aggregates;
mod engine;
mod handler;
mod handlers;
mod host;

pub use aggregates::{
    Aggregates, HandleError, Handled, IdRange, LoadError, NotRefused, Past, PastCommit, RegenerateError, Regenerated,
    RemakeError, Request, Retries, SnapshotStrategy,
};
pub use handler::{Effects, HandleFailure, Handler, RetryWish};
pub use host::{Host, HostOptions, TaskState, TaskStatus};
