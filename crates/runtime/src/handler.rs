//! Handlers in Rust.

use std::sync::Arc;
use std::time::Duration;

use annals_core::handlers::HandlerError;
use annals_core::trace::TraceContext;
use annals_core::{ByteString, CommitError, NewCommit, ReadError, RecordChange, RecordedEvent, StoreError};
use async_trait::async_trait;

/// Processes the events of a handler in this process.
///
/// # At least once, and exactly once
/// Events are handed over again after a failure, and when the process ended before their settlement was stored. What the handler
/// puts into [`Effects`] happens exactly once all the same: record changes are written in the batch that stores the position, and
/// commits carry a request id that follows from the event. Whatever else it does must bear a repetition.
///
/// An attempt is dropped when its host is drained or its task is restarted. Work that must not be cut off belongs in a task of its own,
/// which a repeated attempt finds and waits for.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Handles events of one partition, in order: as many as the definition's `batch` says, at least one. They succeed or fail together.
    ///
    /// # Errors
    /// [`HandleFailure`]: the events are handed over again as the definition's retry policy says, or as the failure says.
    async fn handle(&self, events: &[RecordedEvent], effects: &mut Effects) -> Result<(), HandleFailure>;

    /// Returns how long one attempt may take, from 100 ms to 12 hours, which is what it is unless this says otherwise. Afterwards the
    /// attempt is dropped and counts as failed.
    fn attempt_max(&self) -> Duration {
        ATTEMPT_MAX
    }
}

/// How long an attempt may take unless a handler says otherwise.
const ATTEMPT_MAX: Duration = Duration::from_secs(12 * 60 * 60);

/// A handler that its owner keeps a hold of.
#[async_trait]
impl<H: Handler + ?Sized> Handler for Arc<H> {
    async fn handle(&self, events: &[RecordedEvent], effects: &mut Effects) -> Result<(), HandleFailure> {
        (**self).handle(events, effects).await
    }

    fn attempt_max(&self) -> Duration {
        (**self).attempt_max()
    }
}

/// What happens with the success of a handler, exactly once, and what the handler can know of the attempt.
#[derive(Debug, Default)]
pub struct Effects {
    pub(crate) attempt: Attempt,
    pub(crate) records: Vec<RecordChange>,
    /// With the event that each follows from.
    pub(crate) commits: Vec<(EventKey, NewCommit)>,
}

impl Effects {
    /// Changes a record of the handler's tenant in the batch that stores the success.
    pub fn change(&mut self, change: RecordChange) {
        self.records.push(change);
    }

    /// Commits to the handler's tenant before the success is stored. The commit continues the trace of `cause`, the event that it follows
    /// from. The request id is made from `cause`, and from how many commits followed from that before; so a repetition is recognised. A
    /// request id that is given is replaced.
    pub fn commit(&mut self, cause: &RecordedEvent, commit: NewCommit) {
        self.commits.push(((cause.commit.commit_id, cause.ordinal), commit));
    }
}

impl Effects {
    /// Which attempt of the first event this is, from 1. The other events are attempted for the first time.
    pub fn attempt(&self) -> u32 {
        self.attempt.number
    }

    /// What the attempt before failed with; none in the first attempt.
    pub fn last_reason(&self) -> Option<&str> {
        self.attempt.last_reason.as_deref()
    }

    /// The span that the handler's own spans are part of: that of the first event's delivery where spans are recorded, else that of its
    /// commit, if it named one.
    pub fn trace(&self) -> Option<TraceContext> {
        self.attempt.trace
    }

    /// The replay that delivers these events again: one that was created, or an operator's replay of the handler, if the handler had passed
    /// them when it began. A handler whose work cannot be undone succeeds without doing it again.
    pub fn replay(&self) -> Option<&str> {
        self.attempt.replay.as_deref()
    }
}

/// What is known of an attempt.
#[derive(Debug, Clone, Default)]
pub(crate) struct Attempt {
    pub number: u32,
    pub last_reason: Option<String>,
    pub replay: Option<ByteString>,
    /// The topic that the replay sends it to, where that is not the topic of its type.
    pub topic: Option<ByteString>,
    pub trace: Option<TraceContext>,
}

/// What names an event for ever: its commit and its place there.
pub(crate) type EventKey = (annals_core::Uuid, u32);

/// Why events could not be handled. None is skipped because of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandleFailure {
    /// What went wrong.
    pub reason: String,
    /// When to attempt it again.
    pub retry: RetryWish,
}

/// When a handler wants failed events again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RetryWish {
    /// As the retry policy says.
    #[default]
    Policy,
    /// After this many milliseconds.
    After(u64),
    /// Never: an operator must decide, or the policy parks them.
    Never,
}

impl HandleFailure {
    /// A failure that the retry policy decides about.
    pub fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), retry: RetryWish::Policy }
    }

    /// A failure that no repetition mends.
    pub fn never(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), retry: RetryWish::Never }
    }
}

impl From<StoreError> for HandleFailure {
    fn from(error: StoreError) -> Self {
        Self::new(error.to_string())
    }
}

impl From<CommitError> for HandleFailure {
    fn from(error: CommitError) -> Self {
        Self::new(error.to_string())
    }
}

impl From<ReadError> for HandleFailure {
    fn from(error: ReadError) -> Self {
        Self::new(error.to_string())
    }
}

impl From<HandlerError> for HandleFailure {
    fn from(error: HandlerError) -> Self {
        Self::new(error.to_string())
    }
}
