//! What follows the log. It is a crate of its own because it needs an async runtime and nothing else: whoever embeds a store gets
//! processors without HTTP, and they are tested without a socket.
//!
//! A [`Processor`] hands the events of a log to a [`Handler`], one after the other, and never skips one: a failing event is tried
//! again, later and later, until it succeeds or somebody stops the processor.

mod handler;
mod processor;
mod retry;
mod status;

pub use handler::{Handler, HandlerError};
pub use processor::{Processor, Running};
pub use retry::RetryPolicy;
pub use status::{State, Status};
