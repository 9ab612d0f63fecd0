//! Errors of requests about filters.

use crate::{Code, Invalid, ReadError, RecordError, SequenceNumber, StoreError, StreamError};

/// The reason why a request about filters was refused. Nothing was changed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FilterError {
    /// The request breaks a rule of the API.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// There is no such filter.
    #[error("filter {0:?} is not defined; define it with PUT /v1/filters/{0}")]
    Unknown(String),
    /// The new definition contradicts the entries of the stream.
    #[error("filter {name:?} cannot be changed: {}; give the changed filter a stream of its own", changed(setting, *first_difference))]
    Changed {
        /// The filter.
        name: String,
        /// The setting that differs: `partitioned`, `public`, `kind` or `source`; `events` if the verdicts differ.
        setting: String,
        /// The first event that would have another verdict; none if it is unknown.
        first_difference: Option<SequenceNumber>,
    },
    /// The filter does not allow the request.
    #[error("cannot {act} filter {name:?}: {state}")]
    NotAllowed {
        /// The request.
        act: String,
        /// The filter.
        name: String,
        /// The reason for the refusal.
        state: String,
    },
    /// Another process evaluates the filter's events.
    #[error("filter {name:?} is owned by process {owner}; settle there, or pull again once that process has stopped")]
    OwnedElsewhere {
        /// The filter.
        name: String,
        /// The process.
        owner: String,
    },
    /// The store cannot execute the request.
    #[error(transparent)]
    Store(StoreError),
}

fn changed(setting: &str, first: Option<SequenceNumber>) -> String {
    match (setting, first) {
        ("events", Some(first)) => format!("event {first} would get a different verdict from the one in the stream"),
        (setting, Some(first)) => format!("{setting} differs, and event {first} is already in the stream"),
        (setting, None) => format!("{setting} differs, and the stream already has verdicts"),
    }
}

impl FilterError {
    /// Returns the stable code of this error.
    pub fn code(&self) -> Code {
        match self {
            Self::Invalid(invalid) => invalid.code,
            Self::Unknown(_) => Code::UnknownFilter,
            Self::Changed { .. } => Code::FilterChanged,
            Self::NotAllowed { .. } => Code::StateConflict,
            Self::OwnedElsewhere { .. } => Code::FilterOwnedElsewhere,
            Self::Store(error) => error.code(),
        }
    }
}

impl From<StoreError> for FilterError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<RecordError> for FilterError {
    fn from(error: RecordError) -> Self {
        match error {
            RecordError::Store(error) => Self::Store(error),
            RecordError::Invalid(invalid) => Self::Invalid(invalid),
            // Another process changed what this one had read.
            other => Self::Store(StoreError::Unreachable(other.to_string())),
        }
    }
}

impl From<ReadError> for FilterError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Store(error) => Self::Store(error),
            ReadError::Invalid(invalid) => Self::Invalid(invalid),
        }
    }
}

impl From<StreamError> for FilterError {
    fn from(error: StreamError) -> Self {
        match error {
            StreamError::Store(error) => Self::Store(error),
            StreamError::Invalid(invalid) => Self::Invalid(invalid),
            // Another process appended entries that this one had not read.
            other => Self::Store(StoreError::Unreachable(other.to_string())),
        }
    }
}
