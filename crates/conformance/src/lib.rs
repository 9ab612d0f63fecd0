//! The conformance suite that every adapter must pass, as async functions over the ports. It is a crate of its own, so that any backend
//! can prove its conformance and none can diverge.
//!
//! - [`event_log!`] adopts every case of the event log for one backend with one line; [`Subject`] is what the backend provides for it. A
//!   backend that does not yet decide beyond one aggregate adopts [`commits_and_log!`], and explicitly refuses what [`decisions!`] tests.
//! - [`streams!`], [`records!`], [`snapshots!`], [`prepare!`] for prepare keys as a service, and [`queries!`] for queries of snapshots
//!   and commits do the same for other ports. [`aggregates!`] tests what programs build on log and snapshots.
//! - [`handlers!`], [`groups!`], [`dead_letters!`], [`filters!`], [`projections!`], [`sagas!`], [`horizon!`] and [`partners!`] test what
//!   the task host runs on log, streams and records.
//! - [`broker!`] tests topics, [`queue!`] work queues, [`types!`] the registry of event types, [`browse!`] the browse view, [`archive!`]
//!   its archive, [`archive_files!`] the places of its files, and [`replays!`] replays.
//! - [`model`] is the meaning of the event log in memory, with random operations to compare a backend with it.
//! - [`history`] records what concurrent clients observe, also across crashes, and checks it against the guarantees of
//!   [`EventLog`](annals_core::EventLog).
//! - [`tap`] intercepts calls between a caller and the ports of a store, for tests that count, delay, race or kill.
//! - [`ManualClock`] and [`SeededRandomness`] make a store repeatable.
//!
//! Cases come from the guarantees themselves and from the behaviour statements of the systems whose users come to Annals: Wow's event
//! store compatibility kit and the Dolittle Runtime's specifications. The statements that Annals decides differently are listed, with
//! reasons, in docs/decisions/0002-replaced-conformance-statements.md.

pub mod aggregates;
pub mod archive;
pub mod archive_files;
pub mod broker;
pub mod browse;
pub mod cases;
mod closing;
pub mod dead_letters;
pub mod filters;
pub mod groups;
pub mod handlers;
pub mod history;
pub mod horizon;
mod logged;
pub mod model;
mod mortal;
pub mod partners;
mod ports;
pub mod prepare;
pub mod projections;
pub mod queries;
pub mod queue;
pub mod receiving;
pub mod records;
#[cfg(test)]
mod reference;
pub mod replays;
mod rival;
pub mod sagas;
mod sample;
pub mod snapshots;
pub mod streams;
mod subject;
mod suite;
pub mod tap;
pub mod types;
mod unanswered;
mod withheld;
mod words;

pub use ports::{ManualClock, SeededRandomness};
pub use subject::{OTHER_TENANT, Subject, run};
pub(crate) use subject::{WithOther, between_looks};
