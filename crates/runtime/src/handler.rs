//! Handlers in Rust.

use std::sync::Arc;

use annals_core::handlers::HandlerError;
use annals_core::{CommitError, NewCommit, ReadError, RecordChange, RecordedEvent, StoreError};
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
}

/// A handler that its owner keeps a hold of.
#[async_trait]
impl<H: Handler + ?Sized> Handler for Arc<H> {
    async fn handle(&self, events: &[RecordedEvent], effects: &mut Effects) -> Result<(), HandleFailure> {
        (**self).handle(events, effects).await
    }
}

/// What happens with the success of a handler, exactly once.
#[derive(Debug, Default)]
pub struct Effects {
    pub(crate) records: Vec<RecordChange>,
    /// With the event that each follows from.
    pub(crate) commits: Vec<(EventKey, NewCommit)>,
}

impl Effects {
    /// Changes a record of the handler's tenant in the batch that stores the success.
    pub fn change(&mut self, change: RecordChange) {
        self.records.push(change);
    }

    /// Commits to the handler's tenant before the success is stored. The request id is made from `cause`, the event that it follows
    /// from, and from how many commits followed from that before; so a repetition is recognised. A request id that is given is replaced.
    pub fn commit(&mut self, cause: &RecordedEvent, commit: NewCommit) {
        self.commits.push(((cause.commit.commit_id, cause.ordinal), commit));
    }
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
