//! The addresses below `/v1`: one file per kind of thing that is asked for.

pub(crate) mod aggregates;
pub(crate) mod backup;
pub(crate) mod changes;
pub(crate) mod commits;
pub(crate) mod documents;
pub(crate) mod filters;
pub(crate) mod follow;
pub(crate) mod handlers;
pub(crate) mod horizon;
pub(crate) mod index;
pub(crate) mod keys;
pub(crate) mod lines;
pub(crate) mod log;
pub(crate) mod many;
pub(crate) mod processor_states;
pub(crate) mod projections;
pub(crate) mod queries;
pub(crate) mod records;
pub(crate) mod sequencer;
pub(crate) mod snapshots;
pub(crate) mod stats;
pub(crate) mod streams;
pub(crate) mod transactions;
pub(crate) mod verdicts;
mod wait;
