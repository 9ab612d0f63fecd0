//! How an execution gets its next event, once, however many workers there are.

use annals::runtime::HandlerError;
use annals::{
    AggregateFilter, AggregateQuery, ByteString, CommitError, EventLog, ExpectedVersion, Filter, LogQuery, NewEvent,
    RecordedEvent,
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

/// Commits `event` to the execution of `request`, unless it has an event of one of the types in `unless`.
///
/// At most one such event is possible by construction: the commit expects the version below which none was found, so another one
/// that gets in between makes it fail and be judged anew. A repeat, after an answer that was lost, is told by its content
/// and by the request that caused it.
///
/// # Errors
/// The log could not be asked, or the outcome is unknown; call it again.
pub(crate) async fn step(
    log: &dyn EventLog,
    request: &RecordedEvent,
    event: NewEvent,
    request_id: &str,
    unless: &[&'static str],
) -> Result<Step, HandlerError> {
    let aggregate = &request.commit.aggregate;
    let filter = Filter {
        types: unless.iter().map(|event_type| ByteString::from_static(event_type)).collect(),
        aggregate: Some(AggregateFilter { name: aggregate.name.clone(), id: Some(aggregate.id.clone()) }),
        ..Filter::default()
    };
    loop {
        // The version first: whatever is committed after it makes the commit below fail.
        let version = log.read_aggregate(AggregateQuery::last(aggregate.clone())).await?.version;
        let found = log.read(LogQuery { limit: 1, filter: filter.clone(), ..LogQuery::default() }).await?;
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
