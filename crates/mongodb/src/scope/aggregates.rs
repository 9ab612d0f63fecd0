//! Reads events of aggregates in the log of a scope. A Runtime receives events without their aggregates; if a document names one
//! nonetheless, it is read as in an adopted log.

use std::collections::BTreeSet;

use annals_core::{
    AggregateCommits, AggregateIdsQuery, AggregateNamesQuery, AggregateQuery, ByteString, DEFAULT_TENANT_ID,
    KnownAggregate, ReadError, RecordedCommit, Version, limits,
};
use mongodb::bson::{DateTime, Document, RawBson, doc, rawdoc};

use super::ScopeLog;
use super::read::of_aggregate;
use crate::layout::adopted::find;
use crate::layout::fields::inner;
use crate::layout::guid::{text_or_uuid, uuid};
use crate::layout::mapping::Kind;
use crate::layout::writer::decimal;
use crate::refused::{malformed, reading, unreadable};

pub(super) async fn read(log: &ScopeLog, query: AggregateQuery) -> Result<AggregateCommits, ReadError> {
    let none = || AggregateCommits { commits: Vec::new(), version: 0 };
    let of_other = query.tenant_id.as_deref().is_some_and(|tenant| tenant != DEFAULT_TENANT_ID);
    let filter = of_aggregate(log, &query.aggregate.name, Some(&query.aggregate.id)).filter(|_| !of_other);
    let Some(mut filter) = filter else { return Ok(none()) };
    let head = log.read_head().await?;
    filter.insert("_id", doc! { "$lt": decimal(head) });
    let newest = log.all().find_one(filter.clone()).sort(doc! { "Aggregate.Version": -1 }).await;
    let Some(newest) = newest.map_err(|error| reading(&error))? else { return Ok(none()) };
    let (_, newest) = log.read_one(&newest)?;
    filter.insert("Aggregate.Version", versions(&query));
    let mut time = Document::new();
    query.from_time.iter().for_each(|from| drop(time.insert("$gte", DateTime::from_millis(from.as_millis()))));
    query.to_time.iter().for_each(|to| drop(time.insert("$lte", DateTime::from_millis(to.as_millis()))));
    if !time.is_empty() {
        filter.insert("Metadata.Occurred", time);
    }
    let order = if query.last { -1 } else { 1 };
    let all = log.all();
    let found = all.find(filter).sort(doc! { "Aggregate.Version": order }).limit(query.limit as i64);
    let mut found = found.await.map_err(|error| reading(&error))?;
    let (mut commits, mut bytes): (Vec<RecordedCommit>, usize) = (Vec::new(), 0);
    while found.advance().await.map_err(|error| reading(&error))? {
        bytes += found.current().as_bytes().len();
        if !commits.is_empty() && bytes > limits::PAGE_BYTES_MAX {
            break;
        }
        let (number, commit) = log.read_one(found.current())?;
        commits.push(commit.recorded(number));
    }
    commits.sort_unstable_by_key(|commit| commit.info.version);
    Ok(AggregateCommits { commits, version: newest.info.version })
}

/// Returns the range of versions: the layout counts events from 0, and a commit is one event.
fn versions(query: &AggregateQuery) -> Document {
    let before = |version: Version| decimal(version.saturating_sub(1));
    doc! { "$gte": before(query.from_version), "$lte": before(query.to_version) }
}

pub(super) async fn ids(log: &ScopeLog, query: AggregateIdsQuery) -> Result<Vec<KnownAggregate>, ReadError> {
    let Some(mut filter) = of_aggregate(log, &query.name, None) else { return Ok(Vec::new()) };
    filter.insert("Aggregate.Version", 0);
    filter.insert("_id", doc! { "$lt": decimal(log.read_head().await?) });
    if let Some(after) = &query.after {
        filter.insert("Metadata.EventSource", doc! { "$gt": &**after });
    }
    let all = log.all();
    let found = all.find(filter).sort(doc! { "Metadata.EventSource": 1 }).limit(query.limit as i64);
    let mut found = found.await.map_err(|error| reading(&error))?;
    let mut ids = Vec::new();
    while found.advance().await.map_err(|error| reading(&error))? {
        let current = found.current();
        find(current).map_err(|why| malformed(&log.database, &log.collection, current, why))?;
        let source = inner(current, "Metadata").and_then(|metadata| text_or_uuid(metadata, "EventSource"));
        ids.extend(source.map(|id| KnownAggregate { id: id.into(), tenant_id: DEFAULT_TENANT_ID.into() }));
    }
    Ok(ids)
}

/// Returns the names of the aggregates with events in this log.
pub(super) async fn names(log: &ScopeLog, query: AggregateNamesQuery) -> Result<Vec<ByteString>, ReadError> {
    let all = log.all();
    let types = all.distinct("Aggregate.TypeId", doc! { "Aggregate.WasAppliedByAggregate": true }).await;
    let mut names = BTreeSet::new();
    for found in types.map_err(|error| reading(&error))? {
        let found = rawdoc! { "type": RawBson::try_from(found).map_err(|error| unreadable(error.to_string()))? };
        let Some(uuid) = uuid(&found, "type") else { continue };
        names.insert(log.reader.mapping.name(Kind::Aggregate, uuid));
    }
    let after = query.after.as_deref().unwrap_or_default();
    Ok(names.into_iter().filter(|name| name.as_bytes() > after.as_bytes()).take(query.limit).collect())
}
