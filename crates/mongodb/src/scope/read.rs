//! Reads pages of a scope's log, and events by their numbers.

use std::collections::BTreeSet;

use annals_core::{
    AggregateFilter, ByteString, Filter, LogPage, LogQuery, ReadError, RecordedEvent, SequenceNumber, limits,
};
use mongodb::Cursor;
use mongodb::bson::{Bson, Document, RawDocumentBuf, doc};
use uuid::Uuid;

use super::ScopeLog;
use super::received::{Found, recorded};
use crate::layout::guid::source_forms;
use crate::layout::mapping::Kind;
use crate::layout::names::uuid_of;
use crate::layout::writer::decimal;
use crate::refused::{deleted, reading};

/// Events that are looked up together.
const EVENTS_MAX: usize = 1_000;

pub(super) async fn page(log: &ScopeLog, query: LogQuery) -> Result<LogPage, ReadError> {
    let head = log.read_head().await?;
    let from = match query.from {
        Some(from) => from.min(head),
        None if query.backwards => head,
        None => 0,
    };
    let end = if query.backwards { 0 } else { head };
    let Some(mut filter) = passing(log, &query.filter) else {
        return Ok(LogPage { events: Vec::new(), next: end, head });
    };
    let all = log.all();
    let order = if query.backwards { -1 } else { 1 };
    let mut next = from;
    loop {
        let (low, high) = if query.backwards { (0, next) } else { (next, head) };
        filter.insert("_id", doc! { "$gte": decimal(low), "$lt": decimal(high) });
        let found = all.find(filter.clone()).sort(doc! { "_id": order }).limit(query.limit as i64);
        let (page, after) = take(log, &query, found.await.map_err(|error| reading(&error))?).await?;
        next = after.unwrap_or(end);
        let mut events = recorded(log, page).await?;
        // A UUID with an assigned name is found under both, and each event matches only one of them.
        events.retain(|event| query.filter.admits(event));
        if !events.is_empty() || next == end {
            return Ok(LogPage { events, next, head });
        }
    }
}

/// Returns the events of a page, and where the next one begins; `None` if these are all.
async fn take(
    log: &ScopeLog,
    query: &LogQuery,
    mut found: Cursor<RawDocumentBuf>,
) -> Result<(Vec<Found>, Option<SequenceNumber>), ReadError> {
    let (mut page, mut bytes): (Vec<Found>, usize) = (Vec::new(), 0);
    while found.advance().await.map_err(|error| reading(&error))? {
        let one = Found::read(log, found.current())?;
        let number = one.number;
        bytes += one.bytes();
        if !page.is_empty() && bytes > limits::PAGE_BYTES_MAX {
            return Ok((page, Some(if query.backwards { number + 1 } else { number })));
        }
        page.push(one);
        if page.len() == query.limit {
            return Ok((page, Some(if query.backwards { number } else { number + 1 })));
        }
    }
    Ok((page, None))
}

/// Returns the filter for a query; `None` if nothing can match. It matches everything that [`Filter::admits`], and possibly more: the
/// names of events that this store received are not in their documents.
fn passing(log: &ScopeLog, filter: &Filter) -> Option<Document> {
    let mut passing = Document::new();
    // The layout has no tags.
    if !filter.tags.is_empty() {
        return None;
    }
    if !filter.types.is_empty() {
        let mapping = &log.reader.mapping;
        let uuids = |name: &ByteString| [mapping.uuid(Kind::Event, name), uuid_of(Kind::Event.word(), name)];
        let uuids: BTreeSet<Uuid> = filter.types.iter().flat_map(uuids).collect();
        let forms: Vec<Bson> = uuids.iter().flat_map(|uuid| source_forms(&uuid.hyphenated().to_string())).collect();
        passing.insert("Metadata.TypeId", doc! { "$in": forms });
    }
    if let Some(AggregateFilter { name, id }) = &filter.aggregate {
        passing.extend(of_aggregate(log, name, id.as_deref())?);
    }
    Some(passing)
}

/// Returns a filter for the events of an aggregate, or of all aggregates of a name.
pub(super) fn of_aggregate(log: &ScopeLog, name: &str, id: Option<&str>) -> Option<Document> {
    let forms = forms(log, Kind::Aggregate, name);
    if forms.is_empty() {
        return None;
    }
    let mut filter = doc! { "Aggregate.WasAppliedByAggregate": true, "Aggregate.TypeId": { "$in": forms } };
    id.iter().for_each(|id| drop(filter.insert("Metadata.EventSource", doc! { "$in": source_forms(id) })));
    Some(filter)
}

/// Returns the forms of the UUID with this name; empty if its events have another name.
fn forms(log: &ScopeLog, kind: Kind, name: &str) -> Vec<Bson> {
    let uuid = log.reader.mapping.uuid(kind, name);
    let is_called_so = *log.reader.mapping.name(kind, uuid) == *name;
    if is_called_so { source_forms(&uuid.hyphenated().to_string()) } else { Vec::new() }
}

pub(super) async fn events(log: &ScopeLog, numbers: &[SequenceNumber]) -> Result<Vec<RecordedEvent>, ReadError> {
    let (mut events, mut bytes): (Vec<Found>, usize) = (Vec::with_capacity(numbers.len()), 0);
    for some in numbers.chunks(EVENTS_MAX) {
        let wanted: Vec<Bson> = some.iter().map(|number| decimal(*number).into()).collect();
        let all = log.all();
        let found = all.find(doc! { "_id": { "$in": wanted } }).sort(doc! { "_id": 1 });
        let mut found = found.await.map_err(|error| reading(&error))?;
        for number in some {
            let there = found.advance().await.map_err(|error| reading(&error))?;
            let event = if there { Some(Found::read(log, found.current())?) } else { None };
            let event = event.filter(|event| event.number == *number);
            let gone = || deleted(&log.database, &log.collection, format_args!("event {number}"));
            let event = event.ok_or_else(gone)?;
            bytes += event.bytes();
            if !events.is_empty() && bytes > limits::PAGE_BYTES_MAX {
                return recorded(log, events).await;
            }
            events.push(event);
        }
    }
    recorded(log, events).await
}
