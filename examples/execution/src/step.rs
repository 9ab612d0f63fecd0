//! How an execution gets its next events, once, however many processes there are.

use annals::runtime::HandleFailure;
use annals::{
    Aggregate, AggregateQuery, CommitError, EventLog, ExpectedVersion, NewEvent, ReadError, RecordedEvent, StoreError,
    Version, limits,
};

use crate::events;

/// What became of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// The events are in the log, by this call or by an earlier one with the same content.
    Taken,
    /// Another event has their place, so what they say did not happen.
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
    /// Whether the store is closed, so that a retry cannot succeed.
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
/// INVARIANT: of those types at most one such event is committed. The commit expects the version below which none was found, so a commit
/// in between makes it fail, and the execution is read again. A repetition after a lost answer is recognised by its content and by the
/// event that caused it. Only the latest of those events counts: an execution that has started and ended is not started again by a command
/// that is delivered again.
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

/// Returns the events of an aggregate in order, and its version. What was stored is seen at once, also before it has a sequence number.
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
