//! `GET /v1/log` and `GET /v1/log/{sequence_number}`: events in the total order of the log.

use std::sync::Arc;

use annals_core::{Code, Filter, LogPage, LogQuery, RecordedEvent, SequenceNumber, limits};
use axum::extract::{Path, State};
use axum::response::Response;
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use super::{documents, lines};
use crate::accept::Accept;
use crate::answer::{data_bytes, json_of_page};
use crate::caller::Caller;
use crate::event_types;
use crate::media;
use crate::payload::Payload;
use crate::problem::Problem;
use crate::query::{Limit, List, Number, Query, ScopeQuery, Switch, filter, number};
use crate::route::{Feature, Permission, get};
use crate::schemas;
use crate::source::Source;
use crate::state::Server;

/// Returns the operations that read the log.
pub(crate) fn feature() -> Feature {
    Feature::new(
        "Log",
        [
            get("/v1/log", Permission::Reader, page)
                .described(
                    "readLog",
                    "Returns one page of the log, or all of it as lines.",
                    Payload::json::<schemas::LogPage>()
                        .or(media::LINES, "One event per line, up to the limit.")
                        .or(media::BSON, "One document per event, then one with `next` and `head`."),
                )
                .checking_event_types(),
            get("/v1/log/{sequence_number}", Permission::Reader, event)
                .described("readEvent", "Returns one event of the log.", Payload::json::<schemas::Event>())
                .refuses(&[Code::UnknownEvent])
                .checking_event_types(),
        ],
    )
}

/// The parameters of a read of the log.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct PageQuery {
    /// The first sequence number; 0 when absent, or the head for a backward read.
    #[param(inline)]
    from: Option<Number>,
    /// The length of the page: 1 to 1,000, 100 when absent. Lines have no limit when absent.
    #[param(inline)]
    limit: Option<Limit>,
    /// Events of any of these types.
    #[param(inline)]
    types: Option<List>,
    /// Events with all of these tags.
    #[param(inline)]
    tags: Option<List>,
    /// Events of the aggregates of this name, or of one aggregate as `name/id`.
    aggregate: Option<String>,
    /// Reads from the newest event to the oldest.
    #[param(inline)]
    backwards: Option<Switch>,
    /// The scope to read; `default` when absent.
    scope: Option<String>,
}

/// `GET /v1/log`: a page, as BSON for a caller that accepts `application/bson`, or a stream of lines for `application/x-ndjson`.
async fn page(
    State(server): State<Arc<Server>>,
    Query(query): Query<PageQuery>,
    caller: Caller,
    accept: Accept,
) -> Result<Response, Problem> {
    let source = Source::to_read(&server, caller, query.scope)?;
    let limit = query.limit.map(|limit| limit.0);
    let wanted = filter(query.types, query.tags, query.aggregate.as_deref())?;
    let filter = event_types::narrow(&source.caller.principal, wanted)?;
    let wanted = LogQuery {
        from: query.from.map(|from| from.0),
        limit: limits::PAGE_MAX,
        backwards: Switch::is_on(query.backwards),
        filter,
    };
    if accept.lines {
        return lines::answer(&server, source, wanted, limit).await;
    }
    let wanted = LogQuery { limit: limit.unwrap_or(limits::PAGE_DEFAULT), ..wanted };
    wanted.validate()?;
    if accept.bson {
        return documents::log(source, wanted).await;
    }
    let found = source.log.read(wanted).await?;
    json_of_page(data_bytes(&found.events), Page { found, source }).await
}

struct Page {
    found: LogPage,
    source: Source,
}

impl Serialize for Page {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut answer = serializer.serialize_struct("Page", 3)?;
        let views: Vec<_> = self.found.events.iter().map(|event| self.source.view(event)).collect();
        answer.serialize_field("events", &views)?;
        answer.serialize_field("next", &self.found.next)?;
        answer.serialize_field("head", &self.found.head)?;
        answer.end()
    }
}

/// `GET /v1/log/{sequence_number}`.
async fn event(
    State(server): State<Arc<Server>>,
    Path(place): Path<String>,
    Query(query): Query<ScopeQuery>,
    caller: Caller,
) -> Result<Response, Problem> {
    let source = Source::to_read(&server, caller, query.scope)?;
    let event = find(&source, number("sequence_number", &place)?).await?;
    json_of_page(data_bytes([&event]), Event { event, source }).await
}

/// Returns one event that the caller may read.
pub(crate) async fn find(source: &Source, wanted: SequenceNumber) -> Result<RecordedEvent, Problem> {
    let one = LogQuery { from: Some(wanted), limit: 1, backwards: false, filter: Filter::default() };
    let found = source.log.read(one).await?;
    match found.events.into_iter().next() {
        Some(event) if event.sequence_number == wanted => {
            event_types::may_read(&source.caller.principal, &event)?;
            Ok(event)
        }
        _ => Err(no_event(wanted, found.head)),
    }
}

/// Returns the error for a missing event. A log that Annals alone wrote has every event below the head; one that it adopted, or that
/// another program writes, may have gaps.
fn no_event(wanted: SequenceNumber, head: SequenceNumber) -> Problem {
    if wanted >= head {
        let message = format!("there is no event {wanted} yet; the head is {head}");
        return Problem::new(Code::UnknownEvent, message).fact("head", head);
    }
    let message = format!(
        "event {wanted} does not exist and never will, although the head is {head}: other software deleted it before the log was adopted"
    );
    let problem = Problem::new(Code::UnknownEvent, message).fact("head", head);
    problem.advise("Continue with the next number; `GET /v1/log` skips the missing ones.")
}

struct Event {
    event: RecordedEvent,
    source: Source,
}

impl Serialize for Event {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.source.view(&self.event).serialize(serializer)
    }
}
