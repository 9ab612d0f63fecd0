//! Errors of a broker.

use crate::{ByteString, Code, Invalid, ReadError, RecordError, StoreError};

/// Why a broker refused a call. Unless a variant says otherwise, nothing was changed or published.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BrokerError {
    /// The request breaks a rule of the API.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The topic does not exist, or has no such partition.
    #[error("topic {0:?} does not exist; create it with `annals topic apply`")]
    UnknownTopic(ByteString),
    /// Another publisher of this store has taken over. Close this one: none of its batches becomes visible from now on.
    #[error("another relay of this store has taken over; this one stops")]
    Fenced,
    /// The broker refuses this message, and would refuse it again, for example because it is too large. Nothing of its batch was
    /// published.
    #[error("the broker refuses message {at} of the batch, for topic {topic:?}: {reason}")]
    RefusedMessage {
        /// The message's index in the batch.
        at: usize,
        /// The message's topic.
        topic: ByteString,
        /// The broker's reason.
        reason: String,
    },
    /// The broker refuses the request, and would refuse it again.
    #[error("the broker refuses the request: {0}")]
    Refused(String),
    /// The outcome of a batch is unknown. Open a new publisher, which settles the outcome, and read its position.
    #[error("whether the batch was published is unknown: {0}; open a new publisher and read its position")]
    OutcomeUnknown(String),
    /// The broker cannot be reached at the moment. Retry with back-off.
    #[error("the broker is unavailable: {0}; commits continue, and pending events are published once it is back")]
    Unavailable(String),
    /// The partition is no longer assigned to this member. Its offsets were not committed.
    #[error("partition {1} of topic {0:?} is assigned to another member")]
    NotAssigned(ByteString, u32),
    /// The store failed, where topics are views of the log.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl BrokerError {
    /// Returns the stable code of this error.
    pub fn code(&self) -> Code {
        match self {
            Self::Invalid(invalid) => invalid.code,
            Self::UnknownTopic(_) => Code::UnknownTopic,
            Self::RefusedMessage { .. } | Self::Refused(_) | Self::NotAssigned(..) => Code::StateConflict,
            Self::Fenced | Self::OutcomeUnknown(_) | Self::Unavailable(_) => Code::BrokerUnavailable,
            Self::Store(error) => error.code(),
        }
    }
}

impl From<RecordError> for BrokerError {
    fn from(error: RecordError) -> Self {
        match error {
            RecordError::Store(error) => Self::Store(error),
            RecordError::Invalid(invalid) => Self::Invalid(invalid),
            // Another process changed what this one had read.
            other => Self::Store(StoreError::Unreachable(other.to_string())),
        }
    }
}

impl From<ReadError> for BrokerError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Store(error) => Self::Store(error),
            ReadError::Invalid(invalid) => Self::Invalid(invalid),
        }
    }
}
