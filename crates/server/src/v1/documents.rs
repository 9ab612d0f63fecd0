//! Results of reads as BSON documents, for programs: the data as it is stored, with all its types.

use std::ops::ControlFlow;

use annals_core::wire::binary::FoundWriter;
use annals_core::{AggregateCommits, EventRef, LogQuery, ScanQuery, StreamEvents, limits};
use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;

use crate::media;
use crate::problem::Problem;
use crate::source::Source;

/// Responds with a page of the log.
pub(crate) async fn log(source: Source, query: LogQuery) -> Result<Response, Problem> {
    let mut page = FoundWriter::default();
    if query.backwards {
        let found = source.log.read(query).await?;
        found.events.iter().for_each(|event| event.lend(|event| page.event(&event)));
        return Ok(answer(page.end_of_log(found.next, found.head)));
    }
    let head = source.log.head().await?;
    let scan = ScanQuery { from: query.from.unwrap_or(0), filter: query.filter, ..ScanQuery::default() };
    let (mut events, mut bytes, mut last) = (0, 0, None);
    let mut visit = |event: EventRef<'_>| {
        page.event(&event);
        events += 1;
        bytes += event.page_bytes();
        last = Some(event.sequence_number);
        let full = events >= query.limit || bytes >= limits::PAGE_BYTES_MAX;
        if full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let scanned = source.log.scan(scan, &mut visit).await;
    let next = match (scanned, last) {
        (Ok(next), _) => next,
        // The events that were found are correct, so they are returned. The error is left to the next page.
        (Err(_), Some(last)) => last + 1,
        (Err(error), None) => return Err(error.into()),
    };
    Ok(answer(page.end_of_log(next, head.max(next))))
}

/// Responds with commits of one aggregate.
pub(crate) fn aggregate(found: &AggregateCommits) -> Response {
    let mut writer = FoundWriter::default();
    let events = found.commits.iter().flat_map(|commit| &commit.events);
    events.for_each(|event| event.lend(|event| writer.event(&event)));
    answer(writer.end_of_aggregate(found.version))
}

/// Responds with events of a stream.
pub(crate) fn stream(found: &StreamEvents) -> Response {
    let mut writer = FoundWriter::default();
    found.events.iter().for_each(|event| writer.event_of_stream(event));
    answer(writer.end_of_log(found.next, found.head))
}

fn answer(documents: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(documents));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media::BSON));
    response
}
