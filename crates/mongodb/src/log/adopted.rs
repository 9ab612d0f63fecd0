//! Events that a Dolittle Runtime numbered before the log was adopted. They are read where it wrote them, and their entries in
//! `event-log-commits` describe them. Later commits of an aggregate continue after them.

use annals_core::{
    Aggregate, AggregateCommits, AggregateQuery, DEFAULT_TENANT_ID, Identity, KnownAggregate, ReadError,
    RecordedCommit, StoreError, limits,
};
use mongodb::Database;
use mongodb::bson::{Bson, Document, RawDocumentBuf, doc};
use std::sync::Arc;

use super::Log;
use super::aggregates::{self, versions};
use super::fetch::{Pace, fetch_next};
use super::heads::Head;
use crate::identity;
use crate::layout::adopted::Reader;
use crate::layout::entry;
use crate::layout::fields::{natural, text};
use crate::layout::foreign::StoredCommit;
use crate::layout::mapping::Mapping;
use crate::layout::names::{ENTRIES, EVENT_LOG, event_stream};
use crate::refused::{malformed, reading, unreadable};

/// What was adopted with a log.
pub(crate) struct Adopted {
    /// Whether anything was adopted. It never changes while a store is open, because an adoption needs the store closed.
    pub(crate) there: bool,
    pub(crate) reader: Reader,
}

impl Adopted {
    pub(crate) async fn read(database: &Database, identity: &Identity) -> mongodb::error::Result<Self> {
        let there = identity::adopted(database).await?.is_some();
        let mapping = if there { Mapping::read(database).await? } else { Mapping::default() };
        let reader = Reader { log: EVENT_LOG.to_owned(), store_id: identity.store_id, mapping: Arc::new(mapping) };
        Ok(Self { there, reader })
    }
}

/// Returns the events with these numbers as commits, and the bytes that were read.
///
/// Stops after `most` bytes.
pub(super) async fn fetch_events(
    log: &Log,
    numbers: &[&str],
    most: usize,
) -> Result<(Vec<StoredCommit>, usize), ReadError> {
    let numbers: Vec<Bson> = numbers.iter().filter_map(|number| number.parse::<i64>().ok()).map(Bson::from).collect();
    let events = log.database.collection::<RawDocumentBuf>(EVENT_LOG);
    let mut found = events.find(doc! { "_id": { "$in": numbers } }).await.map_err(|error| reading(&error))?;
    let (mut commits, mut bytes) = (Vec::new(), 0);
    while bytes <= most && found.advance().await.map_err(|error| reading(&error))? {
        let event = found.current();
        bytes += event.as_bytes().len();
        let commit = log.adopted.reader.read(event);
        commits.push(commit.map_err(|why| malformed(&log.database, EVENT_LOG, event, why))?);
    }
    Ok((commits, bytes))
}

/// Returns a filter for the entries of adopted events of an aggregate name.
fn of(name: &str) -> Document {
    doc! { "coll": EVENT_LOG, "aggregate": name }
}

/// Returns the head of an aggregate that has no commits of its own yet.
pub(super) async fn head(log: &Log, aggregate: &Aggregate) -> Result<Head, StoreError> {
    if !log.adopted.there {
        return Ok(Head::NONE);
    }
    let mut filter = of(&aggregate.name);
    filter.insert("id", &*aggregate.id);
    let entries = log.database.collection::<RawDocumentBuf>(ENTRIES);
    let newest = entries.find_one(filter).sort(doc! { "version": -1 }).await;
    let Some(found) = newest.map_err(|error| reading(&error))? else { return Ok(Head::NONE) };
    let version = natural(&found, "version")
        .ok_or_else(|| StoreError::Damaged(format!("{ENTRIES}: an entry of {aggregate} has no version")))?;
    Ok(Head { version, tenant_id: DEFAULT_TENANT_ID.into() })
}

/// Reads the commits of an aggregate whose first ones may be adopted.
pub(super) async fn read(log: &Log, query: AggregateQuery) -> Result<AggregateCommits, ReadError> {
    let others = query.tenant_id.as_deref().is_some_and(|tenant| tenant != DEFAULT_TENANT_ID);
    if others {
        return Ok(aggregates::own(log, &query).await?.0);
    }
    if query.last {
        let (mut found, whole) = aggregates::own(log, &query).await?;
        let rest = query.limit.saturating_sub(found.commits.len());
        if whole && rest > 0 {
            let (mut commits, _) = commits(log, &AggregateQuery { limit: rest, ..query }).await?;
            commits.append(&mut found.commits);
            found.commits = commits;
        }
        return Ok(found);
    }
    let (mut commits, whole) = commits(log, &query).await?;
    if !whole {
        let head = log.read_head(&event_stream(&query.aggregate.name)?, &query.aggregate).await?;
        return Ok(AggregateCommits { commits, version: head.version });
    }
    let rest = AggregateQuery { limit: query.limit - commits.len(), ..query };
    let (found, _) = aggregates::own(log, &rest).await?;
    commits.extend(found.commits);
    Ok(AggregateCommits { commits, version: found.version })
}

/// Returns the adopted commits of an aggregate that match the query, in order of version, and whether all of them fit into the page.
async fn commits(log: &Log, query: &AggregateQuery) -> Result<(Vec<RecordedCommit>, bool), ReadError> {
    let mut filter = of(&query.aggregate.name);
    filter.insert("id", &*query.aggregate.id);
    filter.insert("version", versions(query));
    let mut time = Document::new();
    query.from_time.iter().for_each(|from| drop(time.insert("$gte", from.as_millis())));
    query.to_time.iter().for_each(|to| drop(time.insert("$lte", to.as_millis())));
    if !time.is_empty() {
        filter.insert("time", time);
    }
    let order = if query.last { -1 } else { 1 };
    let entries = log.database.collection::<RawDocumentBuf>(ENTRIES);
    let find = entries.find(filter).sort(doc! { "version": order }).limit(query.limit as i64);
    let mut found = find.await.map_err(|error| reading(&error))?;
    let mut wanted = Vec::new();
    while found.advance().await.map_err(|error| reading(&error))? {
        wanted.push(entry::read(found.current()).map_err(unreadable)?);
    }
    let (mut commits, mut bytes, mut whole) = (Vec::with_capacity(wanted.len()), 0, wanted.len() < query.limit);
    let pace = Pace::default();
    let mut rest = &wanted[..];
    'pages: while !rest.is_empty() {
        for (entry, commit) in fetch_next(log, &mut rest, &pace).await? {
            let commit = commit.recorded(entry.first);
            bytes += commit.events.iter().map(|event| event.page_bytes()).sum::<usize>();
            if !commits.is_empty() && bytes > limits::PAGE_BYTES_MAX {
                whole = false;
                break 'pages;
            }
            commits.push(commit);
        }
    }
    commits.sort_unstable_by_key(|commit: &RecordedCommit| commit.info.version);
    Ok((commits, whole))
}

/// Returns ids of adopted aggregates of a name, in order.
pub(super) async fn ids(
    log: &Log,
    name: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<KnownAggregate>, ReadError> {
    if !log.adopted.there {
        return Ok(Vec::new());
    }
    let mut filter = of(name);
    filter.insert("version", 1);
    after.iter().for_each(|after| drop(filter.insert("id", doc! { "$gt": *after })));
    let entries = log.database.collection::<RawDocumentBuf>(ENTRIES);
    let find = entries.find(filter).sort(doc! { "id": 1 }).limit(limit as i64).projection(doc! { "id": 1 });
    let mut found = find.await.map_err(|error| reading(&error))?;
    let mut ids = Vec::new();
    while found.advance().await.map_err(|error| reading(&error))? {
        let id = text(found.current(), "id").ok_or_else(|| unreadable("event-log-commits: id is not a string"))?;
        ids.push(KnownAggregate { id: id.into(), tenant_id: DEFAULT_TENANT_ID.into() });
    }
    Ok(ids)
}
