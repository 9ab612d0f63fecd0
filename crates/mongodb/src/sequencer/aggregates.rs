//! How many events each aggregate has applied, in `aggregates`, as the Dolittle Runtime counts them: the newest count of each aggregate of
//! a batch.
//!
//! Neither plans a query: an aggregate that has applied none has no document, so its first one is an insert, and later ones are updated by
//! the document's `_id`, which is remembered. Where other software has made a document all the same, or what is remembered is not true any
//! more, the server refuses a duplicate, and everything is upserted by what the document means.

use std::collections::HashMap;

use mongodb::ClientSession;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{RawDocument, RawDocumentBuf, doc};
use mongodb::error::Result;

use super::place::AggregateKey;
use crate::layout::fields::text;
use crate::layout::guid;
use crate::layout::mapping::Kind;
use crate::layout::names::AGGREGATES;
use crate::layout::writer::Writer;
use crate::log::Log;
use crate::refused::{WriteRefused, code_of};

/// Documents whose `_id`s are remembered. Beyond it all are forgotten and looked up again.
const KNOWN_MAX: usize = 200_000;

/// Where an aggregate stands behind a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Standing {
    /// Events that it applied.
    pub(super) applied: u64,
    /// Whether it had applied none before.
    pub(super) new: bool,
    /// Its document's `_id`, if it is known.
    pub(super) id: Option<ObjectId>,
}

pub(super) type Standings<'a> = HashMap<&'a AggregateKey, Standing>;

/// The `_id`s of documents that were written or found here.
#[derive(Default)]
pub(super) struct Known(HashMap<AggregateKey, ObjectId>);

impl Known {
    pub(super) fn forget(&mut self) {
        self.0.clear();
    }

    /// Gives each its document's `_id`: a fresh one where it is new. One without keeps none.
    pub(super) async fn identify(&mut self, log: &Log, standings: &mut Standings<'_>) -> Result<()> {
        // What was adopted may be written in other forms, and several times.
        if log.adopted.there {
            return Ok(());
        }
        let unknown: Vec<&AggregateKey> = standings
            .iter()
            .filter(|(key, one)| !one.new && !self.0.contains_key(**key))
            .map(|(key, _)| *key)
            .collect();
        if !unknown.is_empty() {
            self.look_up(log, &unknown).await?;
        }
        for (key, standing) in standings {
            standing.id = if standing.new { Some(ObjectId::new()) } else { self.0.get(*key).copied() };
        }
        Ok(())
    }

    /// Remembers what was written.
    pub(super) fn remember(&mut self, standings: &Standings<'_>) {
        if self.0.len() > KNOWN_MAX {
            self.0.clear();
        }
        for (key, standing) in standings.iter().filter(|(_, standing)| standing.new) {
            self.0.extend(standing.id.map(|id| ((*key).clone(), id)));
        }
    }

    async fn look_up(&mut self, log: &Log, unknown: &[&AggregateKey]) -> Result<()> {
        let kind = |name: &str| log.adopted.reader.mapping.uuid(Kind::Aggregate, name);
        let wanted: HashMap<_, _> = unknown.iter().map(|key| ((&*key.1, kind(&key.0)), *key)).collect();
        let sources: Vec<&str> = unknown.iter().map(|key| &*key.1).collect();
        let collection = log.database.collection::<RawDocumentBuf>(AGGREGATES);
        let mut found = collection.find(doc! { "EventSource": { "$in": sources } }).await?;
        while found.advance().await? {
            let document: &RawDocument = found.current();
            let kind = guid::uuid(document, "AggregateType");
            let key = text(document, "EventSource").zip(kind).and_then(|place| wanted.get(&place));
            let id = document.get_object_id("_id").ok();
            self.0.extend(key.zip(id).map(|(key, id)| ((*key).clone(), id)));
        }
        Ok(())
    }
}

/// Writes the counts in the session's transaction. False when one that is new has a document: the transaction cannot be committed then.
pub(super) async fn write(log: &Log, session: &mut ClientSession, aggregates: &Standings<'_>) -> Result<bool> {
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
        let answer = log.database.run_raw_command(upserts(log, &known)?).session(session).await;
        let answer = match answer {
            Err(error) if code_of(&error) == Some(DUPLICATE_KEY) => return Ok(false),
            answer => answer?,
        };
        match WriteRefused::first(&answer) {
            Some(refused) if refused.code == DUPLICATE_KEY => return Ok(false),
            Some(refused) => return Err(refused.into()),
            None => {}
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
    standing.id.iter().for_each(|id| out.object_id("_id", *id));
    out.text("EventSource", id);
    out.uuid("AggregateType", log.adopted.reader.mapping.uuid(Kind::Aggregate, name));
    out.decimal("Version", standing.applied);
    out.raw()
}

fn upserts(
    log: &Log,
    known: &[(&&AggregateKey, &Standing)],
) -> std::result::Result<RawDocumentBuf, mongodb::bson::error::Error> {
    let filters = known.iter().map(|(key, one)| filter(log, key, one)).collect::<std::result::Result<Vec<_>, _>>()?;
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

fn filter(
    log: &Log,
    (name, id): &AggregateKey,
    standing: &Standing,
) -> std::result::Result<RawDocumentBuf, mongodb::bson::error::Error> {
    if let Some(id) = standing.id {
        let mut out = Writer::with_capacity(32);
        out.object_id("_id", id);
        return out.raw();
    }
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
