//! The unsuccessful and early ends of a command: an error of the one table, or a reader that went away.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use annals::archive::ArchiveError;
use annals::browse::BrowseError;
use annals::credentials::CredentialError;
use annals::dead_letters::DeadLetterError;
use annals::filters::FilterError;
use annals::groups::GroupError;
use annals::handlers::HandlerError;
use annals::horizon::HorizonError;
use annals::operations::OperationError;
use annals::partners::PartnerError;
use annals::projections::ProjectionError;
use annals::queue::QueueError;
use annals::replays::ReplayError;
use annals::runtime::StageError;
use annals::sagas::SagaError;
use annals::types::TypeError;
use annals::{
    BrokerError, ChangesError, Code, CommitError, Invalid, KeyError, OpenError, ReadError, RecordError,
    TransactionError, UnknownLog,
};

use crate::printable;

/// An error as it is printed, with the code that decides the exit code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub code: Code,
    pub message: String,
    /// The advice on what to do, as one sentence.
    advice: &'static str,
}

impl Failure {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), advice: code.advice() }
    }

    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(Code::Internal, message)
    }

    /// Replaces the code's advice with one that fits this occurrence.
    #[must_use]
    pub fn advise(self, advice: &'static str) -> Self {
        Self { advice, ..self }
    }

    pub fn config(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidConfig, message)
    }

    /// Returns the advice on what to do, as one sentence.
    pub fn advice(&self) -> &'static str {
        self.advice
    }

    /// Adds the line of the input that the failure concerns.
    pub fn at_line(self, line: u64) -> Self {
        Self { message: format!("line {line}: {}", self.message), ..self }
    }

    /// Prints it to standard error. A closed standard error is ignored.
    pub fn print(&self) {
        let _ = writeln!(io::stderr(), "{}", printable::lines(&self.to_string()));
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error[{}]: {}\nhelp: {}", self.code.as_str(), self.message, self.advice)
    }
}

impl From<CommitError> for Failure {
    fn from(error: CommitError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}

impl From<TransactionError> for Failure {
    fn from(refusal: TransactionError) -> Self {
        Self::new(refusal.error.code(), refusal.to_string())
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        Self { advice: error.advice(), ..Self::new(error.code(), error.to_string()) }
    }
}

impl From<RecordError> for Failure {
    fn from(error: RecordError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}

impl From<KeyError> for Failure {
    fn from(error: KeyError) -> Self {
        match error {
            KeyError::Invalid(invalid) => invalid.into(),
            other => Self::new(other.code(), other.to_string()),
        }
    }
}

impl From<CredentialError> for Failure {
    fn from(error: CredentialError) -> Self {
        match error {
            CredentialError::Invalid(invalid) => invalid.into(),
            other => Self::new(other.code(), other.to_string()),
        }
    }
}

impl From<FilterError> for Failure {
    fn from(error: FilterError) -> Self {
        match error {
            FilterError::Invalid(invalid) => invalid.into(),
            other => Self::new(other.code(), other.to_string()),
        }
    }
}

impl From<HorizonError> for Failure {
    fn from(error: HorizonError) -> Self {
        match error {
            HorizonError::Invalid(invalid) => invalid.into(),
            other => Self::new(other.code(), other.to_string()),
        }
    }
}

impl From<PartnerError> for Failure {
    fn from(error: PartnerError) -> Self {
        match error {
            PartnerError::Invalid(invalid) => invalid.into(),
            other => Self::new(other.code(), other.to_string()),
        }
    }
}

impl From<HandlerError> for Failure {
    fn from(error: HandlerError) -> Self {
        match error {
            HandlerError::Invalid(invalid) => invalid.into(),
            other => Self::new(other.code(), other.to_string()),
        }
    }
}

impl From<GroupError> for Failure {
    fn from(error: GroupError) -> Self {
        match error {
            GroupError::Invalid(invalid) => invalid.into(),
            other => Self::new(other.code(), other.to_string()),
        }
    }
}

impl From<DeadLetterError> for Failure {
    fn from(error: DeadLetterError) -> Self {
        match error {
            DeadLetterError::Invalid(invalid) => invalid.into(),
            other => Self::new(other.code(), other.to_string()),
        }
    }
}

impl From<ProjectionError> for Failure {
    fn from(error: ProjectionError) -> Self {
        match error {
            ProjectionError::Invalid(invalid) => invalid.into(),
            other => Self::new(other.code(), other.to_string()),
        }
    }
}

impl From<SagaError> for Failure {
    fn from(error: SagaError) -> Self {
        match error {
            SagaError::Invalid(invalid) => invalid.into(),
            other => Self::new(other.code(), other.to_string()),
        }
    }
}

impl From<BrowseError> for Failure {
    fn from(error: BrowseError) -> Self {
        match error {
            BrowseError::Invalid(invalid) => invalid.into(),
            other => Self::new(other.code(), other.to_string()),
        }
    }
}

impl From<ArchiveError> for Failure {
    fn from(error: ArchiveError) -> Self {
        match error {
            ArchiveError::Invalid(invalid) => invalid.into(),
            other => Self::new(other.code(), other.to_string()),
        }
    }
}

impl From<ReplayError> for Failure {
    fn from(error: ReplayError) -> Self {
        match error {
            ReplayError::Invalid(invalid) => invalid.into(),
            other => Self::new(other.code(), other.to_string()),
        }
    }
}

impl From<BrokerError> for Failure {
    fn from(error: BrokerError) -> Self {
        match error {
            BrokerError::Invalid(invalid) => invalid.into(),
            other => Self::new(other.code(), other.to_string()),
        }
    }
}

impl From<QueueError> for Failure {
    fn from(error: QueueError) -> Self {
        match error {
            QueueError::Invalid(invalid) => invalid.into(),
            other => Self::new(other.code(), other.to_string()),
        }
    }
}

impl From<TypeError> for Failure {
    fn from(error: TypeError) -> Self {
        match error {
            TypeError::Invalid(invalid) => invalid.into(),
            other => Self::new(other.code(), other.to_string()),
        }
    }
}

impl From<ChangesError> for Failure {
    fn from(error: ChangesError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        Self { advice: error.advice(), ..Self::new(error.code, error.message) }
    }
}

impl From<OperationError> for Failure {
    fn from(error: OperationError) -> Self {
        let failure = Self::new(error.code, error.message);
        match error.advice {
            Some(advice) => failure.advise(advice),
            None => failure,
        }
    }
}

impl From<UnknownLog> for Failure {
    fn from(error: UnknownLog) -> Self {
        Self::new(error.code(), error.to_string())
    }
}

impl From<StageError> for Failure {
    fn from(error: StageError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}

impl From<Invalid> for Failure {
    fn from(invalid: Invalid) -> Self {
        Self::new(invalid.code, invalid.to_string())
    }
}

/// The exit code after SIGINT, by the convention of shells.
const INTERRUPTED: u8 = 130;

/// Why a command stopped early.
#[derive(Debug)]
pub enum Stop {
    /// The command failed, and nothing is printed yet.
    Failed(Failure),
    /// The command failed, and has reported it.
    Reported(Code),
    /// The reader of standard output has gone, which is a normal end.
    ReaderGone,
    /// A signal ended the command, which has reported it.
    Interrupted,
}

impl Stop {
    /// Prints the failure if it is not printed yet, and returns the exit code.
    pub fn report(self) -> ExitCode {
        match self {
            Self::Failed(failure) => {
                failure.print();
                ExitCode::from(failure.code.exit())
            }
            Self::Reported(code) => ExitCode::from(code.exit()),
            Self::ReaderGone => ExitCode::SUCCESS,
            Self::Interrupted => ExitCode::from(INTERRUPTED),
        }
    }
}

impl<T: Into<Failure>> From<T> for Stop {
    fn from(error: T) -> Self {
        Self::Failed(error.into())
    }
}

/// Prints a note to standard error. A closed standard error is ignored.
pub fn note(text: &str) {
    let _ = writeln!(io::stderr(), "note: {}", printable::lines(text));
}

/// Converts the result of a write to standard output.
pub fn written(result: io::Result<()>) -> Result<(), Stop> {
    match result {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Stop::ReaderGone),
        Err(error) => Err(Failure::new(Code::UnwritableOutput, format!("standard output: {error}")).into()),
    }
}
