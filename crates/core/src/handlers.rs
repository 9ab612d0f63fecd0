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
/// A handler is defined once; workers then *pull* deliveries and *settle* each. What is promised:
///
/// - **At least once, in order per partition.** The next event of a partition is delivered only after the one before is settled. An
///   event is delivered again after its failure, after its lease ended, and after its owner restarted; never after its success was
///   answered.
/// - **A failing partition holds up no other**, and none of its events is skipped. It has a position of its own, keeps its place over
///   restarts, and catches up once its event succeeds. Without partitions (`partition_by` none) a failing event holds up all.
/// - **One owner.** Of several processes on one store, one at a time hands out a handler's events; a pull at another waits until that
///   process becomes the owner, which it does within 5 s after the owner died or had no workers for 10 s.
/// - **Durable.** A settlement is answered after it is stored.
#[async_trait]
pub trait Handlers: Send + Sync + 'static {
    /// Defines a handler, or changes how an existing one hands events out. Returns true when it did not exist before.
    ///
    /// # Errors
    /// [`HandlerError::Changed`] when its source, partitions or start differ; else see [`HandlerError`].
    async fn put(&self, definition: HandlerDefinition) -> Result<bool, HandlerError>;

    /// Lists handlers by name: those after `after`, at most `limit`.
    ///
    /// # Errors
    /// See [`HandlerError`].
    async fn list(&self, after: Option<&str>, limit: usize) -> Result<HandlerPage, HandlerError>;

    /// Returns the state of a handler.
    ///
    /// # Errors
    /// See [`HandlerError`].
    async fn get(&self, name: &str) -> Result<HandlerStatus, HandlerError>;

    /// Deletes a handler with its position, failing partitions and parked events. What operators did to it stays listed.
    ///
    /// # Errors
    /// See [`HandlerError`].
    async fn delete(&self, name: &str, reason: Reason) -> Result<(), HandlerError>;

    /// Takes deliveries; waits for the first as long as the request says. Dropping the future before it returns takes none.
    ///
    /// # Errors
    /// See [`HandlerError`].
    async fn pull(&self, name: &str, pull: PullBody) -> Result<Vec<Delivery>, HandlerError>;

    /// Settles deliveries in the order given, and answers each once that is stored.
    ///
    /// # Errors
    /// See [`HandlerError`]; then nothing is known to be settled, and it is safe to settle again.
    async fn settle(&self, name: &str, settle: SettleBody) -> Result<Vec<SettleResult>, HandlerError>;

    /// Lists failing partitions by name: those after `after`, at most `limit`.
    ///
    /// # Errors
    /// See [`HandlerError`].
    async fn partitions(&self, name: &str, after: Option<&str>, limit: usize) -> Result<PartitionPage, HandlerError>;

    /// Does what an operator asks for, records it in the same batch, and answers once both are stored.
    ///
    /// # Errors
    /// See [`HandlerError`]; nothing was changed or recorded then.
    async fn act(&self, name: &str, act: Act, reason: Reason) -> Result<(), HandlerError>;

    /// Lists what operators did to a handler, the newest first: the acts before `after`, at most `limit`. Those of a handler that was
    /// deleted stay.
    ///
    /// # Errors
    /// See [`HandlerError`]; [`HandlerError::Unknown`] where there is neither a handler nor an act.
    async fn acts(&self, name: &str, after: Option<&str>, limit: usize) -> Result<ActPage, HandlerError>;

    /// Returns the state of every handler and of every filter of the default scope as a document of the Dolittle Runtime's collection
    /// `stream-processor-states`, without `_id`; see [`StateDocument`].
    ///
    /// # Errors
    /// See [`HandlerError`].
    async fn states(&self) -> Result<Vec<bson::Document>, HandlerError>;
}

/// An event on its way to a worker, to be settled under its token.
#[derive(Debug, Clone, PartialEq)]
pub struct Delivery {
    /// Names this delivery.
    pub token: String,
    /// The event.
    pub event: RecordedEvent,
    /// The event's position in the handler's source.
    pub position: u64,
    /// Its partition; none where the handler has none.
    pub partition: Option<ByteString>,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// What the attempt before failed with.
    pub last_reason: Option<String>,
    /// When its lease ends: settled later, it counts as failed.
    pub until: Timestamp,
    /// The replay that delivers it again, if the handler had passed it when that began.
    pub replay: Option<ByteString>,
    /// The topic that the replay sends it to, where that is not the topic of its type.
    pub topic: Option<ByteString>,
    /// The span that the worker's own spans and commits are part of: that of the delivery where spans are recorded, else that of the
    /// event's commit.
    pub trace: Option<TraceContext>,
}

impl From<StoreError> for HandlerError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}
