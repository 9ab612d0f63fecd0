//! Why verdicts were refused.

use crate::{Code, Invalid, SequenceNumber, StoreError};

/// Why verdicts were refused. Except for [`StoreError::Failed`] and [`StoreError::Unreachable`], nothing of them was stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The verdicts break a rule of the API.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// Events were judged that the log does not have.
    #[error("the verdicts reach up to {to}, but the log has {head} events; judge only what was read from it")]
    BeyondLog {
        /// One past the last event that was judged.
        to: SequenceNumber,
        /// The number of events in the log.
        head: SequenceNumber,
    },
    /// The stream's filter does not stand where the verdicts begin.
    #[error("the verdicts begin at {from}, but the stream was judged up to {progress}; go on from there")]
    Moved {
        /// Where the verdicts begin.
        from: SequenceNumber,
        /// Where the stream's filter stands: the next sequence number to judge.
        progress: SequenceNumber,
    },
    /// The events were judged before, and otherwise.
    #[error(
        "event {sequence_number} was judged otherwise before; two filters write to this stream, or the filter has changed: \
         give it a stream of its own"
    )]
    VerdictsDiffer {
        /// The first event of which the verdicts say something else.
        sequence_number: SequenceNumber,
    },
    /// The store cannot take them.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl StreamError {
    /// The stable code of this error.
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
