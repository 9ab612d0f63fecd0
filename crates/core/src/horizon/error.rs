//! Errors of requests about the event horizon.

use crate::{Code, Invalid, ReadError, RecordError, StoreError, UnknownLog};

/// The reason why a request about the event horizon was refused. Nothing was changed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum HorizonError {
    /// The request breaks a rule of the API.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// There is no such consent.
    #[error("consent {0:?} does not exist; give it with PUT /v1/consents/{0}")]
    UnknownConsent(String),
    /// There is no such subscription.
    #[error("subscription {0:?} is not defined; define it with PUT /v1/subscriptions/{0}")]
    UnknownSubscription(String),
    /// The producer has given no consent for what the consumer requests.
    #[error(
        "tenant {tenant:?} of microservice {microservice:?} has no consent to receive {}; an operator of the producer gives one with PUT \
         /v1/consents/ID",
        what(stream, partition)
    )]
    MissingConsent {
        /// The consumer's microservice.
        microservice: String,
        /// The consumer's tenant.
        tenant: String,
        /// The stream.
        stream: String,
        /// The partition.
        partition: String,
    },
    /// The stream is not public, or does not exist.
    #[error("stream {0:?} is not public; define a filter with \"public\": true, or name a stream that has one")]
    NotPublic(String),
    /// The store cannot execute the request.
    #[error(transparent)]
    Store(StoreError),
}

fn what(stream: &str, partition: &str) -> String {
    match partition {
        "" => format!("stream {stream:?} without a partition"),
        partition => format!("partition {partition:?} of stream {stream:?}"),
    }
}

impl HorizonError {
    /// Returns the stable code of this error.
    pub fn code(&self) -> Code {
        match self {
            Self::Invalid(invalid) => invalid.code,
            Self::UnknownConsent(_) => Code::UnknownConsent,
            Self::UnknownSubscription(_) => Code::UnknownSubscription,
            Self::MissingConsent { .. } => Code::MissingConsent,
            Self::NotPublic(_) => Code::StreamNotPublic,
            Self::Store(error) => error.code(),
        }
    }
}

impl From<StoreError> for HorizonError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<UnknownLog> for HorizonError {
    fn from(error: UnknownLog) -> Self {
        let path = match error {
            UnknownLog::Tenant(_) => "tenant",
            UnknownLog::Scope { .. } => "scope",
        };
        Invalid::new(error.code(), path, error.to_string()).into()
    }
}

impl From<RecordError> for HorizonError {
    fn from(error: RecordError) -> Self {
        match error {
            RecordError::Store(error) => Self::Store(error),
            RecordError::Invalid(invalid) => Self::Invalid(invalid),
            // Another process changed what this one had read.
            other => Self::Store(StoreError::Unreachable(other.to_string())),
        }
    }
}

impl From<ReadError> for HorizonError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Store(error) => Self::Store(error),
            ReadError::Invalid(invalid) => Self::Invalid(invalid),
        }
    }
}
