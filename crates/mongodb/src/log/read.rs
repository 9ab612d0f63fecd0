//! A page of the log: entries say which commits stand where, the commits hold the events.
//!
//! Both are immutable once they are in the log, so a page needs no snapshot: what it shows was there.

use std::collections::HashMap;

use annals_core::{AggregateFilter, LogPage, LogQuery, ReadError, RecordedEvent, SequenceNumber, StoreError, limits};
use mongodb::bson::{Bson, Document, RawDocumentBuf, doc};

use super::{Log, adopted};
use crate::layout::entry::{self, Entry};
use crate::layout::foreign::{self, StoredCommit};
use crate::layout::names::{ENTRIES, EVENT_LOG, aggregate_of};
use crate::reach;
use crate::refused::{reading, unreadable};

/// Entries that are looked at in one go.
const ENTRIES_MAX: i64 = 1000;

pub(super) async fn page(log: &Log, query: LogQuery) -> Result<LogPage, ReadError> {
    let head = log.read_log_head().await?;
    let mut next = match query.from {
        Some(from) => from.min(head),
        None if query.backwards => head,
        None => 0,
    };
    let mut page = Page { query: &query, events: Vec::new(), bytes: 0 };
    loop {
        let entries = entries(log, &query, next, head).await?;
        let Some(last) = entries.last() else { break };
        // Behind these entries nothing is known yet; before that point all is.
        let seen_to = if query.backwards { last.first } else { last.first + last.count };
        let full = page.take(log, &entries, next).await?;
        next = full.unwrap_or(seen_to);
        if full.is_some() || !page.events.is_empty() {
            return Ok(LogPage { events: page.events, next, head });
        }
    }
    // Nothing up to the head: so it is, unless the head was moved by others, whose numbers nobody may pass over unseen.
    if !query.backwards && next < head && (query.filter.is_all() || log.adopted.there) {
        let judged = reach::judge(&log.database).await;
        judged.map_err(|error| StoreError::ForeignNumbers(error.message))?;
    }
    let end = if query.backwards { 0 } else { head };
    Ok(LogPage { events: Vec::new(), next: end, head })
}

/// The entries of commits that may hold what is asked for, in its direction, beginning with the one that holds `from`.
async fn entries(
    log: &Log,
    query: &LogQuery,
    from: SequenceNumber,
    head: SequenceNumber,
) -> Result<Vec<Entry>, ReadError> {
    let collection = log.database.collection::<RawDocumentBuf>(ENTRIES);
    let mut filter = passing(query);
    if query.backwards {
        filter.insert("_id", doc! { "$lt": from as i64 });
    } else {
        if from >= head {
            return Ok(Vec::new());
        }
        // The commit that holds `from` may begin before it.
        let holding = collection.find_one(doc! { "_id": { "$lte": from as i64 } }).sort(doc! { "_id": -1 });
        let holding = holding.projection(doc! { "_id": 1 }).await.map_err(|error| reading(&error))?;
        let start = holding.and_then(|found| found.get_i64("_id").ok()).unwrap_or(0);
        filter.insert("_id", doc! { "$gte": start, "$lt": head as i64 });
    }
    let order = if query.backwards { -1 } else { 1 };
    // Each entry holds an event at least.
    let limit = if query.filter.is_all() { query.limit as i64 + 1 } else { ENTRIES_MAX };
    let find = collection.find(filter).sort(doc! { "_id": order }).limit(limit);
    let mut cursor = find.await.map_err(|error| reading(&error))?;
    let mut entries = Vec::new();
    while cursor.advance().await.map_err(|error| reading(&error))? {
        entries.push(entry::read(cursor.current()).map_err(unreadable)?);
    }
    Ok(entries)
}

/// What an entry must have so that one of its events may pass.
fn passing(query: &LogQuery) -> Document {
    let texts = |texts: &[annals_core::ByteString]| texts.iter().map(|text| Bson::from(&**text)).collect::<Vec<_>>();
    let mut filter = Document::new();
    if !query.filter.types.is_empty() {
        filter.insert("types", doc! { "$in": texts(&query.filter.types) });
    }
    if !query.filter.tags.is_empty() {
        filter.insert("tags", doc! { "$all": texts(&query.filter.tags) });
    }
    if let Some(AggregateFilter { name, id }) = &query.filter.aggregate {
        filter.insert("aggregate", &**name);
        id.iter().for_each(|id| drop(filter.insert("id", &**id)));
    }
    filter
}

struct Page<'a> {
    query: &'a LogQuery,
    events: Vec<RecordedEvent>,
    bytes: usize,
}

/// Entries whose commits are fetched together.
const FETCH_MAX: usize = 100;

impl Page<'_> {
    /// Takes the events of these entries that pass, from `from` on. Where the page is full it says where to go on.
    async fn take(
        &mut self,
        log: &Log,
        entries: &[Entry],
        from: SequenceNumber,
    ) -> Result<Option<SequenceNumber>, ReadError> {
        for some in entries.chunks(FETCH_MAX) {
            let mut commits = fetch(log, some).await?;
            for entry in some {
                let commit = commits.remove(&(entry.collection.clone(), entry.commit.clone()));
                let missing =
                    || unreadable(format!("{}: commit {} of the log is gone", entry.collection, entry.commit));
                let mut events = commit.ok_or_else(missing)?.recorded(entry.first).events;
                if self.query.backwards {
                    events.reverse();
                }
                for event in events {
                    if let Some(full) = self.add(event, from) {
                        return Ok(Some(full));
                    }
                }
            }
        }
        Ok(None)
    }

    fn add(&mut self, event: RecordedEvent, from: SequenceNumber) -> Option<SequenceNumber> {
        let number = event.sequence_number;
        let asked_for = if self.query.backwards { number < from } else { number >= from };
        if !asked_for || !self.query.filter.admits(&event) {
            return None;
        }
        self.bytes += event.data.as_bytes().len();
        let too_large = !self.events.is_empty() && self.bytes > limits::PAGE_BYTES_MAX;
        if too_large {
            return Some(if self.query.backwards { number + 1 } else { number });
        }
        self.events.push(event);
        let next = if self.query.backwards { number } else { number + 1 };
        (self.events.len() == self.query.limit).then_some(next)
    }
}

/// The commits of these entries, by collection and `_id`.
pub(super) async fn fetch(log: &Log, entries: &[Entry]) -> Result<HashMap<(String, String), StoredCommit>, ReadError> {
    let mut wanted: HashMap<&str, Vec<&str>> = HashMap::new();
    for entry in entries {
        wanted.entry(&entry.collection).or_default().push(&entry.commit);
    }
    let mut commits = HashMap::with_capacity(entries.len());
    for (collection, ids) in wanted {
        if collection == EVENT_LOG {
            let found = adopted::fetch_events(log, &ids).await?;
            commits.extend(found.into_iter().map(|commit| ((collection.to_owned(), commit.key.clone()), commit)));
            continue;
        }
        let name = aggregate_of(collection).ok_or_else(|| unreadable(format!("{collection} holds no commits")))?;
        let documents = log.database.collection::<RawDocumentBuf>(collection);
        let mut cursor = documents.find(doc! { "_id": { "$in": ids } }).await.map_err(|error| reading(&error))?;
        while cursor.advance().await.map_err(|error| reading(&error))? {
            let commit = foreign::read(cursor.current(), name);
            let commit = commit.map_err(|why| unreadable(format!("{collection}: a commit of the log: {why}")))?;
            commits.insert((collection.to_owned(), commit.key.clone()), commit);
        }
    }
    Ok(commits)
}
