//! Errors of requests about the archive.

use crate::browse::BrowseError;
use crate::{Code, Invalid, ReadError, RecordError, StoreError};

/// Why a request about the archive was refused. Nothing was changed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// The request breaks a rule of the API.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The view has no event with this id.
    #[error("the browse view has no event {0:?}; it may have expired or been deleted")]
    UnknownEvent(String),
    /// The archive has no event with this id.
    #[error("the archive has no event {0:?}; GET /v1/events/archive lists archived events")]
    NotArchived(String),
    /// There is no such rule.
    #[error("there is no retention for {0:?}; GET /v1/retention lists the categories and types that have one")]
    UnknownRule(String),
    /// There is no such hold.
    #[error("there is no hold {0:?}; GET /v1/holds lists those that exist")]
    UnknownHold(String),
    /// The current state of the object does not allow the act.
    #[error("cannot {act} {what}: {state}")]
    NotAllowed {
        /// The act.
        act: String,
        /// The object of the act.
        what: String,
        /// The object's state.
        state: String,
    },
    /// The browse view is switched off.
    #[error("the browse view of this tenant is switched off; switch it on with PUT /v1/events/view")]
    Off,
    /// The store failed or refused the operation.
    #[error(transparent)]
    Store(StoreError),
}

impl ArchiveError {
    /// Returns the stable code of this error.
    pub fn code(&self) -> Code {
        match self {
            Self::Invalid(invalid) => invalid.code,
            Self::UnknownEvent(_) => Code::UnknownEvent,
            Self::NotArchived(_) => Code::UnknownArchivedEvent,
            Self::UnknownRule(_) => Code::UnknownRetention,
            Self::UnknownHold(_) => Code::UnknownHold,
            Self::NotAllowed { .. } => Code::StateConflict,
            Self::Off => Code::BrowseViewOff,
            Self::Store(error) => error.code(),
        }
    }
}

impl From<StoreError> for ArchiveError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<BrowseError> for ArchiveError {
    fn from(error: BrowseError) -> Self {
        match error {
            BrowseError::Invalid(invalid) => Self::Invalid(invalid),
            BrowseError::UnknownEvent(id) => Self::UnknownEvent(id),
            BrowseError::Off => Self::Off,
            BrowseError::NotAllowed { act, state } => {
                Self::NotAllowed { act, what: "the browse view".to_owned(), state }
            }
            BrowseError::Store(error) => Self::Store(error),
        }
    }
}

impl From<RecordError> for ArchiveError {
    fn from(error: RecordError) -> Self {
        BrowseError::from(error).into()
    }
}

impl From<ReadError> for ArchiveError {
    fn from(error: ReadError) -> Self {
        BrowseError::from(error).into()
    }
}
