//! Errors of requests about handlers.

use crate::{ByteString, Code, Invalid, ReadError, RecordError, StoreError};

/// The reason why a request about handlers was refused. Nothing was changed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum HandlerError {
    /// The request breaks a rule of the API.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// There is no such handler.
    #[error("handler {0:?} is not defined; define it with PUT /v1/handlers/{0}")]
    Unknown(ByteString),
    /// The partition is not failing.
    #[error("partition {partition:?} of handler {handler:?} is not failing")]
    UnknownPartition {
        /// The handler.
        handler: ByteString,
        /// The partition.
        partition: ByteString,
    },
    /// The handler exists, and a setting that cannot be changed differs.
    #[error(
        "handler {name:?} already exists with a different {setting}, for which its position is not valid; delete it \
         first, or choose another name"
    )]
    Changed {
        /// The handler.
        name: ByteString,
        /// The first setting that differs.
        setting: String,
    },
    /// The state of the handler or partition does not allow the act.
    #[error("cannot {act} {what}: {state}")]
    NotAllowed {
        /// The act.
        act: String,
        /// What the act concerns, for people.
        what: String,
        /// The state it is in.
        state: String,
    },
    /// Another process hands out this handler's events.
    #[error("handler {name:?} is owned by process {owner}; send the request to that process, or wait until it stops")]
    OwnedElsewhere {
        /// The handler.
        name: ByteString,
        /// The process.
        owner: String,
    },
    /// The store cannot execute the request.
    #[error(transparent)]
    Store(StoreError),
}

impl HandlerError {
    /// Returns the stable code of this error.
    pub fn code(&self) -> Code {
        match self {
            Self::Invalid(invalid) => invalid.code,
            Self::Unknown(_) => Code::UnknownHandler,
            Self::UnknownPartition { .. } => Code::UnknownPartition,
            Self::Changed { .. } => Code::HandlerChanged,
            Self::NotAllowed { .. } => Code::StateConflict,
            Self::OwnedElsewhere { .. } => Code::HandlerOwnedElsewhere,
            Self::Store(error) => error.code(),
        }
    }
}

impl From<RecordError> for HandlerError {
    fn from(error: RecordError) -> Self {
        match error {
            RecordError::Store(error) => Self::Store(error),
            RecordError::Invalid(invalid) => Self::Invalid(invalid),
            // Another process changed what this one had read.
            other => Self::Store(StoreError::Unreachable(other.to_string())),
        }
    }
}

impl From<ReadError> for HandlerError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Store(error) => Self::Store(error),
            ReadError::Invalid(invalid) => Self::Invalid(invalid),
        }
    }
}
