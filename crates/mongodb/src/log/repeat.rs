//! Detects whether a commit repeats an earlier one: it is found by its request id and compared by its content.
//!
//! The content is what the digest of other stores covers ([`NewCommit::content_digest`]): types, generations, data, tags, public,
//! metadata, the ids that the client gave, and the prepare keys. The first commit is read here anyway, so the contents themselves are
//! compared, and commits of other software need no digest.

use annals_core::{Aggregate, CommitOutcome, NewCommit, ReadError, StoreError, event_uuid};
use mongodb::bson::{RawDocumentBuf, doc};

use super::Log;
use super::fetch::same_events;
use super::numbers::Place;
use crate::layout::foreign::{StoredCommit, read};
use crate::refused::{malformed, reading};

/// Returns the commit of this request, if a majority has one.
pub(super) async fn find(
    log: &Log,
    collection: &str,
    aggregate: &Aggregate,
    request_id: &str,
) -> Result<Option<StoredCommit>, StoreError> {
    let commits = log.database.collection::<RawDocumentBuf>(collection);
    let filter = doc! { "aggregateId": &*aggregate.id, "requestId": request_id };
    let found = commits.find_one(filter).await.map_err(|error| reading(&error))?;
    let wrong = |found: &RawDocumentBuf, why| malformed(&log.database, collection, found, why);
    found.map(|found| read(&found, &aggregate.name).map_err(|why| wrong(&found, why))).transpose()
}

/// Returns whether a majority has stored a request with this id.
pub(super) async fn exists(
    log: &Log,
    collection: &str,
    aggregate: &Aggregate,
    request_id: &str,
) -> Result<bool, ReadError> {
    let commits = log.database.collection::<RawDocumentBuf>(collection);
    let filter = doc! { "aggregateId": &*aggregate.id, "requestId": request_id };
    let found = commits.find_one(filter).projection(doc! { "_id": 1 }).await;
    Ok(found.map_err(|error| reading(&error))?.is_some())
}

/// Returns the outcome of a request's first commit at majority, with its sequence numbers if they are assigned.
///
/// # Errors
/// Errors of the server; `malformed_document` if other software changed the number of its events: counted from the first number, the ids
/// in the current document would belong to the numbers of other commits.
pub(super) async fn outcome(
    log: &Log,
    collection: &str,
    aggregate: &Aggregate,
    request_id: &str,
) -> Result<Option<CommitOutcome>, ReadError> {
    let Some(first) = find(log, collection, aggregate, request_id).await? else { return Ok(None) };
    let entry = log.entry(&Place::new(collection, &first.key)).await?;
    let (first, number) = match entry {
        Some(entry) => (same_events(log, &entry, first)?, Some(entry.first)),
        None => (first, None),
    };
    Ok(Some(CommitOutcome {
        commit_id: first.info.commit_id,
        version: first.info.version,
        first_sequence_number: number,
        event_ids: first.events.iter().map(|event| event.id).collect(),
        duplicate: true,
        stage: None,
    }))
}

/// Returns whether a request with this id is stored for any aggregate of the name.
pub(super) async fn elsewhere(log: &Log, collection: &str, request_id: &str) -> Result<bool, StoreError> {
    let commits = log.database.collection::<RawDocumentBuf>(collection);
    let found = commits.find_one(doc! { "requestId": request_id }).projection(doc! { "_id": 1 }).await;
    Ok(found.map_err(|error| reading(&error))?.is_some())
}

/// Returns whether `commit` has the same content as the stored one.
pub(super) fn is_same(first: &StoredCommit, commit: &NewCommit) -> bool {
    let foreign = first.is_foreign();
    first.keys == commit.keys
        && first.events.len() == commit.events.len()
        && first.events.iter().zip(&commit.events).enumerate().all(|(place, (stored, new))| {
            let made = event_uuid(first.info.commit_id, place as u32);
            let same_id = match new.id {
                Some(id) => id == stored.id,
                // An id that the first request gave is content that this one lacks; a derived id is not.
                None => foreign || stored.id == made,
            };
            same_id
                && stored.event_type == new.event_type
                && stored.generation == new.generation
                && stored.public == new.public
                && stored.tags == new.tags
                && stored.metadata == new.metadata
                && stored.data == new.data
        })
}
