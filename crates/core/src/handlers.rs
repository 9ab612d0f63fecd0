//! Handlers: programs in any language that process the events of a log or a stream, in order per partition.

mod definition;
mod error;
mod status;
mod stored;
mod wire;

use async_trait::async_trait;

use crate::{ByteString, RecordedEvent, StoreError, Timestamp};

pub use definition::{HandlerDefinition, HandlerSource, Start};
pub use error::HandlerError;
pub use status::{HandlerPage, HandlerState, HandlerStatus, PartitionPage, PartitionStatus, WorkerStatus};
pub use stored::{
    DefinitionRecord, FAILING_PARTITIONS, FailingRecord, HANDLERS, PARKED_EVENTS, PROCESSORS, ParkedRecord,
    ProcessorRecord, partitions_of,
};
pub use wire::{
    ActBody, DeliveryFailure, PullBody, SettleBody, SettleResult, Settlement, read_deliveries, write_deliveries,
};

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

    /// Deletes a handler with its position, failing partitions and parked events.
    ///
    /// # Errors
    /// See [`HandlerError`].
    async fn delete(&self, name: &str) -> Result<(), HandlerError>;

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

    /// Does what an operator asks for, and answers once it is stored.
    ///
    /// # Errors
    /// See [`HandlerError`].
    async fn act(&self, name: &str, act: Act, reason: &str) -> Result<(), HandlerError>;
}

/// What an operator can do to a handler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// Stops handing out events; those in flight can be settled.
    Pause,
    /// Hands out events again.
    Resume,
    /// Attempts a failing partition's event at once, and begins its retry policy again.
    Retry(ByteString),
    /// Skips a failing partition's event: it is recorded among the parked ones as skipped, and the partition continues.
    Skip(ByteString),
    /// Parks a failing partition's event, and lets the partition continue.
    Park(ByteString),
}

impl Act {
    /// Its name in the API.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Retry(_) => "retry",
            Self::Skip(_) => "skip",
            Self::Park(_) => "park",
        }
    }

    /// The act on a partition of this name.
    pub fn of_partition(name: &str, partition: ByteString) -> Option<Self> {
        match name {
            "retry" => Some(Self::Retry(partition)),
            "skip" => Some(Self::Skip(partition)),
            "park" => Some(Self::Park(partition)),
            _ => None,
        }
    }

    /// The failing partition it is about.
    pub fn partition(&self) -> Option<&ByteString> {
        match self {
            Self::Pause | Self::Resume => None,
            Self::Retry(partition) | Self::Skip(partition) | Self::Park(partition) => Some(partition),
        }
    }
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
}

impl From<StoreError> for HandlerError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}
