//! Converts events of the log to entries of a stream.

use annals_core::{Code, Included, Invalid, StreamError, StreamPosition};
use mongodb::bson::{Bson, RawDocumentBuf, doc};

use super::collections::Collections;
use crate::layout::fields::natural;
use crate::layout::stream;
use crate::layout::writer::decimal;
use crate::refused::{deleted, malformed, reading};

/// Approximate limit of the bytes of the entries of one append: they are one transaction, and are held in memory.
const BYTES_MAX: usize = 64 * 1024 * 1024;
/// Events that are looked up together.
const EVENTS_MAX: usize = 1_000;

/// Returns the entries of the included events, with positions from `first` on.
pub(super) async fn of(
    collections: &Collections,
    included: &[Included],
    first: StreamPosition,
) -> Result<Vec<RawDocumentBuf>, StreamError> {
    let events = collections.database.collection::<RawDocumentBuf>(&collections.events);
    let mut entries = Vec::with_capacity(included.len());
    let mut bytes = 0;
    for some in included.chunks(EVENTS_MAX) {
        let found = events.find(wanted(some)).sort(doc! { "_id": 1 }).batch_size(EVENTS_MAX as u32);
        let mut found = found.await.map_err(|error| reading(&error))?;
        for included in some {
            let there = found.advance().await.map_err(|error| reading(&error))?;
            if !there || natural(found.current(), "_id") != Some(included.sequence_number) {
                let what = format!("event {}", included.sequence_number);
                return Err(deleted(&collections.database, &collections.events, what).into());
            }
            let position = first + entries.len() as u64;
            let entry = stream::write(found.current(), position, included.partition.as_deref());
            let wrong = |why| malformed(&collections.database, &collections.events, found.current(), why);
            let entry = entry.map_err(wrong)?;
            bytes += entry.as_bytes().len();
            if bytes > BYTES_MAX && !entries.is_empty() {
                let message = format!(
                    "the events take more than {} MiB together, which is too much for a transaction; append less at once",
                    BYTES_MAX / 1024 / 1024
                );
                return Err(Invalid::new(Code::InvalidVerdicts, "included", message).into());
            }
            entries.push(entry);
        }
    }
    Ok(entries)
}

fn wanted(included: &[Included]) -> mongodb::bson::Document {
    let first = included.first().map_or(0, |included| included.sequence_number);
    let last = included.last().map_or(0, |included| included.sequence_number);
    if last - first + 1 == included.len() as u64 {
        return doc! { "_id": { "$gte": decimal(first), "$lte": decimal(last) } };
    }
    let numbers: Vec<Bson> = included.iter().map(|included| decimal(included.sequence_number).into()).collect();
    doc! { "_id": { "$in": numbers } }
}
