//! The suite that every adapter must pass, as async functions over the ports. It is a crate of its own so that any backend can prove
//! itself and none can drift.
//!
//! - [`event_log!`] adopts every case of the suite for one backend with one line; [`Subject`] is what the backend gives for it.
//!   A backend that does not decide beyond one aggregate yet adopts [`commits_and_log!`], and refuses by name what [`decisions!`] tests.
//! - [`streams!`] does the same for the streams, [`records!`] for records, [`snapshots!`] for snapshots, [`prepare!`] for prepare keys as a
//!   service, [`queries!`] for queries of snapshots and commits, [`aggregates!`] for what programs make of log and snapshots, and
//!   [`handlers!`], [`groups!`], [`dead_letters!`], [`filters!`], [`projections!`], [`sagas!`], [`horizon!`] and [`partners!`] for what
//!   the task host makes of log, streams and records, [`broker!`] for topics, [`queue!`] for work queues, [`types!`] for the registry of
//!   event types, [`browse!`] for the browse view, [`archive!`] for its archive, [`archive_files!`] for the
//!   places of its files, and [`replays!`] for replays.
//! - [`model`] is the event log's meaning in memory, with random operations to compare a backend with it.
//! - [`history`] records what concurrent clients were told, across crashes too, and checks it against the promises of
//!   [`EventLog`](annals_core::EventLog).
//! - [`tap`] stands between a caller and the ports of a store, for tests that count, delay, race or kill.
//! - [`ManualClock`] and [`SeededRandomness`] make a store repeatable.
//!
//! Cases come from the promises themselves and from the behaviour statements of the systems whose users come to Annals: Wow's event
//! store compatibility kit and the Dolittle Runtime's specifications. Those that Annals decides otherwise are listed, with reasons, in
//! docs/decisions/0002-replaced-conformance-statements.md.

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
pub(crate) use subject::between_looks;
pub use subject::{OTHER_TENANT, Subject, run};
