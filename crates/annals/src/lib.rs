//! Annals is an event store and event backbone: a team's events are committed once, kept for ever in one order, read again and
//! followed. This crate is the library as one name: [`open`] a store by URL and go on with the words that are re-exported here.
//!
//! What it is: an append-only log of events per tenant and scope, whose commits are atomic, checked against the version of an
//! aggregate, recognised when they are sent twice, and durable when they are acknowledged. The promises stand at [`EventLog`].
//!
//! What it is not: a database for the current state of things (project the log into one), a message broker between programs that
//! cannot lose their place, or a place for files (commit a reference). Events are never changed or removed.
//!
//! Limits: an event holds at most 8 MiB of data, a commit 15 MiB and 10,000 events; every bound stands in [`limits`]. One process
//! opens a store at a time; others talk to it over HTTP, with `annals serve` and the `Client` of this crate.
//!
//! ```
//! use annals::{Data, EventLog, ExpectedVersion, Filter, Follower, LogQuery, NewCommit, NewEvent};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = annals::open("memory:").await?;
//! let log = store.log(annals::DEFAULT_TENANT, annals::DEFAULT_SCOPE)?;
//! let placed = NewEvent::new("order_placed", Data::from_value(&serde_json::json!({ "total": 12.5 }))?);
//! let outcome = log.commit(NewCommit::new("order", "o-1").expect(ExpectedVersion::Empty).event(placed)).await?;
//! let page = log.read(LogQuery::default()).await?;
//! assert_eq!((outcome.version, page.events.len(), page.head), (1, 1, 1));
//! let mut follower = Follower::new(log.clone(), 0, Filter::default());
//! assert_eq!(follower.next_page().await?, page.events);
//! store.close().await;
//! # Ok(())
//! # }
//! ```

#[cfg(feature = "mongodb")]
pub mod adopt;
#[cfg(feature = "client")]
mod client;
mod compose;
pub mod operations;
mod transfer;

pub use annals_core::*;
#[cfg(feature = "mongodb")]
pub use annals_mongodb as mongodb;
#[cfg(feature = "runtime")]
pub use annals_runtime as runtime;
#[cfg(feature = "server")]
pub use annals_server as server;
pub use annals_system::{SystemClock, SystemRandomness};
#[cfg(feature = "client")]
pub use client::{
    BackupStream, Client, HandlersClient, KeysClient, QueriesClient, RecordsClient, SequencingClient, SnapshotsClient,
    StreamsClient,
};
pub use compose::{OpenOptions, open, open_once_reachable, open_with, shown_url};

/// The Rust programs of the guide to handlers are compiled and run.
#[cfg(all(doctest, feature = "runtime"))]
#[doc = include_str!("../../../docs/handlers.md")]
struct GuideToHandlers;
