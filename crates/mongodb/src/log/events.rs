//! Reads events by their sequence numbers, which may be far apart. The cost is proportional to the number of events.

use annals_core::{ReadError, RecordedEvent, SequenceNumber, limits};
use futures_util::TryStreamExt;
use mongodb::bson::{Document, RawDocumentBuf, doc};

use super::Log;
use super::fetch::{Pace, fetch_next};
use crate::layout::entry::{self, Entry};
use crate::layout::names::ENTRIES;
use crate::refused::{reading, unreadable};

/// A range of the log is read as a whole if at least one in this many events is wanted; otherwise each number is looked up.
const SPARSE: u64 = 8;

impl Log {
    /// Returns the events with these numbers, which are ascending and below the head. It ends early once it has [`limits::PAGE_BYTES_MAX`]
    /// bytes of event data, but returns at least one event.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub(crate) async fn events(&self, numbers: &[SequenceNumber]) -> Result<Vec<RecordedEvent>, ReadError> {
        let (Some(first), Some(last)) = (numbers.first(), numbers.last()) else { return Ok(Vec::new()) };
        let entries = match last - first < SPARSE * numbers.len() as u64 {
            true => range(self, *first, *last).await?,
            false => each(self, numbers).await?,
        };
        let mut events = Vec::with_capacity(numbers.len());
        let mut bytes = 0;
        let pace = Pace::default();
        let mut rest = &entries[..];
        while !rest.is_empty() {
            for (entry, commit) in fetch_next(self, &mut rest, &pace).await? {
                for event in commit.recorded(entry.first).events {
                    if numbers.get(events.len()) != Some(&event.sequence_number) {
                        continue;
                    }
                    bytes += event.page_bytes();
                    if !events.is_empty() && bytes > limits::PAGE_BYTES_MAX {
                        return Ok(events);
                    }
                    events.push(event);
                }
            }
        }
        match numbers.get(events.len()) {
            Some(number) => Err(unreadable(format!("{ENTRIES}: no commit holds event {number}"))),
            None => Ok(events),
        }
    }
}

/// Reads the entries of a range of the log; the first may begin before it.
async fn range(log: &Log, first: SequenceNumber, last: SequenceNumber) -> Result<Vec<Entry>, ReadError> {
    let entries = log.database.collection::<RawDocumentBuf>(ENTRIES);
    let holding = entries.find_one(doc! { "_id": { "$lte": first as i64 } }).sort(doc! { "_id": -1 });
    let holding = holding.await.map_err(|error| reading(&error))?;
    let holding = holding.map(|found| entry::read(&found)).transpose().map_err(unreadable)?;
    let start = holding.as_ref().map_or(0, |entry| entry.first + 1);
    let behind = entries.find(doc! { "_id": { "$gte": start as i64, "$lte": last as i64 } }).sort(doc! { "_id": 1 });
    let mut found: Vec<Entry> = holding.into_iter().collect();
    let mut behind = behind.await.map_err(|error| reading(&error))?;
    while behind.advance().await.map_err(|error| reading(&error))? {
        found.push(entry::read(behind.current()).map_err(unreadable)?);
    }
    Ok(found)
}

/// Finds the entry that contains each number: one index look-up per number, in a single round trip.
async fn each(log: &Log, numbers: &[SequenceNumber]) -> Result<Vec<Entry>, ReadError> {
    let wanted: Vec<Document> = numbers.iter().map(|number| doc! { "n": *number as i64 }).collect();
    let holding = doc! {
        "from": ENTRIES, "let": { "n": "$n" }, "as": "entry",
        "pipeline": [
            { "$match": { "$expr": { "$lte": ["$_id", "$$n"] } } }, { "$sort": { "_id": -1 } }, { "$limit": 1 },
        ],
    };
    let pipeline = [
        doc! { "$documents": wanted },
        doc! { "$lookup": holding },
        doc! { "$unwind": "$entry" },
        doc! { "$replaceRoot": { "newRoot": "$entry" } },
    ];
    let found = log.database.aggregate(pipeline).with_type::<RawDocumentBuf>();
    let found: Vec<RawDocumentBuf> = match found.await {
        Ok(found) => found.try_collect().await.map_err(|error| reading(&error))?,
        Err(error) => return Err(reading(&error).into()),
    };
    let mut entries =
        found.iter().map(|found| entry::read(found)).collect::<Result<Vec<_>, _>>().map_err(unreadable)?;
    entries.sort_unstable_by_key(|entry| entry.first);
    entries.dedup_by_key(|entry| entry.first);
    Ok(entries)
}
