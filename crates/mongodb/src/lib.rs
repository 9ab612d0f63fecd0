//! The MongoDB adapter: the same promises as the embedded store, in a team's own MongoDB. It is a crate of its own because it is the only
//! one that knows a database's driver, which a user of the embedded store need not build.
//!
//! Commits are the documents of Wow's Mongo extension, one a commit, in `{aggregate}_event_stream`; the log is the `event-log` of the
//! Dolittle Runtime. Both are read and written by other software at the same time.
//!
//! The write path: `log/commit.rs` judges on the caller's task, `log/bulk.rs` gathers what comes at once, `log/batch.rs` holds the insert
//! that makes it durable (majority, journaled), `sequencer/write.rs` the transaction that gives it its numbers.

pub mod adopt;
mod answers;
mod cache;
mod connect;
mod dolittle;
mod examine;
mod hosts;
mod identity;
mod intake;
mod layout;
mod log;
mod moment;
mod options;
mod patience;
mod primary;
mod reach;
mod records;
mod refused;
mod scope;
mod scopes;
mod sequencer;
mod sequencing;
mod sessions;
mod snapshots;
mod store;
mod stream_definitions;
mod streams;
mod tenants;
mod transaction;

pub use dolittle::{DolittleTenants, dolittle_tenants};
pub use options::{ConnectionOptions, Options, Requests, Tenant};
pub use records::filter_of;
pub use sequencer::step::{AtStep, Step};
pub use store::MongoStore;
