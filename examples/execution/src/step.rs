//! Appends the next events of an execution exactly once, however many processes there are.

use annals::runtime::HandleFailure;
use annals::{
    Aggregate, AggregateQuery, CommitError, EventLog, ExpectedVersion, NewEvent, ReadError, RecordedEvent, StoreError,
    Version, limits,
};

use crate::events;

/// The outcome of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// The events are in the log, by this call or by an earlier one with the same content.
    Taken,
    /// Another event came first, so these events did not happen.
    TakenByOther,
}

/// Why it is not known whether a step was taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StepError {
    /// The log could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The commit failed, or its outcome is unknown.
    #[error(transparent)]
    Commit(#[from] CommitError),
}

impl StepError {
    /// Returns whether the store is closed, so that a retry cannot succeed.
    pub(crate) fn is_closed(&self) -> bool {
        let (Self::Read(ReadError::Store(error)) | Self::Commit(CommitError::Store(error))) = self else {
            return false;
        };
        matches!(error, StoreError::Closed)
    }
}

impl From<StepError> for HandleFailure {
    fn from(error: StepError) -> Self {
        Self::new(error.to_string())
    }
}

/// Commits `events` to the execution of `cause`, unless it has an event of one of the types in `unless`.
///
/// INVARIANT: at most one event of those types is committed. The commit expects the version up to which none was found. A commit in
/// between makes it fail, and the execution is read again. A repetition after a lost response is recognised by its content and by its
/// cause. Only the latest of those events counts: a command that is delivered again does not restart an execution that has started and
/// ended.
///
/// # Errors
/// See [`StepError`]; unless the store is closed, call it again.
pub(crate) async fn step(
    log: &dyn EventLog,
    cause: &RecordedEvent,
    events: &[NewEvent],
    request_id: &str,
    unless: &[&str],
) -> Result<Step, StepError> {
    loop {
        let (known, version) = events_of(log, &cause.commit.aggregate).await?;
        let latest = known.iter().rev().find(|event| unless.contains(&&*event.event_type));
        if let Some(found) = latest {
            let same_cause = found.commit.causation_id.as_deref() == Some(&*cause.id.to_string());
            let same = |event: &NewEvent| found.event_type == event.event_type && found.data == event.data;
            return Ok(if same_cause && events.iter().any(same) { Step::Taken } else { Step::TakenByOther });
        }
        let commit = events::next_commit(cause, events.to_vec(), request_id).expect(ExpectedVersion::Exact(version));
        match log.commit(commit).await {
            Ok(_) => return Ok(Step::Taken),
            Err(CommitError::RequestIdReused { .. }) => return Ok(Step::TakenByOther),
            Err(CommitError::VersionConflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Returns the events of an aggregate in order, and its version. Stored events are visible at once, even before they have sequence
/// numbers.
pub(crate) async fn events_of(
    log: &dyn EventLog,
    aggregate: &Aggregate,
) -> Result<(Vec<RecordedEvent>, Version), ReadError> {
    let mut query = AggregateQuery { limit: limits::PAGE_MAX, ..AggregateQuery::new(aggregate.clone()) };
    let mut events = Vec::new();
    loop {
        let page = log.read_aggregate(query.clone()).await?;
        let Some(last) = page.commits.last() else { return Ok((events, page.version)) };
        query.from_version = last.info.version + 1;
        let at_end = last.info.version >= page.version;
        events.extend(page.commits.into_iter().flat_map(|commit| commit.events));
        if at_end {
            return Ok((events, page.version));
        }
    }
}
