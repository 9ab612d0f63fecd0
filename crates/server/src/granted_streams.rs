//! Restricts callers to streams: a restricted credential reads its streams, and may use nothing else.
//!
//! INVARIANT: an operation admits a restricted caller only if its feature declares that it checks streams. A new operation therefore
//! refuses such callers by default.

use annals_core::{Code, StreamInfo, Streams, StreamsQuery};

use crate::caller::Principal;
use crate::problem::Problem;

/// The advice for a refused caller.
const ADVICE: &str =
    "Use a credential for this stream; an administrator creates one with `annals credential create --streams`.";

/// Checks the stream that a request reads. The answer does not depend on whether the stream exists.
pub(crate) fn may_use(principal: &Principal, stream: &str) -> Result<(), Problem> {
    match principal.restricted_to_streams() {
        Some(grant) if !grant.covers_stream(stream) => {
            let message = format!("the credential may not use the stream {stream:?}");
            Err(Problem::new(Code::Forbidden, message).advise(ADVICE))
        }
        _ => Ok(()),
    }
}

/// Lists the streams that the caller may read, in the order of their names.
pub(crate) async fn list(
    principal: &Principal,
    streams: &dyn Streams,
    wanted: StreamsQuery,
) -> Result<Vec<StreamInfo>, Problem> {
    let Some(grant) = principal.restricted_to_streams() else { return Ok(streams.list(wanted).await?) };
    let after = wanted.after.as_deref();
    let mut names: Vec<&str> = grant.streams.iter().map(String::as_str).collect();
    names.retain(|name| after.is_none_or(|after| *name > after));
    names.sort_unstable();
    names.dedup();
    let mut found = Vec::new();
    for name in names {
        let stream = streams.stream(name).await?;
        // A stream exists from its first verdict on.
        if stream.progress > 0 {
            found.push(stream);
        }
        if found.len() == wanted.limit {
            break;
        }
    }
    Ok(found)
}

/// Returns the error for a restricted caller that uses an operation which does not check streams.
pub(crate) fn not_checked(who: &str) -> Problem {
    let message = format!("the credential {who} is restricted to streams, but this operation is not about one of them");
    Problem::new(Code::Forbidden, message).advise(
        "Read with GET /v1/streams/{name} or GET /v1/horizon/{name}, or use a credential that is not restricted to streams.",
    )
}
