//! Reads the entries of a stream.

use annals_core::{
    Appended, Partitions, ReadError, SequenceNumber, StreamEntry, StreamError, StreamPage, StreamPosition, StreamQuery,
    Verdicts,
};
use mongodb::bson::{RawDocument, RawDocumentBuf, doc};

use super::collections::Collections;
use super::meta::{self, Meta};
use crate::layout::stream::{self, NO_PARTITION, PARTITION, SEQUENCE_NUMBER};
use crate::layout::writer::decimal;
use crate::refused::{deleted, malformed, reading};

/// Reads the page of a query.
pub(super) async fn page(collections: &Collections, query: &StreamQuery) -> Result<StreamPage, ReadError> {
    let Some(meta) = meta::shown(collections, &query.stream).await? else {
        return Ok(StreamPage { entries: Vec::new(), next: 0, head: 0 });
    };
    let range = query.range(meta.head);
    let mut filter = doc! { "_id": { "$gte": decimal(range.start), "$lt": decimal(range.end) } };
    let partition = match &query.partitions {
        Partitions::All => None,
        Partitions::Without => Some(NO_PARTITION),
        Partitions::One(partition) => Some(&**partition),
    };
    partition.iter().for_each(|partition| drop(filter.insert(PARTITION, *partition)));
    // No entry can have this partition, because the layout uses it for "no partition".
    let impossible = matches!(&query.partitions, Partitions::One(partition) if &**partition == NO_PARTITION);
    let mut entries = Vec::new();
    if !range.is_empty() && !impossible {
        let all = collections.database.collection::<RawDocumentBuf>(&meta.collection);
        let found = all.find(filter).sort(doc! { "_id": 1 }).limit(query.limit as i64).projection(stream::projection());
        let found = found.batch_size(u32::try_from(query.limit).unwrap_or(u32::MAX));
        let mut found = found.await.map_err(|error| reading(&error))?;
        while found.advance().await.map_err(|error| reading(&error))? {
            entries.push(entry(collections, &meta, found.current())?);
        }
    }
    if query.partitions == Partitions::All {
        let due = range.clone().take(query.limit);
        let there = entries.iter().map(|entry: &StreamEntry| entry.position);
        if !due.eq(there) {
            let what = format!("an entry from position {} on", range.start);
            return Err(deleted(&collections.database, &meta.collection, what).into());
        }
    }
    let next = match entries.last() {
        Some(last) if entries.len() == query.limit => last.position + 1,
        _ => range.end,
    };
    Ok(StreamPage { entries, next, head: meta.head })
}

fn entry(collections: &Collections, meta: &Meta, found: &RawDocument) -> Result<StreamEntry, ReadError> {
    stream::read(found).map_err(|why| malformed(&collections.database, &meta.collection, found, why).into())
}

/// Returns the first position whose event has this sequence number or a greater one; the head if there is none.
pub(super) async fn position_of(
    collections: &Collections,
    meta: &Meta,
    number: SequenceNumber,
) -> Result<StreamPosition, ReadError> {
    // All sequence numbers are below the progress.
    if number >= meta.progress {
        return Ok(meta.head);
    }
    let entries = collections.database.collection::<RawDocumentBuf>(&meta.collection);
    let first = entries.find_one(doc! { SEQUENCE_NUMBER: { "$gte": decimal(number) } });
    let first = first.sort(doc! { SEQUENCE_NUMBER: 1 }).projection(stream::projection()).await;
    let first = first.map_err(|error| reading(&error))?;
    let position = first.map(|first| entry(collections, meta, &first)).transpose()?.map(|entry| entry.position);
    // Entries appended since the head was read are after it.
    Ok(position.map_or(meta.head, |position| position.min(meta.head)))
}

/// Answers verdicts on events that already have verdicts: the first outcome if they are the same, otherwise an error.
pub(super) async fn repeat(
    collections: &Collections,
    meta: &Meta,
    verdicts: &Verdicts,
) -> Result<Appended, StreamError> {
    let asked = |error: mongodb::error::Error| ReadError::from(reading(&error));
    let judged = doc! { SEQUENCE_NUMBER: { "$gte": decimal(verdicts.from), "$lt": decimal(verdicts.to) } };
    let all = collections.database.collection::<RawDocumentBuf>(&meta.collection);
    let found = all.find(judged).sort(doc! { SEQUENCE_NUMBER: 1 });
    let mut found = found.projection(stream::projection()).batch_size(1_000).await.map_err(asked).map_err(refused)?;
    let mut given = verdicts.included.iter();
    let mut positions: Option<std::ops::Range<StreamPosition>> = None;
    loop {
        let known = match found.advance().await.map_err(asked).map_err(refused)? {
            true => Some(entry(collections, meta, found.current()).map_err(refused)?),
            false => None,
        };
        let differs = match (&known, given.next()) {
            (None, None) => break,
            (Some(known), None) => Some(known.sequence_number),
            (None, Some(given)) => Some(given.sequence_number),
            (Some(known), Some(given)) if known.sequence_number != given.sequence_number => {
                Some(known.sequence_number.min(given.sequence_number))
            }
            (Some(known), Some(given)) => (known.partition != given.partition).then_some(given.sequence_number),
        };
        if let Some(sequence_number) = differs {
            return Err(StreamError::VerdictsDiffer { sequence_number });
        }
        if let Some(known) = known {
            let start = positions.map_or(known.position, |positions| positions.start);
            positions = Some(start..known.position + 1);
        }
    }
    let positions = match positions {
        Some(positions) => positions,
        None => {
            let position = position_of(collections, meta, verdicts.from).await.map_err(refused)?;
            position..position
        }
    };
    Ok(Appended { positions, duplicate: true })
}

/// Converts a read error into the error of an append.
pub(super) fn refused(error: ReadError) -> StreamError {
    match error {
        ReadError::Store(error) => error.into(),
        ReadError::Invalid(error) => error.into(),
        other => annals_core::StoreError::Io(other.to_string()).into(),
    }
}
