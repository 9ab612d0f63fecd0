//! Writes how many events each aggregate has applied to `aggregates`, as the Dolittle Runtime counts them: the latest count of each
//! aggregate of a batch.
//!
//! No write needs a query plan. An aggregate that has applied no events has no document, so its first write is an insert; later writes
//! update by the document's `_id`, which is cached. If other software has created a document, or the cache is stale, the server refuses a
//! duplicate, and all counts are upserted by aggregate.

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

/// `_id`s that are cached. When there are more, all are forgotten and looked up again.
const KNOWN_MAX: usize = 200_000;

/// The count of an aggregate after a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Standing {
    /// Number of events that the aggregate applied.
    pub(super) applied: u64,
    /// Whether it had applied none before.
    pub(super) new: bool,
    /// The `_id` of its document, if known.
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

    /// Sets the `_id` of each document: a new one for a new aggregate, the known one for others. It stays unset if no document is found.
    pub(super) async fn identify(&mut self, log: &Log, standings: &mut Standings<'_>) -> Result<()> {
        // Adopted documents may have other forms, and there may be several for one aggregate.
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

    /// Caches the `_id`s that were written.
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

/// Writes the counts in the session's transaction. Returns false if a new aggregate already has a document or a cached `_id` is stale; the
/// transaction must then be aborted.
pub(super) async fn write(log: &Log, session: &mut ClientSession, aggregates: &Standings<'_>) -> Result<bool> {
    const DUPLICATE_KEY: i32 = 11000;
    // Adopted documents may have other forms, which an insert would not collide with.
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
        // An adopted document may have the same values in another form.
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
