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
/// Events are delivered again after a failure, and if the process ended before their settlement was stored. Even so, what the handler
/// puts into [`Effects`] happens exactly once: record changes are written in the batch that stores the position, and commits carry a
/// request id that is derived from the event. Everything else that a handler does must be idempotent.
///
/// An attempt is dropped when its host is drained or its task is restarted. Work that must not be cut off belongs in a task of its own,
/// which a repeated attempt finds and waits for.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Handles events of one partition, in order: at least one, and at most the definition's `batch`. They succeed or fail together.
    ///
    /// # Errors
    /// [`HandleFailure`]: the events are delivered again as the definition's retry policy or the failure says.
    async fn handle(&self, events: &[RecordedEvent], effects: &mut Effects) -> Result<(), HandleFailure>;

    /// Returns how long one attempt may take, from 100 ms to 12 hours. Default: 12 hours. After that time the attempt is dropped and
    /// counts as failed.
    fn attempt_max(&self) -> Duration {
        ATTEMPT_MAX
    }
}

/// The maximum time of an attempt unless the handler sets another one.
const ATTEMPT_MAX: Duration = Duration::from_secs(12 * 60 * 60);

/// A handler of which its owner keeps a reference.
#[async_trait]
impl<H: Handler + ?Sized> Handler for Arc<H> {
    async fn handle(&self, events: &[RecordedEvent], effects: &mut Effects) -> Result<(), HandleFailure> {
        (**self).handle(events, effects).await
    }

    fn attempt_max(&self) -> Duration {
        (**self).attempt_max()
    }
}

/// Effects that happen exactly once with the success of a handler, and information about the attempt.
#[derive(Debug, Default)]
pub struct Effects {
    pub(crate) attempt: Attempt,
    pub(crate) records: Vec<RecordChange>,
    /// Each with the event from which it follows.
    pub(crate) commits: Vec<(EventKey, NewCommit)>,
}

impl Effects {
    /// Changes a record of the handler's tenant in the batch that stores the success.
    pub fn change(&mut self, change: RecordChange) {
        self.records.push(change);
    }

    /// Commits to the handler's tenant before the success is stored. The commit continues the trace of `cause`, the event from which it
    /// follows. Its request id is derived from `cause` and the number of earlier commits from the same event, so a repetition is
    /// recognised. It replaces a request id that the commit already has.
    pub fn commit(&mut self, cause: &RecordedEvent, commit: NewCommit) {
        self.commits.push(((cause.commit.commit_id, cause.ordinal), commit));
    }
}

impl Effects {
    /// Returns the attempt number of the first event, from 1. For the other events this is the first attempt.
    pub fn attempt(&self) -> u32 {
        self.attempt.number
    }

    /// Returns the error of the previous attempt; `None` in the first attempt.
    pub fn last_reason(&self) -> Option<&str> {
        self.attempt.last_reason.as_deref()
    }

    /// Returns the parent for the handler's own spans: the span of the first event's delivery if spans are recorded, else the span that
    /// its commit names, if any.
    pub fn trace(&self) -> Option<TraceContext> {
        self.attempt.trace
    }

    /// Returns the replay that delivers these events again: a replay session, or an operator's replay of the handler if the handler had
    /// passed the events when it began. A handler whose work cannot be undone should succeed without repeating it.
    pub fn replay(&self) -> Option<&str> {
        self.attempt.replay.as_deref()
    }
}

/// Information about an attempt.
#[derive(Debug, Clone, Default)]
pub(crate) struct Attempt {
    pub number: u32,
    pub last_reason: Option<String>,
    pub replay: Option<ByteString>,
    /// The topic to which the replay sends the event, if it is not the topic of the event's type.
    pub topic: Option<ByteString>,
    pub trace: Option<TraceContext>,
}

/// Identifies an event permanently: the id of its commit, and its ordinal there.
pub(crate) type EventKey = (annals_core::Uuid, u32);

/// Why events could not be handled. A failure never causes an event to be skipped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandleFailure {
    /// The error message.
    pub reason: String,
    /// When to retry.
    pub retry: RetryWish,
}

/// When a handler wants failed events to be delivered again.
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
    /// Creates a failure to which the retry policy applies.
    pub fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), retry: RetryWish::Policy }
    }

    /// Creates a failure that no retry can resolve.
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
