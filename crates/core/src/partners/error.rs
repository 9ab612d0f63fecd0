//! Errors of requests about partners.

use super::Unsigned;
use crate::{Code, Invalid, ReadError, RecordError, StoreError, UnknownLog};

/// Why a request about partners was refused. Nothing has changed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PartnerError {
    /// It breaks a rule of the API.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// There is no such partner.
    #[error("partner {0:?} is not defined; define it with PUT /v1/partners/{0}")]
    Unknown(String),
    /// There is no such event.
    #[error("there is no partner event {0:?}; it may have expired")]
    UnknownEvent(String),
    /// The signature does not prove that the request is from the partner.
    #[error(transparent)]
    Signature(#[from] Unsigned),
    /// Another event was already received with the same id.
    #[error("webhook-id {0:?} was used before with another body; give each event an id of its own")]
    OtherContent(String),
    /// The state of the event does not permit the act.
    #[error("event {id} is {state}, so it cannot be {act}; wait until the attempt has ended, or leave it as it is")]
    State {
        /// The event.
        id: String,
        /// Its state.
        state: String,
        /// The requested act.
        act: String,
    },
    /// The server has no usable key for the secrets of partners.
    #[error("secrets of partners cannot be read or stored: {0}")]
    Key(String),
    /// The store failed.
    #[error(transparent)]
    Store(StoreError),
}

impl PartnerError {
    /// Returns the stable code of this error.
    pub fn code(&self) -> Code {
        match self {
            Self::Invalid(invalid) => invalid.code,
            Self::Unknown(_) => Code::UnknownPartner,
            Self::UnknownEvent(_) => Code::UnknownPartnerEvent,
            Self::Signature(_) => Code::InvalidSignature,
            Self::OtherContent(_) => Code::WebhookIdReused,
            Self::State { .. } => Code::PartnerEventState,
            Self::Key(_) => Code::PartnerKey,
            Self::Store(error) => error.code(),
        }
    }
}

impl From<StoreError> for PartnerError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<UnknownLog> for PartnerError {
    fn from(error: UnknownLog) -> Self {
        Invalid::new(error.code(), "tenant", error.to_string()).into()
    }
}

impl From<RecordError> for PartnerError {
    fn from(error: RecordError) -> Self {
        match error {
            RecordError::Store(error) => Self::Store(error),
            RecordError::Invalid(invalid) => Self::Invalid(invalid),
            // Another process changed data after this one had read it.
            other => Self::Store(StoreError::Unreachable(other.to_string())),
        }
    }
}

impl From<ReadError> for PartnerError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Store(error) => Self::Store(error),
            ReadError::Invalid(invalid) => Self::Invalid(invalid),
        }
    }
}
