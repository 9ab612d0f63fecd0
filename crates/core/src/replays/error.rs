//! Errors of requests about replays.

use crate::browse::BrowseError;
use crate::handlers::HandlerError;
use crate::{ByteString, Code, Invalid, ReadError, RecordError, StoreError};

/// Why a request about replays was refused. Nothing has changed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// It breaks a rule of the API.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// There is no such replay.
    #[error("there is no replay {0:?}; GET /v1/replays lists those that exist")]
    Unknown(ByteString),
    /// The state of the replay does not permit the act.
    #[error("cannot {act} replay {id:?}, which is {state}")]
    NotAllowed {
        /// The act.
        act: String,
        /// The replay.
        id: String,
        /// The current state.
        state: String,
    },
    /// The browse view, which supplies the events, refused the request.
    #[error(transparent)]
    Browse(BrowseError),
    /// The target handler refused the request.
    #[error(transparent)]
    Handler(HandlerError),
    /// The store failed.
    #[error(transparent)]
    Store(StoreError),
}

impl ReplayError {
    /// Returns the stable code of this error.
    pub fn code(&self) -> Code {
        match self {
            Self::Invalid(invalid) => invalid.code,
            Self::Unknown(_) => Code::UnknownReplay,
            Self::NotAllowed { .. } => Code::StateConflict,
            Self::Browse(error) => error.code(),
            Self::Handler(error) => error.code(),
            Self::Store(error) => error.code(),
        }
    }
}

impl From<StoreError> for ReplayError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<BrowseError> for ReplayError {
    fn from(error: BrowseError) -> Self {
        match error {
            BrowseError::Invalid(invalid) => Self::Invalid(invalid),
            BrowseError::Store(error) => Self::Store(error),
            other => Self::Browse(other),
        }
    }
}

impl From<RecordError> for ReplayError {
    fn from(error: RecordError) -> Self {
        BrowseError::from(error).into()
    }
}

impl From<ReadError> for ReplayError {
    fn from(error: ReadError) -> Self {
        BrowseError::from(error).into()
    }
}

impl From<HandlerError> for ReplayError {
    fn from(error: HandlerError) -> Self {
        match error {
            HandlerError::Invalid(invalid) => Self::Invalid(invalid),
            HandlerError::Store(error) => Self::Store(error),
            other => Self::Handler(other),
        }
    }
}
