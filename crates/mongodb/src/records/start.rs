//! Turns a feed on, or completes an index that expires in a collection with one: the steps after the catalog has the declaration. A
//! collection that is new needs none of them (`Catalog::add_new`).
//!
//! ```text
//!  1 the feed's state is made                    nobody reads it yet
//!  2 the entry says "starting"                   writers that read it note changes and write markers; readers are refused as before
//!  3 the fence is raised                         no transaction is in flight that was judged without notes (fence.rs)
//!  4 records that expire get their markers       each in a transaction that conflicts with a change of the record (expiry.rs)
//!  5 the entry says that there is a feed         it can be followed
//! ```
//!
//! A process that dies in between leaves "starting" behind: changes are noted, and the feed cannot be followed. The next declaration with
//! the feed runs all steps again; each may be repeated, also by several processes at once.

use annals_core::bson::{Bson, Document, RawDocumentBuf, doc};
use annals_core::{Index, RecordError, StoreError};

use super::catalog::Known;
use super::write::Work;
use super::{MongoRecords, document, feed};
use crate::refused::reading;

/// Records that get their markers in one transaction.
const MARKED_AT_ONCE: usize = 500;

/// Returns whether a stored declaration needs these steps.
pub(super) fn is_due(known: &Known, with_feed: bool) -> bool {
    (with_feed && !known.feed) || (known.notes && known.unmarked)
}

/// Runs the steps. Once this returns, every later acknowledged change of the collection is noted.
pub(super) async fn run(records: &MongoRecords, name: &str) -> Result<(), RecordError> {
    feed::start(&records.database, name).await?;
    records.catalog.start_feed(name).await?;
    records.writer.fence().raise().await?;
    let known = records.catalog.read(name).await?;
    let known = known.ok_or_else(|| RecordError::UnknownCollection(name.to_owned()))?;
    mark(records, &known).await?;
    records.catalog.finish_feed(&known).await?;
    records.catalog.read(name).await?;
    Ok(())
}

/// Adds the markers of all records that expire. Records written in the meantime get theirs from their writers.
async fn mark(records: &MongoRecords, known: &Known) -> Result<(), RecordError> {
    let expiring = known.indexes.iter().filter(|index| index.expires_after_seconds().is_some());
    let paths = expiring.flat_map(Index::fields);
    let any: Vec<Document> = paths.map(|(path, _)| doc! { path: { "$exists": true } }).collect();
    if any.is_empty() {
        return Ok(());
    }
    let asked = |error: mongodb::error::Error| RecordError::from(reading(&error));
    let stored = records.database.collection::<RawDocumentBuf>(&known.name);
    let found = stored.find(doc! { "$or": any }).sort(doc! { "_id": 1 }).projection(doc! { "_id": 1 });
    let mut found = found.await.map_err(asked)?;
    let mut ids: Vec<(String, Bson)> = Vec::new();
    loop {
        let more = found.advance().await.map_err(asked)?;
        if more {
            ids.push((known.name.clone(), document::owned_id(found.current())));
        }
        if ids.len() >= MARKED_AT_ONCE || (!more && !ids.is_empty()) {
            answered(records.writer.write(Work::Mark(std::mem::take(&mut ids))).await)?;
        }
        if !more {
            return Ok(());
        }
    }
}

/// Converts the answer; if the store is closing, the rest is left to the next declaration.
fn answered(answer: Result<Vec<u64>, RecordError>) -> Result<(), StoreError> {
    match answer {
        Ok(_) => Ok(()),
        Err(RecordError::Store(error)) => Err(error),
        Err(other) => Err(StoreError::Io(other.to_string())),
    }
}
