//! Errors of requests about sagas.

use crate::{ByteString, Code, Invalid, ReadError, RecordError, StoreError};

/// Why a request about sagas was refused. Nothing was changed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SagaError {
    /// The request breaks a rule of the API.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// There is no saga with this id.
    #[error("there is no saga {0:?}; list the sagas with GET /v1/sagas")]
    Unknown(ByteString),
    /// There is no such definition.
    #[error("saga definition {0:?} does not exist; define it with PUT /v1/saga-definitions/{0}")]
    UnknownDefinition(ByteString),
    /// The state does not allow the act.
    #[error("cannot {act} {what}: {state}")]
    NotAllowed {
        /// The act.
        act: String,
        /// What the act concerns, in readable form.
        what: String,
        /// The state it is in.
        state: String,
    },
    /// The store failed.
    #[error(transparent)]
    Store(StoreError),
}

impl SagaError {
    /// Returns the stable code of this error.
    pub fn code(&self) -> Code {
        match self {
            Self::Invalid(invalid) => invalid.code,
            Self::Unknown(_) => Code::UnknownSaga,
            Self::UnknownDefinition(_) => Code::UnknownSagaDefinition,
            Self::NotAllowed { .. } => Code::StateConflict,
            Self::Store(error) => error.code(),
        }
    }
}

impl From<StoreError> for SagaError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<RecordError> for SagaError {
    fn from(error: RecordError) -> Self {
        match error {
            RecordError::Store(error) => Self::Store(error),
            RecordError::Invalid(invalid) => Self::Invalid(invalid),
            // Another process changed a record that this one had read.
            other => Self::Store(StoreError::Unreachable(other.to_string())),
        }
    }
}

impl From<ReadError> for SagaError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Store(error) => Self::Store(error),
            ReadError::Invalid(invalid) => Self::Invalid(invalid),
        }
    }
}
