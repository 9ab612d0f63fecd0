//! The aggregates of one type in a log.
//!
//! ```text
//!   request.rs   what a command is about        handle.rs   load, decide, commit; again after a conflict
//!   load.rs      what commits make of a state   retries.rs  how often, and when
//!   keep.rs      snapshots                      regenerate.rs  snapshots made anew
//! ```

mod handle;
mod keep;
mod load;
mod regenerate;
mod request;
mod retries;

use std::marker::PhantomData;
use std::sync::Arc;

use annals_core::{AggregateType, Clock, DEFAULT_SCOPE, EventLog, Randomness, Snapshots, Store, UnknownLog, Upcasters};

pub use handle::{HandleError, Handled, NotRefused};
pub use keep::{RemakeError, SnapshotStrategy};
pub use load::{LoadError, Past, PastCommit};
pub use regenerate::{IdRange, RegenerateError, Regenerated};
pub use request::Request;
pub use retries::Retries;

use keep::Keeping;

use annals_system::{SystemClock, SystemRandomness};

/// The aggregates of one type in a log: loads them, and commits the events that commands decide. Clones share everything.
///
/// ```
/// # use annals_core::{AggregateType, DEFAULT_TENANT};
/// # use annals_embedded::{EmbeddedStore, Options, disk::MemoryDisk};
/// # use annals_runtime::{Aggregates, Request};
/// # use serde::{Deserialize, Serialize};
/// # #[derive(Default, Serialize, Deserialize)]
/// # struct Door { open: bool }
/// # #[derive(Serialize, Deserialize)]
/// # enum DoorEvent { Opened, Closed }
/// # impl AggregateType for Door {
/// #     const NAME: &'static str = "door";
/// #     type Event = DoorEvent;
/// #     fn evolve(&mut self, event: DoorEvent) { self.open = matches!(event, DoorEvent::Opened) }
/// # }
/// # impl Door {
/// #     fn open(&self) -> Result<Option<DoorEvent>, &'static str> {
/// #         if self.open { Err("it is open") } else { Ok(Some(DoorEvent::Opened)) }
/// #     }
/// # }
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let store = EmbeddedStore::open(std::sync::Arc::new(MemoryDisk::default()), Options::default())?;
/// let doors = Aggregates::<Door>::open(&store, DEFAULT_TENANT)?;
/// let door = doors.handle("d-1", |door| door.open()).await.expect("it is closed").aggregate;
/// assert_eq!((door.open, door.version()), (true, 1));
/// // The same request again is answered with its first outcome, although the door is open now.
/// let request = || Request::new("d-2").request_id("r-1");
/// for again in [false, true] {
///     let handled = doors.handle(request(), |door| door.open()).await.expect("it was closed");
///     assert_eq!(handled.outcome.map(|outcome| (outcome.version, outcome.duplicate)), Some((1, again)));
/// }
/// # Ok(())
/// # }
/// ```
pub struct Aggregates<A> {
    log: Arc<dyn EventLog>,
    keeping: Option<Keeping>,
    upcasters: Arc<Upcasters>,
    retries: Retries,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Randomness>,
    of: PhantomData<fn() -> A>,
}

impl<A> Clone for Aggregates<A> {
    fn clone(&self) -> Self {
        Self {
            log: self.log.clone(),
            keeping: self.keeping.clone(),
            upcasters: self.upcasters.clone(),
            retries: self.retries,
            clock: self.clock.clone(),
            random: self.random.clone(),
            of: PhantomData,
        }
    }
}

impl<A: AggregateType> Aggregates<A> {
    /// Opens the aggregates of the type in the default scope of a tenant, with a snapshot after every commit.
    ///
    /// # Errors
    /// [`UnknownLog::Tenant`] if the tenant is not declared.
    pub fn open(store: &dyn Store, tenant: &str) -> Result<Self, UnknownLog> {
        let log = store.log(tenant, DEFAULT_SCOPE)?;
        Ok(Self::new(log).snapshots(store.snapshots(tenant)?, SnapshotStrategy::default()))
    }

    /// Creates the aggregates of the type in this log, without snapshots.
    pub fn new(log: Arc<dyn EventLog>) -> Self {
        Self {
            log,
            keeping: None,
            upcasters: Arc::new(A::upcasters()),
            retries: Retries::default(),
            clock: Arc::new(SystemClock),
            random: Arc::new(SystemRandomness::default()),
            of: PhantomData,
        }
    }

    /// Sets where snapshots are kept and when they are saved. Snapshots are used only to load the current state of aggregates.
    #[must_use]
    pub fn snapshots(self, snapshots: Arc<dyn Snapshots>, strategy: SnapshotStrategy) -> Self {
        Self { keeping: Some(Keeping::new(snapshots, strategy)), ..self }
    }

    /// Sets the retries after a version conflict.
    #[must_use]
    pub fn retries(self, retries: Retries) -> Self {
        Self { retries, ..self }
    }

    /// Sets the clock that supplies the times of events. Default: the system's.
    #[must_use]
    pub fn clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }

    /// Sets the source of the random bits for pauses. Default: the system's.
    #[must_use]
    pub fn randomness(self, random: Arc<dyn Randomness>) -> Self {
        Self { random, ..self }
    }
}
