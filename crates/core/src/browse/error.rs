//! Errors of requests about the browse view.

use crate::projections::ProjectionError;
use crate::{Code, Invalid, ReadError, RecordError, StoreError};

/// Why a request about the browse view was refused. Nothing was changed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BrowseError {
    /// The request breaks a rule of the API.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The view has no event with this id.
    #[error("the browse view has no event {0:?}; it may have expired, or the view may not have caught up with it yet")]
    UnknownEvent(String),
    /// The view is switched off.
    #[error("the browse view of this tenant is switched off; switch it on with PUT /v1/events/view")]
    Off,
    /// The current state of the view does not allow the act.
    #[error("cannot {act} the browse view: {state}")]
    NotAllowed {
        /// The act.
        act: String,
        /// The view's state.
        state: String,
    },
    /// The store failed or refused the operation.
    #[error(transparent)]
    Store(StoreError),
}

impl BrowseError {
    /// Returns the stable code of this error.
    pub fn code(&self) -> Code {
        match self {
            Self::Invalid(invalid) => invalid.code,
            Self::UnknownEvent(_) => Code::UnknownEvent,
            Self::Off => Code::BrowseViewOff,
            Self::NotAllowed { .. } => Code::StateConflict,
            Self::Store(error) => error.code(),
        }
    }
}

impl From<StoreError> for BrowseError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<ProjectionError> for BrowseError {
    fn from(error: ProjectionError) -> Self {
        match error {
            ProjectionError::Invalid(invalid) => Self::Invalid(invalid),
            ProjectionError::Unknown(_) => Self::Off,
            ProjectionError::NotAllowed { act, state, .. } => Self::NotAllowed { act, state },
            ProjectionError::Store(error) => Self::Store(error),
        }
    }
}

impl From<RecordError> for BrowseError {
    fn from(error: RecordError) -> Self {
        ProjectionError::from(error).into()
    }
}

impl From<ReadError> for BrowseError {
    fn from(error: ReadError) -> Self {
        ProjectionError::from(error).into()
    }
}
