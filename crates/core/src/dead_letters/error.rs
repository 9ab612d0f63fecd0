//! Errors of requests about dead letters.

use crate::{ByteString, Code, Invalid, RecordError, StoreError};

/// Why a request about dead letters was refused. Nothing was changed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DeadLetterError {
    /// The request breaks a rule of the API.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The letter does not exist.
    #[error("there is no dead letter {0:?}; list them with GET /v1/dead-letters")]
    Unknown(ByteString),
    /// The letter is closed.
    #[error("dead letter {id:?} is {state}; only a pending or scheduled letter can be {act}")]
    Terminal {
        /// The letter.
        id: ByteString,
        /// Its state.
        state: String,
        /// The requested act.
        act: String,
    },
    /// The store failed or refused the operation.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl DeadLetterError {
    /// Returns the stable code of this error.
    pub fn code(&self) -> Code {
        match self {
            Self::Invalid(invalid) => invalid.code,
            Self::Unknown(_) => Code::UnknownDeadLetter,
            Self::Terminal { .. } => Code::StateConflict,
            Self::Store(error) => error.code(),
        }
    }
}

impl From<RecordError> for DeadLetterError {
    fn from(error: RecordError) -> Self {
        match error {
            RecordError::Store(error) => Self::Store(error),
            RecordError::Invalid(invalid) => Self::Invalid(invalid),
            // Another process changed what this one had read.
            other => Self::Store(StoreError::Unreachable(other.to_string())),
        }
    }
}
