//! Errors of requests about groups.

use crate::handlers::HandlerError;
use crate::{BrokerError, ByteString, Code, Invalid, StoreError};

/// The reason why a request about groups was refused. Nothing was changed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// The request breaks a rule of the API.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// There is no such group.
    #[error("group {0:?} is not defined; define it with PUT /v1/groups/{0}")]
    Unknown(ByteString),
    /// The group exists, and a setting that cannot be changed differs.
    #[error(
        "group {name:?} already exists with a different {setting}, for which its offsets are not valid; delete it \
         first, or choose another name"
    )]
    Changed {
        /// The group.
        name: ByteString,
        /// The first setting that differs.
        setting: String,
    },
    /// The group's processor or the store refuses the request.
    #[error(transparent)]
    Processor(HandlerError),
    /// The broker refuses the request.
    #[error(transparent)]
    Broker(#[from] BrokerError),
}

impl GroupError {
    /// Returns the stable code of this error.
    pub fn code(&self) -> Code {
        match self {
            Self::Invalid(invalid) => invalid.code,
            Self::Unknown(_) => Code::UnknownGroup,
            Self::Changed { .. } => Code::GroupChanged,
            Self::Processor(error) => error.code(),
            Self::Broker(error) => error.code(),
        }
    }
}

impl From<HandlerError> for GroupError {
    fn from(error: HandlerError) -> Self {
        match error {
            HandlerError::Invalid(invalid) => Self::Invalid(invalid),
            HandlerError::Unknown(name) => Self::Unknown(name),
            HandlerError::Changed { name, setting } => {
                let setting = if setting == "source" { "list of topics".to_owned() } else { setting };
                Self::Changed { name, setting }
            }
            other => Self::Processor(other),
        }
    }
}

impl From<StoreError> for GroupError {
    fn from(error: StoreError) -> Self {
        Self::Processor(HandlerError::Store(error))
    }
}
