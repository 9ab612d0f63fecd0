//! Errors of requests about queues.

use crate::{ByteString, Code, Invalid, ReadError, RecordError, StoreError};

/// Why a request about queues was refused. Nothing has changed, except where a variant says otherwise.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// It breaks a rule of the API.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// There is no such queue.
    #[error("queue {0:?} is not defined; define it with PUT /v1/queues/{0}")]
    Unknown(ByteString),
    /// The queue has no such item.
    #[error("queue {queue:?} has no item {id:?}; it is done, was cancelled, or was never enqueued")]
    UnknownItem {
        /// The queue.
        queue: ByteString,
        /// The item.
        id: ByteString,
    },
    /// The queue accepts no more items for now.
    #[error("queue {queue:?} is full: {reason}; retry once items have been taken")]
    Full {
        /// The queue.
        queue: ByteString,
        /// The limit that was reached.
        reason: String,
    },
    /// The backend that holds the items cannot be reached. Whether the call had an effect is unknown; every call can be repeated.
    #[error("the queue cannot be reached: {0}; retry, because repeating a call is safe")]
    Unavailable(String),
    /// The store failed.
    #[error(transparent)]
    Store(StoreError),
}

impl QueueError {
    /// Returns the stable code of this error.
    pub fn code(&self) -> Code {
        match self {
            Self::Invalid(invalid) => invalid.code,
            Self::Unknown(_) => Code::UnknownQueue,
            Self::UnknownItem { .. } => Code::UnknownItem,
            Self::Full { .. } => Code::QueueFull,
            Self::Unavailable(_) => Code::QueueUnavailable,
            Self::Store(error) => error.code(),
        }
    }
}

impl From<RecordError> for QueueError {
    fn from(error: RecordError) -> Self {
        match error {
            RecordError::Store(error) => Self::Store(error),
            RecordError::Invalid(invalid) => Self::Invalid(invalid),
            // Another process changed data after this one had read it.
            other => Self::Unavailable(other.to_string()),
        }
    }
}

impl From<ReadError> for QueueError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Store(error) => Self::Store(error),
            ReadError::Invalid(invalid) => Self::Invalid(invalid),
        }
    }
}
