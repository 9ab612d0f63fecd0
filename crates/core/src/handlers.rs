//! Handlers: programs in any language that process the events of a log or a stream, in order per partition.

mod act;
mod acted;
mod definition;
mod error;
mod state_document;
mod status;
mod stored;
mod wire;

use async_trait::async_trait;

use crate::trace::TraceContext;
use crate::{ByteString, RecordedEvent, StoreError, Timestamp};

pub use act::{Act, ActBody, ActEntry, ActPage, End, Place, Reason};
pub use acted::{ACTS, ActRecord, REPLAYS, ReplayRecord};
pub use definition::{HandlerDefinition, HandlerSource, Start};
pub use error::HandlerError;
pub use state_document::{StateDocument, StateOf, unpartitioned_failure};
pub use status::{
    HandlerPage, HandlerState, HandlerStatus, PartitionPage, PartitionState, PartitionStatus, ReplayStatus,
    WorkerStatus,
};
pub use stored::{
    DefinitionRecord, FAILING_PARTITIONS, FailingRecord, HANDLERS, PARKED_EVENTS, PROCESSORS, ParkedRecord,
    ProcessorRecord, ReplayMark, partitions_of,
};
pub use wire::{DeliveryFailure, PullBody, SettleBody, SettleResult, Settlement, read_deliveries, write_deliveries};

/// The handlers of one tenant.
///
/// A handler is defined once; workers then *pull* deliveries and *settle* each one. The guarantees:
///
/// - **At least once, in order per partition.** The next event of a partition is delivered only after the previous one is settled. An event
///   is delivered again after a failure, after its lease expired, and after its owner restarted, but never after its success was
///   acknowledged.
/// - **A failing partition delays no other**, and none of its events is skipped. It has a position of its own, survives restarts, and
///   catches up once its event succeeds. Without partitions (`partition_by` none) a failing event blocks all later ones.
/// - **One owner.** If several processes share a store, only one of them at a time hands out a handler's events. A pull at another process
///   waits until that process becomes the owner, which takes at most 5 s after the owner died or had no workers for 10 s.
/// - **Durable.** A settlement is acknowledged after it is stored.
#[async_trait]
pub trait Handlers: Send + Sync + 'static {
    /// Defines a handler, or changes how an existing one hands out events. Returns true if it did not exist before.
    ///
    /// # Errors
    /// [`HandlerError::Changed`] if its source, partitions or start differ; otherwise see [`HandlerError`].
    async fn put(&self, definition: HandlerDefinition) -> Result<bool, HandlerError>;

    /// Lists handlers by name: at most `limit` of those after `after`.
    ///
    /// # Errors
    /// See [`HandlerError`].
    async fn list(&self, after: Option<&str>, limit: usize) -> Result<HandlerPage, HandlerError>;

    /// Returns the state of a handler.
    ///
    /// # Errors
    /// See [`HandlerError`].
    async fn get(&self, name: &str) -> Result<HandlerStatus, HandlerError>;

    /// Deletes a handler with its position, failing partitions and parked events. Its acts remain listed.
    ///
    /// # Errors
    /// See [`HandlerError`].
    async fn delete(&self, name: &str, reason: Reason) -> Result<(), HandlerError>;

    /// Takes deliveries, and waits for the first one as long as the request says. Dropping the future before it returns takes none.
    ///
    /// # Errors
    /// See [`HandlerError`].
    async fn pull(&self, name: &str, pull: PullBody) -> Result<Vec<Delivery>, HandlerError>;

    /// Settles deliveries in the order given, and returns the results once they are stored.
    ///
    /// # Errors
    /// See [`HandlerError`]. No delivery is then known to be settled, and settling again is safe.
    async fn settle(&self, name: &str, settle: SettleBody) -> Result<Vec<SettleResult>, HandlerError>;

    /// Lists failing partitions by name: at most `limit` of those after `after`.
    ///
    /// # Errors
    /// See [`HandlerError`].
    async fn partitions(&self, name: &str, after: Option<&str>, limit: usize) -> Result<PartitionPage, HandlerError>;

    /// Performs an operator's act, records it in the same batch, and returns once both are stored.
    ///
    /// # Errors
    /// See [`HandlerError`]; nothing was changed or recorded in that case.
    async fn act(&self, name: &str, act: Act, reason: Reason) -> Result<(), HandlerError>;

    /// Lists the acts of operators on a handler, newest first: at most `limit` of those before the cursor `after`. The acts of a deleted
    /// handler remain listed.
    ///
    /// # Errors
    /// See [`HandlerError`]; [`HandlerError::Unknown`] if there is neither a handler nor an act of that name.
    async fn acts(&self, name: &str, after: Option<&str>, limit: usize) -> Result<ActPage, HandlerError>;

    /// Returns the state of every handler and of every filter of a scope, each as a document of the Dolittle Runtime's collection
    /// `stream-processor-states`, or `x-<scope>-stream-processor-states`, without `_id`; see [`StateDocument`].
    ///
    /// # Errors
    /// See [`HandlerError`]; `unknown_scope`.
    async fn states(&self, scope: &str) -> Result<Vec<bson::Document>, HandlerError>;
}

/// An event on its way to a worker, to be settled under its token.
#[derive(Debug, Clone, PartialEq)]
pub struct Delivery {
    /// Identifies this delivery.
    pub token: String,
    /// The event.
    pub event: RecordedEvent,
    /// The event's position in the handler's source.
    pub position: u64,
    /// Its partition; none if the handler has no partitions.
    pub partition: Option<ByteString>,
    /// The number of this attempt, from 1.
    pub attempt: u32,
    /// The reason why the previous attempt failed.
    pub last_reason: Option<String>,
    /// When its lease expires: a later settlement counts as a failure.
    pub until: Timestamp,
    /// The replay that delivers it again, if the handler had already passed it when the replay began.
    pub replay: Option<ByteString>,
    /// The topic that the replay sends it to, if that is not the topic of its type.
    pub topic: Option<ByteString>,
    /// The parent of the worker's own spans and commits: the span of the delivery if spans are recorded, otherwise that of the event's
    /// commit.
    pub trace: Option<TraceContext>,
}

impl From<StoreError> for HandlerError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}
