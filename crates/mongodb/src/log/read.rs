//! Reads a page of the log: entries say which commit has which sequence numbers, and the commits contain the events.
//!
//! Both are immutable once they are in the log, so a page needs no snapshot. INVARIANT: the end of what one read returned is never
//! mistaken for the end of the log, because another read may have seen an earlier state.
//!
//! ```text
//! all events:    head ┐
//!                     ├─▶ entries must follow on one another, from the one that holds `from` ─▶ commits ─▶ events
//!             entries ┘   (of blocks, as far as there are any)
//! filtered:      head ─▶ entries that may pass, in the head's session, so at least of its moment ─▶ commits ─▶ events that pass
//! ```

use std::ops::Range;
use std::time::Duration;

use annals_core::{
    AggregateFilter, Code, Filter, LogPage, LogQuery, ReadError, RecordedEvent, SequenceNumber, StoreError, limits,
};
use annals_system::sleep;
use mongodb::ClientSession;
use mongodb::bson::{Bson, Document, RawDocumentBuf, doc};

use super::Log;
use super::blocks;
use super::fetch::fetch_next;
use crate::layout::entry::{self, Entry};
use crate::layout::names::ENTRIES;
use crate::reach;
use crate::refused::{deleted, reading, unreadable};

/// Entries that are read together at most.
const ENTRIES_MAX: usize = 1000;
/// How many times as many entries are read once those before had no event that matches.
const MORE: usize = 8;
/// How often, and at which interval, entries are read again that are older than the head.
const BEHIND_MAX: usize = 200;
const PAUSE: Duration = Duration::from_millis(25);
/// Retries before a missing entry is searched for.
const BEFORE_LOST: usize = 20;

pub(super) async fn page(log: &Log, query: LogQuery) -> Result<LogPage, ReadError> {
    if query.backwards {
        return chosen(log, &query).await;
    }
    if let Some(page) = log.tail.page(&query) {
        return Ok(LogPage { head: page.head.max(log.numbers.seen()), ..page });
    }
    // An adopted log may have gaps from before its adoption.
    let gap_free = query.filter.is_all() && !log.adopted.there;
    let page = if gap_free { next(log, &query).await } else { chosen(log, &query).await }?;
    if page.events.is_empty() {
        log.tail.want();
    }
    Ok(page)
}

/// Reads all events from a number on, and prefetches the following pages.
async fn next(log: &Log, query: &LogQuery) -> Result<LogPage, ReadError> {
    let (from, limit) = (query.from.unwrap_or(0), query.limit);
    log.ahead.begin(&log.itself, from, limit, log.numbers.seen());
    let page = match log.ahead.take(from, limit).await {
        Some(page) => LogPage { head: page.head.max(log.numbers.seen()), ..page },
        None => whole(log, query, true).await?,
    };
    log.ahead.note(from, &page, limit);
    Ok(page)
}

/// Reads all events from a number on. `ask` means that the head is read from the server; that is not needed if the log is known to
/// continue after the page.
pub(super) async fn whole(log: &Log, query: &LogQuery, ask: bool) -> Result<LogPage, ReadError> {
    let from = query.from.unwrap_or(0);
    let stand = async || if ask { log.read_log_head().await } else { Ok(log.numbers.seen()) };
    if let Some(entries) = blocks::entries(log, from, query.limit).await {
        let mut page = Page::new(query);
        let (head, full) = tokio::try_join!(stand(), page.take(log, &entries, from))?;
        let end = full.unwrap_or_else(|| entries.last().map_or(from, |last| last.first + last.count));
        return Ok(LogPage { events: page.events, next: end, head: head.max(end) });
    }
    let mut head = 0;
    for tries in 0..BEHIND_MAX {
        let (stored, mut entries) = tokio::try_join!(stand(), beginning(log, from, query.limit, query.limit))?;
        head = stored;
        if from >= head && entries.is_empty() {
            return Ok(LogPage { events: Vec::new(), next: head, head });
        }
        if entries.first().is_none_or(|first| first.first != from) {
            let mut session = session(log).await?;
            entries.splice(..0, holding(log, from, &mut session).await?);
        }
        let following = following(&entries, from);
        if let Some(last) = following.last() {
            let end = last.first + last.count;
            log.numbers.publish(end);
            let mut page = Page::new(query);
            let full = page.take(log, following, from).await?;
            return Ok(LogPage { events: page.events, next: full.unwrap_or(end), head: head.max(end) });
        }
        // Other software may have moved the head; its numbers must not be skipped silently.
        judge(log).await?;
        if tries >= BEFORE_LOST && lost(log, from, head).await? {
            return Err(deleted(&log.database, ENTRIES, format_args!("the entry of event {from}")).into());
        }
        sleep(PAUSE).await;
    }
    Err(behind(from, head))
}

/// Reads the events that match a filter, by an index, or backwards.
async fn chosen(log: &Log, query: &LogQuery) -> Result<LogPage, ReadError> {
    let mut session = session(log).await?;
    let head = log.read_log_head_in(&mut session).await?;
    let mut next = match query.from {
        Some(from) => from.min(head),
        None if query.backwards => head,
        None => 0,
    };
    let mut page = Page::new(query);
    // The commit that contains `from` may begin before it.
    let mut bound = if query.backwards { next } else { start(log, next, &mut session).await? };
    // An entry that passes usually has an event that matches; the first one may have it before `from`.
    let mut most = query.limit.saturating_add(1).min(ENTRIES_MAX);
    loop {
        let entries = passing_entries(log, query, bound..head, most, &mut session).await?;
        most = (most * MORE).min(ENTRIES_MAX);
        let Some(last) = entries.last() else { break };
        // Nothing is known yet about what follows these entries; everything before is complete.
        let seen_to = if query.backwards { last.first } else { last.first + last.count };
        let full = page.take(log, &entries, next).await?;
        next = full.unwrap_or(seen_to);
        bound = next;
        if full.is_some() || !page.events.is_empty() {
            return Ok(LogPage { events: page.events, next, head });
        }
    }
    if !query.backwards && next < head && log.adopted.there {
        judge(log).await?;
    }
    let end = if query.backwards { 0 } else { head };
    Ok(LogPage { events: Vec::new(), next: end, head })
}

/// Returns whether an entry is permanently missing: later entries exist and none contains this number. Entries are written in order, so it
/// will not appear.
async fn lost(log: &Log, from: SequenceNumber, head: SequenceNumber) -> Result<bool, ReadError> {
    let mut session = session(log).await?;
    let stored = log.read_log_head_in(&mut session).await?;
    let entries = log.database.collection::<RawDocumentBuf>(ENTRIES);
    let behind = entries.find_one(doc! { "_id": { "$gte": from.min(i64::MAX as u64) as i64 } }).sort(doc! { "_id": 1 });
    let behind = behind.projection(entry::places()).session(&mut session).await.map_err(|error| reading(&error))?;
    let behind = behind.map(|found| entry::read(&found)).transpose().map_err(unreadable)?;
    let is_there = behind.is_some_and(|entry| entry.first == from) || holding(log, from, &mut session).await?.is_some();
    Ok(from < head.min(stored) && !is_there)
}

async fn judge(log: &Log) -> Result<(), ReadError> {
    let judged = reach::judge(&log.database).await;
    judged.map_err(|error| StoreError::other(error.code, error.message))?;
    Ok(())
}

/// Returns the error for counted events that cannot be read: they are never taken for the end of the log.
pub(super) fn behind(next: SequenceNumber, head: SequenceNumber) -> ReadError {
    let sentence = format!(
        "the log has {head} events, but those from {next} on cannot be read yet: MongoDB shows an earlier state; retry"
    );
    StoreError::Unreachable(sentence).into()
}

/// Starts a causally consistent session, in which each read sees the same or a later state than the previous one, whichever member
/// responds.
pub(super) async fn session(log: &Log) -> Result<ClientSession, ReadError> {
    let session = log.database.client().start_session().causal_consistency(true).await;
    session.map_err(|error| reading(&error).into())
}

/// Reads at most `most` entries of commits that begin in the range of `events` numbers starting at `from`, in order.
pub(super) async fn beginning(
    log: &Log,
    from: SequenceNumber,
    events: usize,
    most: usize,
) -> Result<Vec<Entry>, ReadError> {
    let entries = log.database.collection::<RawDocumentBuf>(ENTRIES);
    let to = from.saturating_add(events as u64).min(i64::MAX as u64);
    let find = entries.find(doc! { "_id": { "$gte": from.min(to) as i64, "$lt": to as i64 } }).sort(doc! { "_id": 1 });
    let find = find.limit(most as i64).batch_size(most as u32 + 1).projection(entry::places());
    let mut cursor = find.await.map_err(|error| reading(&error))?;
    let mut found: Vec<Entry> = Vec::new();
    while cursor.advance().await.map_err(|error| reading(&error))? {
        found.push(entry::read_behind(cursor.current(), found.last()).map_err(unreadable)?);
    }
    Ok(found)
}

/// Returns the longest prefix of the entries without a gap, starting at the commit that contains `from`.
fn following(entries: &[Entry], from: SequenceNumber) -> &[Entry] {
    let mut next = match entries.first() {
        Some(first) if first.first <= from && first.first + first.count > from => first.first,
        _ => return &[],
    };
    let hole = entries.iter().position(|entry| {
        let follows = entry.first == next;
        next = entry.first + entry.count;
        !follows
    });
    &entries[..hole.unwrap_or(entries.len())]
}

/// Returns the entry of the commit that contains `from` and begins before it, if there is one.
async fn holding(log: &Log, from: SequenceNumber, session: &mut ClientSession) -> Result<Option<Entry>, ReadError> {
    let entries = log.database.collection::<RawDocumentBuf>(ENTRIES);
    let before = entries.find_one(doc! { "_id": { "$lt": from.min(i64::MAX as u64) as i64 } }).sort(doc! { "_id": -1 });
    let before = before.projection(entry::places()).session(session).await.map_err(|error| reading(&error))?;
    let before = before.map(|found| entry::read(&found)).transpose().map_err(unreadable)?;
    Ok(before.filter(|entry| entry.first + entry.count > from))
}

/// Returns the first number of the commit that contains `from`.
pub(super) async fn start(
    log: &Log,
    from: SequenceNumber,
    session: &mut ClientSession,
) -> Result<SequenceNumber, ReadError> {
    Ok(if from == 0 { 0 } else { holding(log, from, session).await?.map_or(from, |entry| entry.first) })
}

/// Reads at most `most` entries of commits that may match the query, in its direction from the start of the range, at which a commit begins
/// or ends. A query forwards ends with the range.
async fn passing_entries(
    log: &Log,
    query: &LogQuery,
    range: Range<SequenceNumber>,
    most: usize,
    session: &mut ClientSession,
) -> Result<Vec<Entry>, ReadError> {
    let collection = log.database.collection::<RawDocumentBuf>(ENTRIES);
    let mut filter = passing(&query.filter);
    let range = match query.backwards {
        true => doc! { "$lt": range.start as i64 },
        false => doc! { "$gte": range.start as i64, "$lt": range.end as i64 },
    };
    filter.insert("_id", range);
    let order = if query.backwards { -1 } else { 1 };
    let find = collection.find(filter).sort(doc! { "_id": order }).limit(most as i64).batch_size(most as u32);
    let mut cursor = find.projection(entry::places()).session(&mut *session).await.map_err(|error| reading(&error))?;
    let mut entries: Vec<Entry> = Vec::new();
    while cursor.advance(session).await.map_err(|error| reading(&error))? {
        entries.push(entry::read_behind(cursor.current(), entries.last()).map_err(unreadable)?);
    }
    Ok(entries)
}

/// Returns the condition that an entry must meet for one of its events to match.
pub(super) fn passing(wanted: &Filter) -> Document {
    let texts = |texts: &[annals_core::ByteString]| texts.iter().map(|text| Bson::from(&**text)).collect::<Vec<_>>();
    let mut filter = Document::new();
    if !wanted.types.is_empty() {
        filter.insert("types", doc! { "$in": texts(&wanted.types) });
    }
    if !wanted.tags.is_empty() {
        filter.insert("tags", doc! { "$all": texts(&wanted.tags) });
    }
    if let Some(AggregateFilter { name, id }) = &wanted.aggregate {
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

impl<'a> Page<'a> {
    fn new(query: &'a LogQuery) -> Self {
        Self { query, events: Vec::new(), bytes: 0 }
    }

    /// Adds the matching events of these entries, starting at `from`. If the page becomes full, returns where to resume.
    async fn take(
        &mut self,
        log: &Log,
        entries: &[Entry],
        from: SequenceNumber,
    ) -> Result<Option<SequenceNumber>, ReadError> {
        let mut rest = entries;
        while let Some(first) = rest.first() {
            let fetched = match fetch_next(log, &mut rest, &log.pace).await {
                Ok(fetched) => fetched,
                // The page ends before a commit that cannot be read; a reader that resumes there gets the error.
                Err(ReadError::Store(error)) if error.code() == Code::MalformedDocument && !self.events.is_empty() => {
                    let next = if self.query.backwards { first.first + first.count } else { first.first };
                    return Ok(Some(next));
                }
                Err(error) => return Err(error),
            };
            for (entry, commit) in fetched {
                let mut events = commit.recorded(entry.first).events;
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
        self.bytes += event.page_bytes();
        let too_large = !self.events.is_empty() && self.bytes > limits::PAGE_BYTES_MAX;
        if too_large {
            return Some(if self.query.backwards { number + 1 } else { number });
        }
        self.events.push(event);
        let next = if self.query.backwards { number } else { number + 1 };
        (self.events.len() == self.query.limit).then_some(next)
    }
}
