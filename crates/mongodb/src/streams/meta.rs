//! The state of a stream.
//!
//! ```text
//! annals-streams: {_id: name, collection, head int64, progress int64, incarnation int32, incarnationStart int64, by, fence int64}
//!                 by: a name for the append that was last     fence: moved to wait for the end of a transaction
//! ```

use annals_core::{
    ByteString, Code, Identity, Invalid, ReadError, SequenceNumber, StreamError, StreamInfo, StreamPosition,
    StreamsQuery,
};
use mongodb::bson::{Document, RawDocument, RawDocumentBuf, doc};

use super::collections::Collections;
use super::reader::refused;
use crate::layout::fields::{natural, text};
use crate::layout::names::EVENT_LOG_METADATA;
use crate::layout::writer::decimal;
use crate::layout::{schema, stream};
use crate::refused::{code_of, malformed, reading, unreadable, unready};

/// The state of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Meta {
    pub(super) collection: String,
    pub(super) head: StreamPosition,
    pub(super) progress: SequenceNumber,
    incarnation_start: StreamPosition,
    /// The token of the last append.
    pub(super) by: Option<String>,
}

impl Meta {
    pub(super) fn info(&self, name: impl Into<ByteString>) -> StreamInfo {
        let Self { head, progress, incarnation_start, .. } = *self;
        StreamInfo { name: name.into(), head, progress, incarnation_start }
    }
}

fn of(collections: &Collections, found: &RawDocument) -> Result<Meta, ReadError> {
    let name = text(found, "_id").unwrap_or_default();
    let number =
        |key: &str| natural(found, key).ok_or_else(|| unreadable(format!("{}: {key} of {name:?}", collections.states)));
    let collection =
        text(found, "collection").ok_or_else(|| unreadable(format!("{}: {name:?}", collections.states)))?;
    Ok(Meta {
        collection: collection.to_owned(),
        head: number("head")?,
        progress: number("progress")?,
        incarnation_start: number("incarnationStart")?,
        by: text(found, "by").map(str::to_owned),
    })
}

/// Reads the state of a stream at majority; `None` if there was no attempt to append to it.
pub(super) async fn read(collections: &Collections, name: &str) -> Result<Option<Meta>, ReadError> {
    let states = collections.database.collection::<RawDocumentBuf>(&collections.states);
    let found = states.find_one(doc! { "_id": name }).await;
    found.map_err(|error| reading(&error))?.map(|found| of(collections, &found)).transpose()
}

/// Returns the state of a stream as readers see it. A stream that only other software fills has no state of ours: its collection
/// determines how far it reaches.
pub(super) async fn shown(collections: &Collections, name: &str) -> Result<Option<Meta>, ReadError> {
    if let Some(meta) = read(collections, name).await? {
        return Ok(Some(meta));
    }
    for public in [false, true] {
        // No stream of this scope can have this name.
        let Ok(collection) = collections.collection_of(name, public) else { continue };
        let (head, progress) = reach(collections, &collection).await?;
        if head > 0 {
            return Ok(Some(Meta { collection, head, progress, incarnation_start: 0, by: None }));
        }
    }
    Ok(None)
}

/// Reads a page of the streams that have progressed.
pub(super) async fn list(collections: &Collections, query: &StreamsQuery) -> Result<Vec<StreamInfo>, ReadError> {
    let mut filter = doc! { "progress": { "$gt": 0_i64 } };
    if let Some(after) = &query.after {
        filter.insert("_id", doc! { "$gt": &**after });
    }
    let states = collections.database.collection::<RawDocumentBuf>(&collections.states);
    let found = states.find(filter).sort(doc! { "_id": 1 }).limit(query.limit as i64);
    let mut found = found.await.map_err(|error| reading(&error))?;
    let mut listed = Vec::new();
    while found.advance().await.map_err(|error| reading(&error))? {
        let found = found.current();
        listed.push(of(collections, found)?.info(text(found, "_id").unwrap_or_default()));
    }
    Ok(listed)
}

/// Creates what a stream needs, since nothing can be created inside a transaction. Returns the name of its collection. If two processes
/// begin a stream at once, both find the same state.
pub(super) async fn begin(
    collections: &Collections,
    (name, public): (&str, bool),
    identity: &Identity,
    create: bool,
) -> Result<String, StreamError> {
    const DUPLICATE_KEY: i32 = 11000;
    let asked = |error: mongodb::error::Error| StreamError::from(reading(&error));
    let collection = collections.collection_of(name, public)?;
    schema::ensure_stream(&collections.database, &collection, create).await.map_err(unready)?;
    let (head, progress) = reach(collections, &collection).await.map_err(refused)?;
    let fresh = doc! { "$setOnInsert": {
        "collection": &collection, "head": head as i64, "progress": progress as i64,
        "incarnation": i64::from(identity.incarnation) as i32, "incarnationStart": 0_i64, "fence": 0_i64,
    } };
    let states = collections.database.collection::<Document>(&collections.states);
    match states.update_one(doc! { "_id": name }, fresh).upsert(true).await {
        // Another process may have begun it at the same time, or another stream has this collection.
        Err(error) if code_of(&error) == Some(DUPLICATE_KEY) => {
            if states.find_one(doc! { "_id": name }).await.map_err(asked)?.is_none() {
                let message = format!(
                    "{name:?} would be kept in {collection}, which is another stream's already; use that one's name, or another"
                );
                return Err(Invalid::new(Code::InvalidName, "stream", message).into());
            }
        }
        other => drop(other.map_err(asked)?),
    }
    let offsets = collections.database.collection::<Document>(EVENT_LOG_METADATA);
    let offset = doc! { "$setOnInsert": { "NextEventOffset": decimal(head) } };
    offsets.update_one(doc! { "_id": &collection }, offset).upsert(true).await.map_err(asked)?;
    Ok(collection)
}

/// Returns how far other software has filled a collection: its next position, and one past its last event.
async fn reach(collections: &Collections, collection: &str) -> Result<(StreamPosition, SequenceNumber), ReadError> {
    let entries = collections.database.collection::<RawDocumentBuf>(collection);
    let last = entries.find_one(doc! {}).sort(doc! { "_id": -1 });
    let last = last.projection(stream::projection()).await;
    let Some(last) = last.map_err(|error| reading(&error))? else { return Ok((0, 0)) };
    let last = stream::read(&last).map_err(|why| malformed(&collections.database, collection, &last, why))?;
    Ok((last.position + 1, last.sequence_number + 1))
}
