//! Annals is an event store and event backbone: events are committed once, kept forever in one order, read and followed. This crate is the
//! facade of the library: [`open`] a store by URL and use the types that are re-exported here.
//!
//! A store is an append-only log of events per tenant and scope. Commits are atomic, checked against the version of an aggregate,
//! idempotent by request id, and durable once acknowledged. [`EventLog`] states the guarantees.
//!
//! Annals is not a database for current state (project the log into one), a message broker, or a place for files (commit a reference).
//! Events are never changed or removed.
//!
//! Limits: an event holds at most 8 MiB of data, a commit at most 15 MiB and 10,000 events; [`limits`] lists every bound. Only one process
//! at a time can open an embedded store; other processes use it over HTTP, through `annals serve` and the `Client` of this crate.
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

#[cfg(feature = "console")]
pub use annals_console as console;
pub use annals_core::*;
#[cfg(feature = "kafka")]
pub use annals_kafka as kafka;
#[cfg(feature = "mongodb")]
pub use annals_mongodb as mongodb;
#[cfg(feature = "redis")]
pub use annals_redis as redis;
#[cfg(feature = "runtime")]
pub use annals_runtime as runtime;
#[cfg(feature = "server")]
pub use annals_server as server;
pub use annals_system::{SystemClock, SystemRandomness};
#[cfg(all(feature = "client", feature = "server"))]
pub use client::KeyFetcher;
#[cfg(feature = "client")]
pub use client::{
    ArchiveClient, BackupStream, BrowseClient, Client, ClientOptions, CredentialsClient, DeadLettersClient,
    FiltersClient, GroupsClient, HandlersClient, HorizonClient, HttpProducers, HttpSending, KeysClient, OtlpOptions,
    OtlpSpans, PartnersClient, ProjectionsClient, QueriesClient, QueuesClient, RecordsClient, ReplaysClient, Resolve,
    Resolved, SagasClient, SequencingClient, SnapshotsClient, StreamsClient, TopicsClient, TypesClient,
};
#[cfg(feature = "runtime")]
pub use compose::open_archive;
pub use compose::{OpenOptions, open, open_broker, open_once_reachable, open_queue, open_with, shown_url};

/// Compiles and runs the Rust programs of the guide to processing.
#[cfg(all(doctest, feature = "runtime"))]
#[doc = include_str!("../../../docs/processing.md")]
struct GuideToProcessing;

/// Compiles and runs the Rust programs of the guide to handlers.
#[cfg(all(doctest, feature = "runtime"))]
#[doc = include_str!("../../../docs/handlers.md")]
struct GuideToHandlers;

/// Compiles and runs the Rust programs of the guide to event types.
#[cfg(all(doctest, feature = "runtime"))]
#[doc = include_str!("../../../docs/types.md")]
struct GuideToTypes;

/// Compiles and runs the Rust programs of the guide to topics.
#[cfg(all(doctest, feature = "runtime"))]
#[doc = include_str!("../../../docs/topics.md")]
struct GuideToTopics;

/// Compiles the Rust program of the guide to Kafka.
#[cfg(all(doctest, feature = "runtime"))]
#[doc = include_str!("../../../docs/kafka.md")]
struct GuideToKafka;

/// Compiles and runs the Rust programs of the guide to the event horizon.
#[cfg(all(doctest, feature = "runtime", feature = "client"))]
#[doc = include_str!("../../../docs/horizon.md")]
struct GuideToTheEventHorizon;

/// Compiles and runs the Rust programs of the guide to sagas.
#[cfg(all(doctest, feature = "runtime"))]
#[doc = include_str!("../../../docs/sagas.md")]
struct GuideToSagas;

/// Compiles and runs the Rust programs of the guide to projections.
#[cfg(all(doctest, feature = "runtime"))]
#[doc = include_str!("../../../docs/projections.md")]
struct GuideToProjections;
