//! Errors of requests about projections.

use crate::{ByteString, Code, Invalid, ReadError, RecordError, StoreError};

/// Why a request about projections was refused. Nothing has changed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ProjectionError {
    /// It breaks a rule of the API.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// There is no such projection.
    #[error("projection {0:?} is not defined; define it with PUT /v1/projections/{0}")]
    Unknown(ByteString),
    /// The state of the projection does not permit the act.
    #[error("cannot {act} {what}: {state}")]
    NotAllowed {
        /// The act.
        act: String,
        /// The target of the act, for people.
        what: String,
        /// The current state.
        state: String,
    },
    /// The store failed.
    #[error(transparent)]
    Store(StoreError),
}

impl ProjectionError {
    /// Returns the stable code of this error.
    pub fn code(&self) -> Code {
        match self {
            Self::Invalid(invalid) => invalid.code,
            Self::Unknown(_) => Code::UnknownProjection,
            Self::NotAllowed { .. } => Code::StateConflict,
            Self::Store(error) => error.code(),
        }
    }
}

impl From<StoreError> for ProjectionError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<RecordError> for ProjectionError {
    fn from(error: RecordError) -> Self {
        match error {
            RecordError::Store(error) => Self::Store(error),
            RecordError::Invalid(invalid) => Self::Invalid(invalid),
            // Another process changed data after this one had read it.
            other => Self::Store(StoreError::Unreachable(other.to_string())),
        }
    }
}

impl From<ReadError> for ProjectionError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Store(error) => Self::Store(error),
            ReadError::Invalid(invalid) => Self::Invalid(invalid),
        }
    }
}
