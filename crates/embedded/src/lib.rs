//! The embedded store keeps the event log on a disk or in memory and needs nothing installed. It is a crate of its own because it is the
//! only one with an on-disk format.
//!
//! The write path: `log/commit.rs` validates and encodes on the caller's task. `log/writer.rs` checks, writes, syncs and answers on the
//! log's single writer thread. `format.rs` and `record.rs` define the bytes, and `disk/real.rs` makes the call that makes them durable.

pub mod disk;
mod engine;
mod examine;
mod floor;
mod format;
#[doc(hidden)]
pub mod fuzzing;
mod index;
mod log;
pub mod operations;
mod options;
mod packed;
mod record;
mod records;
mod refused;
mod store;
mod streams;
mod terms;
mod turn;
mod varint;
mod whole;

pub use format::FORMAT;
#[cfg(feature = "seeded-bugs")]
pub use options::SeededBug;
pub use options::{Options, Packing};
pub use store::{EmbeddedStore, STORE_FILE};
