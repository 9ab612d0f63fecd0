//! Restricts callers to event types: a restricted credential commits and reads only events of its types.
//!
//! ```text
//!  gate ─▶ does the operation check event types? ─┬─ no ──▶ refused
//!                                                 └─ yes ─▶ handler ─┬─ commit ─▶ may_commit: its events, its append condition
//!                                                                    └─ read ───▶ narrow: the filter; may_read: an event
//! ```
//!
//! INVARIANT: an operation admits a restricted caller only if its feature declares that it checks event types. A new operation therefore
//! refuses such callers by default.

use annals_core::{Code, Filter, NewCommit, RecordedEvent};

use crate::caller::Principal;
use crate::problem::Problem;

/// The advice for a refused caller.
const ADVICE: &str = "Leave these events out, or use a credential for their types; an administrator creates one with `annals credential \
                      create --event-types`.";

/// Checks the types of a commit's events and those in its append condition. A condition on other types would reveal whether such events
/// exist.
pub(crate) fn may_commit(principal: &Principal, commit: &NewCommit) -> Result<(), Problem> {
    let Some(grant) = principal.restricted_to_types() else { return Ok(()) };
    if let Some(event) = commit.events.iter().find(|event| !grant.covers_event_type(&event.event_type)) {
        return Err(not_granted("commit events", &event.event_type));
    }
    for pattern in commit.append_condition.iter().flat_map(|condition| &condition.fail_if) {
        if pattern.types.is_empty() {
            let message =
                "the credential is restricted to event types, but the append condition has a pattern without types";
            return Err(Problem::new(Code::Forbidden, message)
                .advise("Name the event types in each pattern of the append condition."));
        }
        if let Some(name) = pattern.types.iter().find(|name| !grant.covers_event_type(name)) {
            return Err(not_granted("look for events", name));
        }
    }
    Ok(())
}

/// Sets the types of a filter without types to those that the caller may read, and checks the types of any other filter.
pub(crate) fn narrow(principal: &Principal, mut filter: Filter) -> Result<Filter, Problem> {
    let Some(grant) = principal.restricted_to_types() else { return Ok(filter) };
    if let Some(name) = filter.types.iter().find(|name| !grant.covers_event_type(name)) {
        return Err(not_granted("read events", name));
    }
    if filter.types.is_empty() {
        // A filter without types matches all of them.
        if grant.event_types.is_empty() {
            return Err(Problem::new(Code::Forbidden, "the credential may not read events of any type").advise(ADVICE));
        }
        filter.types = grant.event_types.iter().map(|name| name.as_str().into()).collect();
    }
    Ok(filter)
}

/// Checks an event that was read by its sequence number.
pub(crate) fn may_read(principal: &Principal, event: &RecordedEvent) -> Result<(), Problem> {
    match principal.restricted_to_types() {
        Some(grant) if !grant.covers_event_type(&event.event_type) => {
            let message = format!("the credential may not read event {}, because of its type", event.sequence_number);
            Err(Problem::new(Code::Forbidden, message).advise(ADVICE))
        }
        _ => Ok(()),
    }
}

fn not_granted(what: &str, event_type: &str) -> Problem {
    let message = format!("the credential may not {what} of the type {event_type:?}");
    Problem::new(Code::Forbidden, message).advise(ADVICE)
}

/// Returns the error for a restricted caller that uses an operation which does not check event types.
pub(crate) fn not_checked(who: &str) -> Problem {
    let message =
        format!("the credential {who} is restricted to event types, but this operation does not check event types");
    Problem::new(Code::Forbidden, message).advise(
        "Commit with POST /v1/commits and read with GET /v1/log, or use a credential that is not restricted to event types.",
    )
}
