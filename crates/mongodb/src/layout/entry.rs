//! `event-log-commits`: which commit stands at which number of the log. `event-log` has no room for it, because the Dolittle Runtime
//! refuses fields that it does not know.
//!
//! ```text
//! {_id: first number, n: events, db, coll, commit, request, aggregate, id, version, applied, types[], tags[]?, time}
//! ```

use annals_core::{SequenceNumber, Version};
use mongodb::bson::{RawBsonRef, RawDocument, RawDocumentBuf};

use super::fields::{fields, integer_of, natural_of};
use super::foreign::StoredCommit;
use super::writer::Writer;

/// Where a commit stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) first: SequenceNumber,
    pub(crate) count: u64,
    pub(crate) collection: String,
    /// The commit's `_id`.
    pub(crate) commit: String,
    pub(crate) version: Version,
    /// How many events the aggregate has applied, with this commit's.
    pub(crate) applied: u64,
}

pub(crate) fn write(
    commit: &StoredCommit,
    database: &str,
    collection: &str,
    first: SequenceNumber,
    applied: u64,
) -> Result<RawDocumentBuf, mongodb::bson::error::Error> {
    let mut out = Writer::with_capacity(512);
    out.int64("_id", first as i64);
    out.int32("n", commit.events.len() as i32);
    out.text("db", database);
    out.text("coll", collection);
    out.text("commit", &commit.key);
    commit.info.request_id.iter().for_each(|request| out.text("request", request));
    out.text("aggregate", &commit.info.aggregate.name);
    out.text("id", &commit.info.aggregate.id);
    // Below 0 for an event of no aggregate: the unique index on aggregate, id and version is not about it.
    let version = if commit.info.version == 0 { -1 - first as i64 } else { commit.info.version as i64 };
    out.int64("version", version);
    out.int64("applied", applied as i64);
    out.texts("types", distinct(commit.events.iter().map(|event| &*event.event_type)).into_iter());
    let tags = distinct(commit.events.iter().flat_map(|event| event.tags.iter().map(|tag| &**tag)));
    if !tags.is_empty() {
        out.texts("tags", tags.into_iter());
    }
    out.int64("time", commit.info.time.as_millis());
    out.raw()
}

fn distinct<'a>(texts: impl Iterator<Item = &'a str>) -> std::collections::BTreeSet<&'a str> {
    texts.collect()
}

/// # Errors
/// A sentence that names the field that is not as it must be.
pub(crate) fn read(document: &RawDocument) -> Result<Entry, String> {
    let [first, count, collection, commit, version, applied] =
        fields(document, ["_id", "n", "coll", "commit", "version", "applied"]);
    let number = |value: Option<RawBsonRef<'_>>, key: &str| {
        value.and_then(natural_of).ok_or_else(|| format!("event-log-commits: {key} is no number"))
    };
    let word = |value: Option<RawBsonRef<'_>>, key: &str| {
        let word = value.and_then(|value| value.as_str()).map(str::to_owned);
        word.ok_or_else(|| format!("event-log-commits: {key} is no text"))
    };
    let version = version.and_then(integer_of).ok_or("event-log-commits: version is no number")?;
    Ok(Entry {
        first: number(first, "_id")?,
        count: number(count, "n")?,
        collection: word(collection, "coll")?,
        commit: word(commit, "commit")?,
        version: version.max(0) as Version,
        applied: number(applied, "applied")?,
    })
}
