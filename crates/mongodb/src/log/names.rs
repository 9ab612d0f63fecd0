//! Lists the names of aggregates: those of collections with at least one commit, and adopted ones.

use std::collections::BTreeSet;

use annals_core::{AggregateNamesQuery, ByteString, ReadError};
use futures_util::future::try_join_all;
use mongodb::bson::{Bson, RawDocumentBuf, doc};

use super::Log;
use crate::layout::names::{ENTRIES, EVENT_STREAM, aggregate_of};
use crate::refused::reading;

/// Collections that are checked concurrently.
const TOGETHER: usize = 16;

pub(super) async fn list(log: &Log, query: AggregateNamesQuery) -> Result<Vec<ByteString>, ReadError> {
    let after = query.after.as_deref().unwrap_or_default();
    let adopted = adopted(log, after).await?;
    let mut candidates: BTreeSet<ByteString> = adopted.clone();
    let commits = doc! { "name": { "$regex": format!("{EVENT_STREAM}$") }, "type": "collection" };
    let collections = log.database.list_collection_names().filter(commits).await.map_err(|error| reading(&error))?;
    let names = collections.iter().filter_map(|collection| aggregate_of(collection));
    candidates.extend(names.filter(|name| name.as_bytes() > after.as_bytes()).map(ByteString::from));
    let candidates: Vec<ByteString> = candidates.into_iter().collect();
    let mut names = Vec::new();
    for some in candidates.chunks(TOGETHER) {
        let there = try_join_all(some.iter().map(|name| has_commit(log, name, adopted.contains(name)))).await?;
        names.extend(some.iter().zip(there).filter(|(_, there)| *there).map(|(name, _)| name.clone()));
        if names.len() >= query.limit {
            break;
        }
    }
    names.truncate(query.limit);
    Ok(names)
}

/// Returns whether a collection has a commit: it is created before its first commit, which may be refused.
async fn has_commit(log: &Log, name: &str, known: bool) -> Result<bool, ReadError> {
    if known {
        return Ok(true);
    }
    let commits = log.database.collection::<RawDocumentBuf>(&format!("{name}{EVENT_STREAM}"));
    let found = commits.find_one(doc! {}).projection(doc! { "_id": 1 }).await;
    Ok(found.map_err(|error| reading(&error))?.is_some())
}

/// Returns the names in the entries, from the index of aggregates. Returns none if nothing was adopted, because each name then has a
/// collection.
async fn adopted(log: &Log, after: &str) -> Result<BTreeSet<ByteString>, ReadError> {
    if !log.adopted.there {
        return Ok(BTreeSet::new());
    }
    let entries = log.database.collection::<RawDocumentBuf>(ENTRIES);
    let found = entries.distinct("aggregate", doc! { "aggregate": { "$gt": after } }).await;
    let found = found.map_err(|error| reading(&error))?;
    let text = |name: Bson| match name {
        Bson::String(name) => Some(ByteString::from(name)),
        _ => None,
    };
    Ok(found.into_iter().filter_map(text).collect())
}
