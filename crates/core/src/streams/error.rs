//! Errors of appending verdicts.

use crate::{Code, Invalid, SequenceNumber, StoreError};

/// Why verdicts were refused. None of them was stored, except possibly after [`StoreError::Failed`] and [`StoreError::Unreachable`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The verdicts break a rule of the API.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The verdicts cover events that the log does not contain.
    #[error(
        "the verdicts reach up to {to}, but the log has {head} events; append verdicts only on events that were read from it"
    )]
    BeyondLog {
        /// One past the last event that was evaluated.
        to: SequenceNumber,
        /// The number of events in the log.
        head: SequenceNumber,
    },
    /// The stream's progress is not where the verdicts begin.
    #[error("the verdicts begin at {from}, but the progress of the stream is {progress}; resume from there")]
    Moved {
        /// Where the verdicts begin.
        from: SequenceNumber,
        /// The progress of the stream: the next sequence number to evaluate.
        progress: SequenceNumber,
    },
    /// The events already have different verdicts.
    #[error(
        "event {sequence_number} already has a different verdict; two filters write to this stream, or the filter has changed: \
         give it a stream of its own"
    )]
    VerdictsDiffer {
        /// The first event with a different verdict.
        sequence_number: SequenceNumber,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl StreamError {
    /// Returns the stable code of this error.
    pub fn code(&self) -> Code {
        match self {
            Self::Invalid(invalid) => invalid.code,
            Self::BeyondLog { .. } => Code::UnknownEvent,
            Self::Moved { .. } => Code::StreamMoved,
            Self::VerdictsDiffer { .. } => Code::VerdictsDiffer,
            Self::Store(error) => error.code(),
        }
    }
}
