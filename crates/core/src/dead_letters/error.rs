//! Why a request about dead letters was refused.

use crate::{ByteString, Code, Invalid, RecordError, StoreError};

/// Why a request about dead letters was refused. Nothing was changed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DeadLetterError {
    /// It breaks a rule of the API.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// There is no such letter.
    #[error("there is no dead letter {0:?}; list them with GET /v1/dead-letters")]
    Unknown(ByteString),
    /// The letter is over.
    #[error("dead letter {id:?} is {state}; only a pending or scheduled letter can be {act}")]
    Terminal {
        /// The letter.
        id: ByteString,
        /// Its state.
        state: String,
        /// What was asked for.
        act: String,
    },
    /// The store did not do it.
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
