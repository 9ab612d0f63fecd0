//! The port that receives events of other microservices over the event horizon.

use std::sync::Arc;

use async_trait::async_trait;
use bytestring::ByteString;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::commit::valid_time;
use crate::{
    Code, Data, Invalid, NewCommit, NewEvent, SequenceNumber, StoreError, StreamPosition, Timestamp, limits, valid_id,
};

/// A subscription of a scope: one partition of a public stream of a producer's tenant.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Subscription {
    /// The microservice from which the events come.
    pub producer: ByteString,
    /// The producer's tenant.
    pub tenant: ByteString,
    /// The producer's public stream.
    pub stream: ByteString,
    /// The partition of that stream; empty if it has none.
    pub partition: ByteString,
}

/// The origin of a received event, and the consent under which it came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceivedFrom {
    /// The subscription through which it came.
    #[serde(flatten)]
    pub subscription: Subscription,
    /// The event's sequence number in the producer's log.
    pub sequence_number: SequenceNumber,
    /// The event's position in the producer's stream.
    pub position: StreamPosition,
    /// The consent under which the producer sent it.
    pub consent: Uuid,
    /// When it was received.
    pub at: Timestamp,
}

/// An event that a scope is about to receive.
#[derive(Debug, Clone, PartialEq)]
pub struct IncomingEvent {
    /// Its position in the producer's stream.
    pub position: StreamPosition,
    /// Its sequence number in the producer's log.
    pub sequence_number: SequenceNumber,
    /// Its type.
    pub event_type: ByteString,
    /// The generation of the type's schema.
    pub generation: u32,
    /// Its content.
    pub data: Data,
    /// When it happened.
    pub time: Timestamp,
    /// The id of the aggregate of the producer's event, or its event source.
    pub source: ByteString,
    /// The operation that it belongs to.
    pub correlation_id: Option<ByteString>,
}

/// Consecutive events of one subscription, as the producer sent them.
#[derive(Debug, Clone, PartialEq)]
pub struct ReceivedBatch {
    /// The subscription through which they come.
    pub subscription: Subscription,
    /// The consent under which the producer sends them.
    pub consent: Uuid,
    /// The position from which the producer read its stream. The batch contains every event of the partition from here up to its last
    /// event.
    pub from: StreamPosition,
    /// The events, 1 to 1,000; positions and sequence numbers ascend.
    pub events: Vec<IncomingEvent>,
}

/// The progress of a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SubscriptionState {
    /// The position from which the producer must send next: one past that of the last received event, 0 at first.
    pub position: StreamPosition,
    /// The last received event's sequence number in the producer's log; `None` before the first.
    pub sequence_number: Option<SequenceNumber>,
}

/// The result of receiving a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// The sequence number of its first event in the log of the scope.
    pub first: SequenceNumber,
    /// The progress of the subscription after it.
    pub state: SubscriptionState,
    /// Whether the batch had been received before, so that nothing was added.
    pub duplicate: bool,
}

/// Why a batch was refused. Except after [`StoreError::Failed`] and [`StoreError::Unreachable`], none of it was stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// The batch breaks a rule of the port.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The batch does not begin at the position of the subscription.
    #[error("the batch begins at position {from}, but the subscription is at position {}; resume from there", .stored.position)]
    Moved {
        /// The position at which the batch begins.
        from: StreamPosition,
        /// The progress of the subscription.
        stored: SubscriptionState,
    },
    /// The batch has other events than were received at its positions, or sequence numbers that do not follow those that were received.
    #[error(
        "event {sequence_number} of the producer at position {position} is not the event that was received there; the \
         producer's log has been replaced: delete the subscription and define another"
    )]
    OtherEvents {
        /// The position of the first such event.
        position: StreamPosition,
        /// Its sequence number in the producer's log.
        sequence_number: SequenceNumber,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Receives events into the log of one scope.
///
/// ```text
///  producer's stream     position   0   1   2   3   4          one call: events 2 and 4 of the partition, from = 2
///                        partition  p   q   p   q   p
///  log of the scope      … │ 1 of another subscription │ 0 │ 2 │ 4 │        state: position 5
/// ```
///
/// An implementation MUST keep these guarantees; the conformance suite tests each of them.
///
/// - **One write.** The events of a batch, the state of its subscription and the head of the scope's log change together: after a crash at
///   any moment, either all of them have changed or none has.
/// - **Once.** An event of a subscription is in the log at most once. A batch is a repeat if it begins before the stored position and does
///   not extend past it. It adds nothing and is reported as `duplicate`; with other events it is refused.
/// - **No gap.** A batch that begins after the stored position, or begins before it and extends past it, is refused with the stored state,
///   from which the caller resumes.
/// - **One winner.** If batches race from one position, one is received. The others are repeats of it, or are refused.
/// - **Durable.** Whatever a caller was told, including a state, survives kill -9 and power loss.
/// - **Its origin stays readable.** A received event belongs to no aggregate and keeps its event source.
///   [`CommitInfo::received`](crate::CommitInfo::received) holds its origin. Each event is a commit of its own, with an id that the store
///   assigns.
#[async_trait]
pub trait Receiving: Send + Sync + 'static {
    /// Stores a batch, and returns once it is durable.
    ///
    /// # Errors
    /// See [`ReceiveError`].
    async fn receive(&self, batch: ReceivedBatch) -> Result<Received, ReceiveError>;

    /// Returns the progress of a subscription.
    ///
    /// # Errors
    /// See [`ReceiveError`].
    async fn state(&self, subscription: &Subscription) -> Result<SubscriptionState, ReceiveError>;
}

impl Subscription {
    /// Checks the parts: ids of 1 to 256 bytes; a partition may be empty.
    ///
    /// # Errors
    /// `invalid_id` with the path of the part.
    pub fn validate(&self) -> Result<(), Invalid> {
        for (path, id) in [("producer", &self.producer), ("tenant", &self.tenant), ("stream", &self.stream)] {
            valid_id(&format!("subscription.{path}"), id)?;
        }
        if self.partition.is_empty() { Ok(()) } else { valid_id("subscription.partition", &self.partition) }
    }
}

impl ReceivedBatch {
    /// Checks every rule that needs no store. Backends call it before anything else.
    ///
    /// # Errors
    /// The first rule that is violated, with its path.
    pub fn validate(&self) -> Result<(), Invalid> {
        self.subscription.validate()?;
        let count = self.events.len();
        if count == 0 || count > limits::RECEIVED_MAX {
            let message = format!("holds {count} events; a batch has 1 to {}", limits::RECEIVED_MAX);
            return Err(Invalid::new(Code::InvalidEvents, "events", message));
        }
        let (mut position, mut after) = (self.from, None);
        for (place, event) in self.events.iter().enumerate() {
            let path = |field: &str| format!("events[{place}].{field}");
            if event.position < position || event.position == StreamPosition::MAX {
                return Err(Invalid::new(
                    Code::InvalidRange,
                    path("position"),
                    "positions ascend, beginning at `from`",
                ));
            }
            if after.is_some_and(|after| event.sequence_number <= after) {
                let message = "sequence numbers ascend";
                return Err(Invalid::new(Code::InvalidRange, path("sequence_number"), message));
            }
            (position, after) = (event.position + 1, Some(event.sequence_number));
            valid_id(&path("source"), &event.source)?;
            valid_time(&path("time"), event.time)?;
        }
        // Received events follow the rules of commits, including sizes.
        let events = self.events.iter().map(IncomingEvent::as_new).collect();
        let commit = NewCommit { events, ..NewCommit::new("received", "received") };
        commit.validate()?;
        let correlations = self.events.iter().filter_map(|event| event.correlation_id.as_ref());
        correlations.into_iter().try_for_each(|id| valid_id("events.correlation_id", id))
    }

    /// Returns the position from which the next batch begins.
    pub fn next(&self) -> StreamPosition {
        self.events.last().map_or(self.from, |last| last.position + 1)
    }

    /// Returns the progress of the subscription once the batch has been received.
    pub fn state(&self) -> SubscriptionState {
        SubscriptionState { position: self.next(), sequence_number: self.events.last().map(|it| it.sequence_number) }
    }

    /// Returns the origin of one of the events, received at `at`.
    pub fn received_from(&self, event: &IncomingEvent, at: Timestamp) -> Arc<ReceivedFrom> {
        Arc::new(ReceivedFrom {
            subscription: self.subscription.clone(),
            sequence_number: event.sequence_number,
            position: event.position,
            consent: self.consent,
            at,
        })
    }
}

impl IncomingEvent {
    /// Returns the event as a scope stores it.
    pub fn as_new(&self) -> NewEvent {
        NewEvent {
            generation: self.generation,
            time: Some(self.time),
            ..NewEvent::new(self.event_type.clone(), self.data.clone())
        }
    }
}

impl ReceiveError {
    /// Returns the stable code of this error.
    pub fn code(&self) -> Code {
        match self {
            Self::Invalid(invalid) => invalid.code,
            Self::Moved { .. } => Code::SubscriptionMoved,
            Self::OtherEvents { .. } => Code::OtherEvents,
            Self::Store(error) => error.code(),
        }
    }
}

/// An implementation for stores that do not support receiving.
pub(crate) struct NoReceiving;

fn not_supported() -> ReceiveError {
    StoreError::NotSupported("receiving events of other microservices".to_owned()).into()
}

#[async_trait]
impl Receiving for NoReceiving {
    async fn receive(&self, _: ReceivedBatch) -> Result<Received, ReceiveError> {
        Err(not_supported())
    }

    async fn state(&self, _: &Subscription) -> Result<SubscriptionState, ReceiveError> {
        Err(not_supported())
    }
}
