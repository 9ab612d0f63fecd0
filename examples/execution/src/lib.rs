//! A code-execution service whose only memory is the event log; the first thing a new user of Annals sees, as `annals demo`. After
//! Integr8sCode, which needs MongoDB, Kafka, Redis and Kubernetes for the same events. It uses the public library only.
//!
//! ```text
//!  page, POST /executions ──▶ execution_requested ──▶ log ──▶ worker (a handler) ──▶ child process
//!                                                      ▲                                 │
//!  page (SSE), lines ◀── execution_started, execution_completed | _failed | _timeout ◀───┘
//! ```
//!
//! The worker is a handler: a host hands it the requests, and stores after each that it is done. Whatever else matters is in the log: an
//! execution that was started and has no terminal event was interrupted. So the service can be killed at any moment; started again it
//! resumes, and every execution gets exactly one terminal event. Read `step` for how that is made
//! sure, `worker` for the life of an execution, `process` for what a program may do and how it ends.
//!
//! # This is no sandbox
//! Programs have limits of time, memory, file size and output, a folder of their own and an empty environment, and nothing they start
//! outlives the service. But they run as the user who started it and see that user's files and the network. So the service listens on
//! loopback only, and refuses requests that the pages of other sites send. Submit programs of people you trust.
//!
//! Linux only: elsewhere [`run`] says so.

mod events;
mod folder;
mod ids;
mod language;
mod lines;
#[cfg_attr(not(target_os = "linux"), path = "process_elsewhere.rs")]
mod process;
mod samples;
mod service;
mod step;
mod submission;
mod types;
mod verdict;
mod web;
mod worker;

pub use events::{AGGREGATE, COMPLETED, FAILED, REQUESTED, ResourceUsage, STARTED, TERMINAL, TIMEOUT};
pub use folder::{DemoFolder, FolderError};
pub use service::{DEFAULT_LISTEN, Error, Settings, run};
pub use types::definitions;
