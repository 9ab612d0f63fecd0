//! A code-execution service on the event log: requests, sagas, a priority queue, workers, results, notifications and streams for browsers.
//! As `annals demo`, it is the first thing that a new user of Annals sees. It is modelled on Integr8sCode, which needs MongoDB, Kafka,
//! Redis and Kubernetes for the same. It uses only the public library.
//!
//! ```text
//!  POST /executions ─▶ execution_requested ─▶ saga ─▶ work queue ─▶ scheduler: a slot ─▶ create_pod_command
//!                                                                                            │
//!  browser ◀─ SSE bridge ◀─ result_stored ◀─ result processor ◀─ execution_completed ◀─ worker: a process, seven pod events
//!                        ◀─ notification_created ◀─ notification service ◀─┘
//! ```
//!
//! Each part is a [`Role`]. All of them run in one process on the embedded defaults, or each runs in a process of its own on a shared
//! store.
//!
//! All essential state is in the log, so each process can be killed at any moment, and every execution gets exactly one terminal event.
//! `step` ensures this. Read `saga` for the life of an execution, `worker` for that of a pod, `bridge` for the streams, and `process` for
//! what a program may do and how it ends. `docs/execution.md` explains how to run the service.
//!
//! # This is not a sandbox
//! Programs have limits on time, memory, file size and output, a folder of their own and an empty environment, and nothing they start
//! outlives the service. But they run as the user who started the service, and can access that user's files and the network. So the service
//! listens on loopback only, and refuses requests from the pages of other sites. Submit only programs that you trust.
//!
//! It runs on Linux only; elsewhere [`run`] returns an error that says so.

mod api;
mod bridge;
mod events;
mod execution;
mod folder;
mod ids;
mod language;
mod lines;
mod listing;
mod notifications;
mod parts;
#[cfg_attr(not(target_os = "linux"), path = "process_elsewhere.rs")]
mod process;
mod records;
mod results;
mod roles;
mod saga;
mod samples;
mod scheduler;
mod service;
mod step;
mod submission;
mod types;
mod users;
mod verdict;
mod web;
mod worker;

pub use bridge::{BRIDGED, LAST};
pub use events::{
    AGGREGATE, CANCELLED, COMPLETED, CREATE_POD, DELETE_POD, FAILED, NOTIFICATION_CREATED, POD, QUEUED, REQUESTED,
    RESULT_FAILED, RESULT_STORED, ResourceUsage, SLOT_GRANTED, STARTED, TERMINAL, TIMEOUT,
};
pub use folder::{DemoFolder, FolderError};
pub use listing::LISTING;
pub use notifications::NOTIFICATIONS_GROUP;
pub use results::RESULTS_GROUP;
pub use roles::Role;
pub use saga::{QUEUE, SAGA, saga_definition};
pub use service::{DEFAULT_LISTEN, Error, Settings, run};
pub use types::definitions;
pub use users::Users;
pub use worker::{WORKER_GROUP, WORKER_TOPICS};
