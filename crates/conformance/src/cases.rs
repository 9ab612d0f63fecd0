//! The cases, grouped by guarantee. Each is an async function of a [`Subject`](crate::Subject) that panics if the guarantee is broken.

pub mod aggregate_ids;
pub mod aggregates;
pub mod append_conditions;
pub mod atomic;
pub mod content;
pub mod durable;
pub mod filters;
pub mod follow;
pub mod immutable;
pub mod judgement;
pub mod keys;
pub mod keys_beside_conditions;
pub mod keys_together;
pub mod log_pages;
pub mod once_per_request;
pub mod one_order;
pub mod one_winner;
pub mod racing_transactions;
pub mod scans;
pub mod stores;
pub mod transactions;
pub mod waiting;
