//! Errors of requests about credentials.

use crate::{ByteString, Code, Invalid, RecordError, StoreError};

/// Why a request about credentials was refused. Nothing was changed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CredentialError {
    /// The request breaks a rule of the API.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The credential does not exist.
    #[error("credential {0:?} does not exist; `annals credential list` prints those that do")]
    Unknown(ByteString),
    /// The caller is not allowed to make the request.
    #[error("{message}")]
    Refused {
        /// `unauthenticated`, `forbidden` or `rate_limited`.
        code: Code,
        /// What happened, as one sentence.
        message: String,
    },
    /// The store failed or refused the operation.
    #[error(transparent)]
    Store(StoreError),
}

impl CredentialError {
    /// Returns the stable code of this error.
    pub fn code(&self) -> Code {
        match self {
            Self::Invalid(invalid) => invalid.code,
            Self::Unknown(_) => Code::UnknownCredential,
            Self::Refused { code, .. } => *code,
            Self::Store(error) => error.code(),
        }
    }
}

impl From<StoreError> for CredentialError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<RecordError> for CredentialError {
    fn from(error: RecordError) -> Self {
        match error {
            RecordError::Store(error) => Self::Store(error),
            RecordError::Invalid(invalid) => Self::Invalid(invalid),
            // Another process changed what this one had read.
            other => Self::Store(StoreError::Unreachable(other.to_string())),
        }
    }
}
