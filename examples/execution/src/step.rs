//! How an execution gets its next event, once, however many workers there are.

use annals::runtime::HandleFailure;
use annals::{
    AggregateFilter, AggregateQuery, ByteString, CommitError, EventLog, ExpectedVersion, Filter, LogQuery, NewEvent,
    ReadError, RecordedEvent, StoreError,
};

use crate::events;

/// What became of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// The event is in the log, by this call or by an earlier one with the same content.
    Taken,
    /// Another event stands where it would stand, so what it says did not happen.
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

/// Commits `event` to the execution of `request`, unless it has an event of one of the types in `unless`.
///
/// At most one such event is possible by construction: the commit expects the version below which none was found, so another one
/// that gets in between makes it fail and be judged anew. A repeat, after an answer that was lost, is told by its content
/// and by the request that caused it. Only the latest of those events counts: an execution that has started and ended is not started
/// again by a request that is delivered again.
///
/// # Errors
/// See [`StepError`]; unless the store is closed, call it again.
pub(crate) async fn step(
    log: &dyn EventLog,
    request: &RecordedEvent,
    event: NewEvent,
    request_id: &str,
    unless: &[&'static str],
) -> Result<Step, StepError> {
    let aggregate = &request.commit.aggregate;
    let filter = Filter {
        types: unless.iter().map(|event_type| ByteString::from_static(event_type)).collect(),
        aggregate: Some(AggregateFilter { name: aggregate.name.clone(), id: Some(aggregate.id.clone()) }),
        ..Filter::default()
    };
    loop {
        // The version first: whatever is committed after it makes the commit below fail.
        let version = log.read_aggregate(AggregateQuery::last(aggregate.clone())).await?.version;
        let latest = LogQuery { limit: 1, backwards: true, filter: filter.clone(), ..LogQuery::default() };
        let found = log.read(latest).await?;
        if let Some(found) = found.events.first() {
            let cause = found.commit.causation_id.as_deref() == Some(&*request.id.to_string());
            let ours = cause && found.event_type == event.event_type && found.data == event.data;
            return Ok(if ours { Step::Taken } else { Step::TakenByOther });
        }
        let commit = events::next_commit(request, event.clone(), request_id).expect(ExpectedVersion::Exact(version));
        match log.commit(commit).await {
            Ok(_) => return Ok(Step::Taken),
            Err(CommitError::RequestIdReused { .. }) => return Ok(Step::TakenByOther),
            Err(CommitError::VersionConflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
