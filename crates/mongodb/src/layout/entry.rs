//! `event-log-commits`: which commit has which sequence numbers. `event-log` cannot store this, because the Dolittle Runtime rejects
//! unknown fields.
//!
//! ```text
//! {_id: first number, n: events, db, coll, commit, request, aggregate, id, version, applied, types[], tags[]?, time}
//! ```

use annals_core::{ByteString, SequenceNumber, Version};
use mongodb::bson::{Document, RawDocument, RawDocumentBuf, doc};

use super::fields::{Field, fields};
use super::foreign::StoredCommit;
use super::writer::Writer;

/// The sequence numbers of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) first: SequenceNumber,
    pub(crate) count: u64,
    pub(crate) collection: ByteString,
    /// The commit's `_id`.
    pub(crate) commit: String,
}

/// Returns the projection that [`read`] needs.
pub(crate) fn places() -> Document {
    doc! { "n": 1, "coll": 1, "commit": 1 }
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
    // Negative for an event of no aggregate, which the unique index on aggregate, id and version must not affect.
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
/// A sentence that names the invalid field.
pub(crate) fn read(document: &RawDocument) -> Result<Entry, String> {
    read_behind(document, None)
}

/// Reads the entry that follows `before`, and shares the name of its collection, which is usually the same.
///
/// # Errors
/// Those of [`read`].
pub(crate) fn read_behind(document: &RawDocument, before: Option<&Entry>) -> Result<Entry, String> {
    let [first, count, collection, commit] = fields(document, ["_id", "n", "coll", "commit"]);
    let collection = text(collection, "coll")?;
    let same = before.map(|before| &before.collection).filter(|before| **before == *collection);
    Ok(Entry {
        first: natural(first, "_id")?,
        count: natural(count, "n")?,
        collection: same.cloned().unwrap_or_else(|| collection.into()),
        commit: text(commit, "commit")?.to_owned(),
    })
}

/// Returns the head of an aggregate after an entry: its version, and the number of events that it has applied.
///
/// # Errors
/// A sentence that names the invalid field.
pub(crate) fn standing(document: &RawDocument) -> Result<(Version, u64), String> {
    let [version, applied] = fields(document, ["version", "applied"]);
    let version = version.and_then(Field::integer).ok_or("event-log-commits: version is no number")?;
    Ok((version.max(0) as Version, natural(applied, "applied")?))
}

fn natural(value: Option<Field<'_>>, key: &str) -> Result<u64, String> {
    value.and_then(Field::natural).ok_or_else(|| format!("event-log-commits: {key} is no number"))
}

fn text<'a>(value: Option<Field<'a>>, key: &str) -> Result<&'a str, String> {
    value.and_then(Field::text).ok_or_else(|| format!("event-log-commits: {key} is no text"))
}
