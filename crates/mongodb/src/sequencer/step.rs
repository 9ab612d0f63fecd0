//! The named steps of the sequencer's work, at which tests end a process or make it wait.

/// A step that the sequencer has taken. Whatever happens to its process there, the log stays what it must be, and the next sequencer goes
/// on from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// The lease is taken; transactions of the earlier sequencer may still be open.
    LeaseTaken,
    /// The change stream is open; the next sequencer does not know this one's sessions yet.
    StreamOpened,
    /// The sessions are noted with the lease.
    SessionsNoted,
    /// Commits that the stream does not show are in the log; the position is not saved.
    BroughtUp,
    /// Commits came out of the stream.
    CommitsTaken,
    /// Inside the transaction of a batch: the offset is moved.
    OffsetMoved,
    /// Inside it: the events and their entries are written.
    EventsWritten,
    /// Inside it: everything is written, and nothing committed.
    BatchWritten,
    /// The transaction is committed; nobody here knows it yet.
    BatchCommitted,
    /// Everybody who waited for the batch is told.
    BatchTold,
    /// The position was saved while nothing came.
    PositionSaved,
}

impl Step {
    /// All, in the order of the work.
    pub const ALL: [Self; 11] = [
        Self::LeaseTaken,
        Self::StreamOpened,
        Self::SessionsNoted,
        Self::BroughtUp,
        Self::CommitsTaken,
        Self::OffsetMoved,
        Self::EventsWritten,
        Self::BatchWritten,
        Self::BatchCommitted,
        Self::BatchTold,
        Self::PositionSaved,
    ];
}

/// What is called at each step, on the sequencer's task.
pub type AtStep = fn(Step);

/// Nothing happens at any step.
pub(crate) fn nothing(_: Step) {}
