//! Replays: events of the log are sent again, to a handler, to consumers of a topic, to a URL, to a file, or nowhere.

mod body;
mod error;
mod file;
mod inbox;
mod session;
mod status;
mod stored;
#[cfg(test)]
mod tests;

use async_trait::async_trait;

use crate::handlers::Reason;

pub use body::{OnError, OnOutage, ReplayBody, ReplayOrder, ReplayTarget, ReplayType};
pub use error::ReplayError;
pub use file::{FileRecord, REPLAY_FILES};
pub use inbox::{INBOX, InboxRecord, InboxToken, inbox_token, is_inbox_token, of_token};
pub use session::{After, ReplayState, Sent};
pub use status::{PreviewBody, ReplayPage, ReplayPreview, ReplayStatus, SessionError};
pub use stored::{REPLAY_SESSIONS, ReplayProgress, ReplaySession, SessionErrorRecord};

/// The replays of one tenant.
///
/// A replay is created with a filter and a target, and then started. It sends, in order, the events that the filter selects and that were
/// in the log when it started. Its guarantees:
///
/// - **The log does not change.** Handlers and consumers get the events unchanged, with the replay's id as an addition.
/// - **It continues with the next event** after a pause, a restart or a kill. What was sent is stored with the position: deliveries in the
///   same batch, lines of a file through the length of the file.
/// - **One process sends.** If two callers act on one replay at the same time, one succeeds and the other gets `state_conflict`.
/// - **No failure is silent.** Each is counted and listed with its event. A replay either skips failed events or stops after the first.
#[async_trait]
pub trait Replays: Send + Sync + 'static {
    /// Returns what a replay would send: the number of events, and the first hundred.
    ///
    /// # Errors
    /// `invalid_replay`; see [`ReplayError`].
    async fn preview(&self, body: PreviewBody) -> Result<ReplayPreview, ReplayError>;

    /// Creates a replay, which sends nothing until it is started.
    ///
    /// # Errors
    /// `invalid_replay`; see [`ReplayError`].
    async fn create(&self, body: ReplayBody) -> Result<ReplayStatus, ReplayError>;

    /// Lists replays, newest first: at most `limit`, after the page with this cursor.
    ///
    /// # Errors
    /// See [`ReplayError`].
    async fn list(
        &self,
        state: Option<ReplayState>,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<ReplayPage, ReplayError>;

    /// Returns the state of a replay.
    ///
    /// # Errors
    /// See [`ReplayError`].
    async fn get(&self, id: &str) -> Result<ReplayStatus, ReplayError>;

    /// Starts, pauses, resumes or cancels a replay.
    ///
    /// # Errors
    /// [`ReplayError::NotAllowed`] with the current state; see [`ReplayError`].
    async fn act(&self, id: &str, act: ReplayAct, reason: Reason) -> Result<ReplayStatus, ReplayError>;

    /// Waits until a replay's state differs from `seen`, and returns it.
    ///
    /// # Errors
    /// See [`ReplayError`].
    async fn changed(&self, id: &str, seen: Option<&ReplayStatus>) -> Result<ReplayStatus, ReplayError>;

    /// Deletes replays that ended more than this many hours ago, and returns how many were deleted.
    ///
    /// # Errors
    /// See [`ReplayError`].
    async fn clean_up(&self, older_than_hours: u32) -> Result<u64, ReplayError>;
}

/// An act of an operator on a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplayAct {
    /// Starts sending.
    Start,
    /// Stops sending until it is resumed.
    Pause,
    /// Continues with the next event.
    Resume,
    /// Ends it. It cannot be resumed.
    Cancel,
}

impl ReplayAct {
    /// Returns its name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Cancel => "cancel",
        }
    }
}
