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

/// What a scope receives: one partition of a public stream of a producer's tenant.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Subscription {
    /// The microservice that the events come from.
    pub producer: ByteString,
    /// The producer's tenant.
    pub tenant: ByteString,
    /// The producer's public stream.
    pub stream: ByteString,
    /// The partition of that stream; empty where it has none.
    pub partition: ByteString,
}

/// Where a received event came from, and on what terms.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceivedFrom {
    /// The subscription that it came by.
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

/// An event on its way into a scope.
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
    /// What the producer's event is of: the id of its aggregate, or another event source.
    pub source: ByteString,
    /// Groups everything that follows from one cause.
    pub correlation_id: Option<ByteString>,
}

/// Neighbouring events of one subscription, as the producer sent them.
#[derive(Debug, Clone, PartialEq)]
pub struct ReceivedBatch {
    /// The subscription that they come by.
    pub subscription: Subscription,
    /// The consent under which the producer sends them.
    pub consent: Uuid,
    /// The position from which the producer read its stream: every event of the partition from here up to the last one is in the batch.
    pub from: StreamPosition,
    /// The events, 1 to 1,000; positions and sequence numbers ascend.
    pub events: Vec<IncomingEvent>,
}

/// How far a subscription has been received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SubscriptionState {
    /// The position from which the producer is to send: one past that of the last received event, 0 at first.
    pub position: StreamPosition,
    /// The sequence number of the last received event in the producer's log; none before the first.
    pub sequence_number: Option<SequenceNumber>,
}

/// What became of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// The number of its first event in the log of the scope.
    pub first: SequenceNumber,
    /// Where the subscription stands now.
    pub state: SubscriptionState,
    /// True when the batch was received before: nothing was added.
    pub duplicate: bool,
}

/// Why a batch was refused. Except for [`StoreError::Failed`] and [`StoreError::Unreachable`], nothing of it was stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// The batch breaks a rule of the port.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The batch does not begin where the subscription stands.
    #[error("the batch begins at position {from}, but the subscription stands at {}; resume from there", .stored.position)]
    Moved {
        /// Where the batch begins.
        from: StreamPosition,
        /// Where the subscription stands.
        stored: SubscriptionState,
    },
    /// The batch has other events than were received at its positions, or numbers that do not follow those that were received.
    #[error(
        "event {sequence_number} of the producer at position {position} is not what was received there; the producer's log is another \
         one than before: end the subscription and begin another"
    )]
    OtherEvents {
        /// The position of the first such event.
        position: StreamPosition,
        /// Its number in the producer's log.
        sequence_number: SequenceNumber,
    },
    /// The store cannot take it.
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
/// An implementation MUST keep these promises; the conformance suite tests each.
///
/// - **One write.** The events of a batch, the state of its subscription and the head of the scope's log change together: after a crash
///   at any moment all of them are there, or none is.
/// - **Once.** An event of a subscription is in the log at most once. A batch that was received before, from an older position to one that
///   is not beyond the stored one, adds nothing and is answered as `duplicate`; with other events it is refused.
/// - **No gap.** A batch that begins behind the stored position, or before it and ends behind it, is refused with the stored state, from
///   which the caller resumes.
/// - **One winner.** Of batches that race from one position, one is received. The others are repeats of it, or are refused.
/// - **Durable.** Whatever a caller was told, a state included, survives kill -9 and power loss.
/// - **What came with it** stays readable: a received event is of no aggregate, has its event source, and
///   [`CommitInfo::received`](crate::CommitInfo::received) says where it came from. Each is a commit of its own. Its id is the store's.
#[async_trait]
pub trait Receiving: Send + Sync + 'static {
    /// Stores a batch, and answers once it is durable.
    ///
    /// # Errors
    /// See [`ReceiveError`].
    async fn receive(&self, batch: ReceivedBatch) -> Result<Received, ReceiveError>;

    /// Returns how far a subscription has been received.
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
    /// The first rule that is broken, with its path.
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
        // The rules of events are those of commits, sizes included.
        let events = self.events.iter().map(IncomingEvent::as_new).collect();
        let commit = NewCommit { events, ..NewCommit::new("received", "received") };
        commit.validate()?;
        let correlations = self.events.iter().filter_map(|event| event.correlation_id.as_ref());
        correlations.into_iter().try_for_each(|id| valid_id("events.correlation_id", id))
    }

    /// The position from which the next batch begins.
    pub fn next(&self) -> StreamPosition {
        self.events.last().map_or(self.from, |last| last.position + 1)
    }

    /// Where the subscription stands once the batch has been received.
    pub fn state(&self) -> SubscriptionState {
        SubscriptionState { position: self.next(), sequence_number: self.events.last().map(|it| it.sequence_number) }
    }

    /// Where the event at this place comes from, received at `at`.
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
    /// The event as a scope stores it.
    pub fn as_new(&self) -> NewEvent {
        NewEvent {
            generation: self.generation,
            time: Some(self.time),
            ..NewEvent::new(self.event_type.clone(), self.data.clone())
        }
    }
}

impl ReceiveError {
    /// The stable code of this error.
    pub fn code(&self) -> Code {
        match self {
            Self::Invalid(invalid) => invalid.code,
            Self::Moved { .. } => Code::SubscriptionMoved,
            Self::OtherEvents { .. } => Code::OtherEvents,
            Self::Store(error) => error.code(),
        }
    }
}

/// A store that receives nothing.
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
