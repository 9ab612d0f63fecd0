//! The runtime of a store: the task host, handlers, sagas and aggregates. It is a separate crate because it needs an async runtime and
//! nothing else: a program that embeds a store gets all of it without HTTP, and it is tested without a socket.
//!
//! A [`Host`] runs the background tasks of a process. Its handlers pass events to a [`Handler`] in order per partition and never skip
//! one: a failing event is retried with back-off and blocks only its own partition.
//!
//! [`Aggregates`] load the aggregates of a type from a log, decide commands, and commit the resulting events.

mod aggregates;
mod archive;
mod audit;
mod broker;
mod browse;
mod credentials;
mod dead_letters;
mod definitions;
mod doctor;
mod due;
mod engine;
mod filters;
mod groups;
mod handler;
mod handlers;
mod health;
mod horizon;
mod host;
mod partners;
mod producer;
mod projection;
mod projections;
mod queue;
mod relay;
mod replays;
mod saga;
mod sagas;
mod topics;
pub mod types;

pub use aggregates::{
    Aggregates, HandleError, Handled, IdRange, LoadError, NotRefused, Past, PastCommit, RegenerateError, Regenerated,
    RemakeError, Request, Retries, SnapshotStrategy,
};
pub use archive::ArchiveFolder;
pub use audit::Audit;
pub use credentials::{KnownCredential, LiveCredentials, StoredCredentials};
pub use engine::retries::RetryMetrics;
pub use filters::EventFilter;
pub use groups::{Consumer, ConsumerStatus, GroupMetrics, consumer};
pub use handler::{Effects, HandleFailure, Handler, RetryWish};
pub use health::ProcessorHealth;
pub use host::{Host, HostOptions, Stage, StageError, TaskState, TaskStatus, check_stage};
pub use partners::{PartnerFailures, PartnerKeys, PartnerMetrics, PartnerOptions};
pub use producer::{Producer, PublishError, Published};
pub use queue::{RecordsQueue, TenantQueueStatus};
pub use relay::RelayOptions;
pub use saga::{HostSagas, SagaCall, SagaProgram};
