//! The MongoDB adapter: the same guarantees as the embedded store, in a team's own MongoDB. It is a separate crate because it is the only
//! one that depends on a database driver, which users of the embedded store need not build.
//!
//! Each commit is one document of Wow's Mongo extension in `{aggregate}_event_stream`; the log is the Dolittle Runtime's `event-log`.
//! Other software reads and writes both at the same time.
//!
//! The write path: `log/commit.rs` checks a commit on the caller's task, and `log/bulk.rs` gathers commits that arrive together. The
//! insert in `log/batch.rs` makes them durable (majority, journaled). The transaction in `sequencer/write.rs` assigns their sequence
//! numbers.

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
