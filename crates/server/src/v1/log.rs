//! `GET /v1/log` and `GET /v1/log/{sequence_number}`: events in their one order.

use std::sync::Arc;

use annals_core::{Code, Filter, LogPage, LogQuery, SequenceNumber, limits};
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, header};
use axum::response::Response;
use serde::Serialize;

use super::{documents, lines};
use crate::answer::{data_bytes, json_of_events};
use crate::problem::Problem;
use crate::query::{Query, number};
use crate::router::Server;
use crate::source::Source;

/// `GET /v1/log`: a page, as BSON for a caller that accepts `application/bson`, or a stream of lines for `application/x-ndjson`.
pub(crate) async fn page(
    State(server): State<Arc<Server>>,
    RawQuery(raw): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let query = Query::parse(raw.as_deref(), &["from", "limit", "types", "tags", "aggregate", "backwards", "scope"])?;
    let source = Source::to_read(&server, &headers, &query)?;
    let limit = query.limit("limit")?;
    let wanted = LogQuery {
        from: query.number("from")?,
        limit: limits::PAGE_MAX,
        backwards: query.switch("backwards")?,
        filter: query.filter()?,
    };
    if accepts(&headers, lines::MEDIA_TYPE) {
        return lines::answer(&server, source, wanted, limit).await;
    }
    let wanted = LogQuery { limit: limit.unwrap_or(limits::PAGE_DEFAULT), ..wanted };
    wanted.validate()?;
    if accepts(&headers, documents::MEDIA_TYPE) {
        return documents::log(source, wanted).await;
    }
    let found = source.log.read(wanted).await?;
    json_of_events(data_bytes(&found.events), Page { found, source }).await
}

/// Whether the caller asks for this media type.
pub(crate) fn accepts(headers: &HeaderMap, media_type: &str) -> bool {
    let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut kinds = values.flat_map(|value| value.split(',')).filter_map(|kind| kind.split(';').next());
    kinds.any(|kind| kind.trim().eq_ignore_ascii_case(media_type))
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
pub(crate) async fn event(
    State(server): State<Arc<Server>>,
    Path(place): Path<String>,
    RawQuery(raw): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let query = Query::parse(raw.as_deref(), &["scope"])?;
    let source = Source::to_read(&server, &headers, &query)?;
    let wanted = number("sequence_number", &place)?;
    let one = LogQuery { from: Some(wanted), limit: 1, backwards: false, filter: Filter::default() };
    let found = source.log.read(one).await?;
    match found.events.into_iter().next() {
        Some(event) if event.sequence_number == wanted => {
            json_of_events(data_bytes([&event]), Event { event, source }).await
        }
        _ => Err(no_event(wanted, found.head)),
    }
}

/// Below the head a log that Annals has numbered has every event; one that it adopted, or that another program writes, may have holes.
fn no_event(wanted: SequenceNumber, head: SequenceNumber) -> Problem {
    if wanted >= head {
        let message = format!("there is no event {wanted} yet; the head is {head}");
        return Problem::new(Code::UnknownEvent, message).fact("head", head);
    }
    let message = format!(
        "there is no event {wanted} and never will be, although the head is {head}: other software deleted it before the log was adopted"
    );
    let problem = Problem::new(Code::UnknownEvent, message).fact("head", head);
    problem.advise("Go on with the next number; `GET /v1/log` passes over those that are missing.")
}

struct Event {
    event: annals_core::RecordedEvent,
    source: Source,
}

impl Serialize for Event {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.source.view(&self.event).serialize(serializer)
    }
}
