//! What a processor tells about itself.

use annals_core::SequenceNumber;

/// How a processor is. A new one is published whenever something in it changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Everything below this number has been handled or does not pass the filter. Starting again from here goes on.
    pub position: SequenceNumber,
    /// The number of events in the log when its last page was read; `head - position` is how far it is behind.
    pub head: SequenceNumber,
    /// Failures in a row of the event at `position`, or of reading there; 0 while all is well.
    pub attempts: u32,
    /// What the last failure said. It stays after a success, so that a passing fault can be seen.
    pub last_error: Option<String>,
    /// What it is doing.
    pub state: State,
}

/// What a processor is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It handles events as they come.
    Running,
    /// The last attempt failed; it waits to try again.
    Retrying,
    /// It has ended: it was asked to, its handler or its store ended it (then `last_error` says why).
    Stopped,
}
