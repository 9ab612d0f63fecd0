//! How many events each aggregate has applied, in `aggregates`, as the Dolittle Runtime counts them: the newest count of each aggregate of
//! a batch.
//!
//! An aggregate that has applied none has no document, so its first one is an insert, which plans no query. Where
//! other software has made one all the same, the insert is refused and everything is upserted.

use std::collections::HashMap;

use mongodb::ClientSession;
use mongodb::bson::{RawDocumentBuf, doc};
use mongodb::error::{Error, Result};

use super::place::AggregateKey;
use crate::layout::guid;
use crate::layout::mapping::Kind;
use crate::layout::names::AGGREGATES;
use crate::layout::writer::Writer;
use crate::log::Log;
use crate::refused::code_of;

/// Where an aggregate stands behind a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Standing {
    /// Events that it applied.
    pub(super) applied: u64,
    /// Whether it had applied none before.
    pub(super) new: bool,
}

/// Writes the counts in the session's transaction. False when one that is new has a document: the transaction cannot be committed then.
pub(super) async fn write(
    log: &Log,
    session: &mut ClientSession,
    aggregates: &HashMap<&AggregateKey, Standing>,
) -> Result<bool> {
    const DUPLICATE_KEY: i32 = 11000;
    // What was adopted may be written in other forms, which no insert would run into.
    let (new, known): (Vec<_>, Vec<_>) =
        aggregates.iter().partition(|(_, standing)| standing.new && !log.adopted.there);
    if !new.is_empty() {
        let documents: std::result::Result<Vec<_>, _> = new.iter().map(|(key, one)| document(log, key, one)).collect();
        let collection = log.database.collection::<RawDocumentBuf>(AGGREGATES);
        match collection.insert_many(documents?).session(&mut *session).await {
            Ok(_) => {}
            Err(error) if code_of(&error) == Some(DUPLICATE_KEY) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    if !known.is_empty() {
        let answer = log.database.run_raw_command(upserts(log, &known)?).session(session).await?;
        if let Ok(errors) = answer.get_array("writeErrors") {
            return Err(Error::custom(format!("{AGGREGATES}: {errors:?}")));
        }
    }
    Ok(true)
}

fn document(
    log: &Log,
    (name, id): &AggregateKey,
    standing: &Standing,
) -> std::result::Result<RawDocumentBuf, mongodb::bson::error::Error> {
    let mut out = Writer::with_capacity(128 + id.len());
    out.text("EventSource", id);
    out.uuid("AggregateType", log.adopted.reader.mapping.uuid(Kind::Aggregate, name));
    out.decimal("Version", standing.applied);
    out.raw()
}

fn upserts(
    log: &Log,
    known: &[(&&AggregateKey, &Standing)],
) -> std::result::Result<RawDocumentBuf, mongodb::bson::error::Error> {
    let filters = known.iter().map(|(key, _)| filter(log, key)).collect::<std::result::Result<Vec<_>, _>>()?;
    let mut out = Writer::with_capacity(known.len() * 320 + 100);
    out.text("update", AGGREGATES);
    out.array("updates", |updates| {
        for (place, ((key, standing), filter)) in known.iter().zip(&filters).enumerate() {
            updates.document(&place.to_string(), |update| upsert(update, log, key, standing, filter));
        }
    });
    out.boolean("ordered", true);
    out.raw()
}

fn filter(log: &Log, (name, id): &AggregateKey) -> std::result::Result<RawDocumentBuf, mongodb::bson::error::Error> {
    let uuid = log.adopted.reader.mapping.uuid(Kind::Aggregate, name);
    if log.adopted.there {
        // An adopted document may have other forms of the same values.
        let (source, kind) = (doc! { "$in": guid::source_forms(id) }, doc! { "$in": guid::forms(uuid) });
        return RawDocumentBuf::try_from(&doc! { "EventSource": source, "AggregateType": kind });
    }
    let mut out = Writer::with_capacity(96 + id.len());
    out.text("EventSource", id);
    out.uuid("AggregateType", uuid);
    out.raw()
}

fn upsert(out: &mut Writer, log: &Log, (name, id): &AggregateKey, standing: &Standing, filter: &RawDocumentBuf) {
    out.whole("q", filter.as_bytes());
    out.document("u", |change| {
        change.document("$set", |set| set.decimal("Version", standing.applied));
        change.document("$setOnInsert", |fresh| {
            fresh.text("EventSource", id);
            fresh.uuid("AggregateType", log.adopted.reader.mapping.uuid(Kind::Aggregate, name));
        });
    });
    out.boolean("upsert", true);
}
