//! Pages of the log of a scope, and events by their numbers.

use annals_core::{AggregateFilter, Filter, LogPage, LogQuery, ReadError, RecordedEvent, SequenceNumber, limits};
use mongodb::bson::{Bson, Document, doc};

use super::ScopeLog;
use crate::layout::guid::source_forms;
use crate::layout::mapping::Kind;
use crate::layout::writer::decimal;
use crate::refused::{deleted, malformed, reading};

/// Events that are looked up at once.
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
    let (low, high) = if query.backwards { (0, from) } else { (from, head) };
    filter.insert("_id", doc! { "$gte": decimal(low), "$lt": decimal(high) });
    let order = if query.backwards { -1 } else { 1 };
    let all = log.all();
    let found = all.find(filter).sort(doc! { "_id": order }).limit(query.limit as i64);
    let mut found = found.await.map_err(|error| reading(&error))?;
    let (mut events, mut bytes): (Vec<RecordedEvent>, usize) = (Vec::new(), 0);
    while found.advance().await.map_err(|error| reading(&error))? {
        let event = recorded(log, found.current())?;
        let number = event.sequence_number;
        bytes += event.data.as_bytes().len();
        if !events.is_empty() && bytes > limits::PAGE_BYTES_MAX {
            let next = if query.backwards { number + 1 } else { number };
            return Ok(LogPage { events, next, head });
        }
        events.push(event);
        if events.len() == query.limit {
            let next = if query.backwards { number } else { number + 1 };
            return Ok(LogPage { events, next, head });
        }
    }
    Ok(LogPage { events, next: end, head })
}

fn recorded(log: &ScopeLog, found: &mongodb::bson::RawDocument) -> Result<RecordedEvent, ReadError> {
    let (number, commit) = log.read_one(found)?;
    let event = commit.recorded(number).events.pop();
    event.ok_or_else(|| {
        malformed(&log.database, &log.collection, found, format_args!("event {number} holds nothing")).into()
    })
}

/// What the documents have that pass; none where nothing can. It lets through exactly what [`Filter::admits`] does.
fn passing(log: &ScopeLog, filter: &Filter) -> Option<Document> {
    let mut passing = Document::new();
    // The layout has no place for tags.
    if !filter.tags.is_empty() {
        return None;
    }
    if !filter.types.is_empty() {
        let forms: Vec<Bson> = filter.types.iter().flat_map(|name| forms(log, Kind::Event, name)).collect();
        if forms.is_empty() {
            return None;
        }
        passing.insert("Metadata.TypeId", doc! { "$in": forms });
    }
    if let Some(AggregateFilter { name, id }) = &filter.aggregate {
        passing.extend(of_aggregate(log, name, id.as_deref())?);
    }
    Some(passing)
}

/// What the events of an aggregate have, or of all of a name.
pub(super) fn of_aggregate(log: &ScopeLog, name: &str, id: Option<&str>) -> Option<Document> {
    let forms = forms(log, Kind::Aggregate, name);
    if forms.is_empty() {
        return None;
    }
    let mut filter = doc! { "Aggregate.WasAppliedByAggregate": true, "Aggregate.TypeId": { "$in": forms } };
    id.iter().for_each(|id| drop(filter.insert("Metadata.EventSource", doc! { "$in": source_forms(id) })));
    Some(filter)
}

/// The forms of the UUID that is called so; none where events of it are called otherwise.
fn forms(log: &ScopeLog, kind: Kind, name: &str) -> Vec<Bson> {
    let uuid = log.reader.mapping.uuid(kind, name);
    let is_called_so = *log.reader.mapping.name(kind, uuid) == *name;
    if is_called_so { source_forms(&uuid.hyphenated().to_string()) } else { Vec::new() }
}

pub(super) async fn events(log: &ScopeLog, numbers: &[SequenceNumber]) -> Result<Vec<RecordedEvent>, ReadError> {
    let (mut events, mut bytes): (Vec<RecordedEvent>, usize) = (Vec::with_capacity(numbers.len()), 0);
    for some in numbers.chunks(EVENTS_MAX) {
        let wanted: Vec<Bson> = some.iter().map(|number| decimal(*number).into()).collect();
        let all = log.all();
        let found = all.find(doc! { "_id": { "$in": wanted } }).sort(doc! { "_id": 1 });
        let mut found = found.await.map_err(|error| reading(&error))?;
        for number in some {
            let there = found.advance().await.map_err(|error| reading(&error))?;
            let event = if there { Some(recorded(log, found.current())?) } else { None };
            let event = event.filter(|event| event.sequence_number == *number);
            let gone = || deleted(&log.database, &log.collection, format_args!("event {number}"));
            let event = event.ok_or_else(gone)?;
            bytes += event.data.as_bytes().len();
            if !events.is_empty() && bytes > limits::PAGE_BYTES_MAX {
                return Ok(events);
            }
            events.push(event);
        }
    }
    Ok(events)
}
