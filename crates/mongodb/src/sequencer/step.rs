//! The named steps of the sequencer, at which tests kill or pause its process.

/// A step that the sequencer has completed. INVARIANT: whatever happens to its process at a step, the log stays consistent, and the next
/// leader continues from there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// The lease is taken; transactions of the previous leader may still be open.
    LeaseTaken,
    /// The change stream is open; the next leader does not know this one's sessions yet.
    StreamOpened,
    /// The sessions are recorded in the lease.
    SessionsNoted,
    /// Commits older than the stream are in the log; the position is not saved yet.
    BroughtUp,
    /// Commits were received from the stream.
    CommitsTaken,
    /// Inside the transaction of a batch: the offset has been moved.
    OffsetMoved,
    /// Inside the transaction: the events and their entries have been written.
    EventsWritten,
    /// Inside the transaction: everything has been written, nothing is committed.
    BatchWritten,
    /// The transaction is committed; no caller has been notified yet.
    BatchCommitted,
    /// All callers that waited for the batch have been notified.
    BatchTold,
    /// The position was saved while the stream was idle.
    PositionSaved,
}

impl Step {
    /// All steps, in the order in which they happen.
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

/// A function called at each step, on the sequencer's task.
pub type AtStep = fn(Step);

/// Does nothing at any step.
pub(crate) fn nothing(_: Step) {}
