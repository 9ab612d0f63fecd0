//! The feeds of collections that request one: a note of each change, written together with the change.
//!
//! ```text
//! annals-record-changes: {_id: {c: collection, n int64: the number}, id, w: "i" "r" or "d"}
//! annals-record-state:   {_id: "feed:{collection}", last int64, gone int64}      last: the newest number   gone: up to it they are removed
//!                        {_id: "changes", former int64}      the last number of the one feed that former versions kept; 0 without one
//!                        {_id: "settled"}                    see batch.rs
//!                        {_id: "writer:{process}", …}        see fence.rs
//! ```
//!
//! INVARIANT: the transaction that writes a note also advances `last`, from the number before the first note. So numbers have no gaps, one
//! of two transactions with notes of one collection is retried, and no reader sees a number before a lower one. `last` is advanced at the
//! end of the transaction. Collections without a feed write nothing here.

use std::collections::{BTreeMap, HashMap};

use annals_core::bson::raw::{RawDocument, RawDocumentBuf};
use annals_core::bson::{Bson, Document, doc};
use annals_core::{ChangeKind, ChangeNumber, ChangesError, RecordedChange, StoreError};
use mongodb::error::Error;
use mongodb::options::ReturnDocument;
use mongodb::{ClientSession, Database};

use super::batch::parts;
use crate::layout::fields::{inner, integer, natural, text};
use crate::moment::{Moment, Tries};
use crate::refused::reading;

/// The collection of the notes.
pub(super) const NOTES: &str = "annals-record-changes";
/// The collection of the feeds' states.
pub(super) const STATE: &str = "annals-record-state";

/// The newest change number of each collection for which a transaction wrote notes.
pub(super) type Feeds = HashMap<String, ChangeNumber>;

fn of(collection: &str) -> Document {
    doc! { "_id": format!("feed:{collection}") }
}

fn former() -> Document {
    doc! { "_id": "changes" }
}

/// Creates what the first write needs, since nothing can be created inside a transaction. With `create` off it must already exist.
pub(super) async fn begin(database: &Database, create: bool) -> Result<(), StoreError> {
    let made = match create {
        true => make(database).await,
        false => {
            let there = database.list_collection_names().await.map_err(|error| reading(&error))?;
            let all = [super::catalog::CATALOG, STATE, NOTES, super::expiry::EXPIRIES];
            let missing: Vec<_> = all.into_iter().filter(|name| !there.iter().any(|there| there == name)).collect();
            if !missing.is_empty() {
                let names = missing.join(", ");
                let sentence = format!(
                    "collections {names} of {} are missing, and auto_init_schema is off; switch it on for the first start",
                    database.name()
                );
                return Err(StoreError::ReadOnly(sentence));
            }
            Ok(())
        }
    };
    made.map_err(|error| reading(&error))?;
    leave_former(database).await.map_err(|error| reading(&error))
}

async fn make(database: &Database) -> mongodb::error::Result<()> {
    for name in [STATE, super::catalog::CATALOG, NOTES, super::expiry::EXPIRIES] {
        match database.create_collection(name).await {
            Err(error) if crate::refused::code_of(&error) != Some(48) => return Err(error),
            _ => {}
        }
    }
    let by_time =
        doc! { "createIndexes": super::expiry::EXPIRIES, "indexes": [{ "key": { "at": 1 }, "name": "at_1" }] };
    database.run_command(by_time).await?;
    let settled = doc! { "$setOnInsert": { "at": 0_i64 } };
    database.collection::<Document>(STATE).update_one(doc! { "_id": "settled" }, settled).upsert(true).await?;
    Ok(())
}

/// Ends the single feed of all collections that earlier versions kept. Without `last`, a process of such a version can no longer write; it
/// would write to collections with a feed without notes. The former notes have no followers, so they are removed.
async fn leave_former(database: &Database) -> mongodb::error::Result<()> {
    let last = doc! { "$ifNull": ["$former", { "$ifNull": ["$last", 0_i64] }] };
    let left = vec![doc! { "$set": { "former": last } }, doc! { "$unset": "last" }];
    let before = database.collection::<Document>(STATE).find_one_and_update(former(), left).upsert(true).await?;
    if before.is_some_and(|before| before.contains_key("last")) {
        database.collection::<Document>(NOTES).delete_many(doc! { "_id": { "$type": "number" } }).await?;
    }
    Ok(())
}

/// Creates the state of a collection's feed. Its numbers begin above those of a feed of an earlier version: a position in that feed is
/// refused as no longer kept, and never mistaken for one in this feed.
pub(super) async fn start(database: &Database, collection: &str) -> Result<(), StoreError> {
    let asked = |error: mongodb::error::Error| reading(&error);
    let state = database.collection::<RawDocumentBuf>(STATE);
    let former = state.find_one(former()).await.map_err(asked)?;
    let former = former.and_then(|former| integer(&former, "former")).unwrap_or(0);
    let before = if former > 0 { former + 1 } else { 0 };
    let begin = doc! { "$setOnInsert": { "last": before, "gone": before } };
    state.update_one(of(collection), begin).upsert(true).await.map_err(asked)?;
    Ok(())
}

/// A change to note. Its number is assigned last.
pub(super) struct Note {
    pub(super) collection: String,
    pub(super) id: Bson,
    pub(super) what: ChangeKind,
}

impl Note {
    fn written(&self, number: i64) -> Document {
        let what = match self.what {
            ChangeKind::Inserted => "i",
            ChangeKind::Replaced => "r",
            ChangeKind::Deleted => "d",
        };
        doc! { "_id": id_of(&self.collection, number), "id": self.id.clone(), "w": what }
    }
}

fn id_of(collection: &str, number: i64) -> Document {
    doc! { "c": collection, "n": number }
}

fn read(note: &RawDocument) -> Option<RecordedChange> {
    let place = inner(note, "_id")?;
    let what = match text(note, "w")? {
        "i" => ChangeKind::Inserted,
        "r" => ChangeKind::Replaced,
        "d" => ChangeKind::Deleted,
        _ => return None,
    };
    let id = Bson::try_from(note.get("id").ok()??).ok()?;
    Some(RecordedChange { number: natural(place, "n")?, collection: text(place, "c")?.to_owned(), id, what })
}

/// Writes the notes of a transaction: advances each feed once, and inserts the notes of all feeds together.
pub(super) async fn append(
    database: &Database,
    session: &mut ClientSession,
    notes: &[Note],
) -> mongodb::error::Result<Feeds> {
    let mut by_collection: BTreeMap<&str, Vec<&Note>> = BTreeMap::new();
    for note in notes {
        by_collection.entry(&note.collection).or_default().push(note);
    }
    let state = database.collection::<RawDocumentBuf>(STATE);
    let (mut written, mut feeds) = (Vec::with_capacity(notes.len()), Feeds::new());
    for (collection, notes) in by_collection {
        let count = notes.len() as i64;
        let moved = state.find_one_and_update(of(collection), doc! { "$inc": { "last": count } });
        let moved = moved.return_document(ReturnDocument::After).session(&mut *session).await?;
        let missing = || Error::custom(format!("{STATE}: the feed of {collection} has no newest number"));
        let last = moved.and_then(|state| integer(&state, "last")).ok_or_else(missing)?;
        written.extend(notes.iter().zip(last - count + 1..).map(|(note, number)| note.written(number)));
        feeds.insert(collection.to_owned(), last.unsigned_abs());
    }
    for part in parts(&written) {
        database.collection::<Document>(NOTES).insert_many(part).session(&mut *session).await?;
    }
    Ok(feeds)
}

/// Returns the newest number of a collection's feed.
pub(super) async fn last(database: &Database, collection: &str) -> Result<ChangeNumber, StoreError> {
    let state = database.collection::<RawDocumentBuf>(STATE).find_one(of(collection)).await;
    let state = state.map_err(|error| reading(&error))?;
    Ok(state.and_then(|state| natural(&state, "last")).unwrap_or(0))
}

/// Returns changes after a number, oldest first. The state and the notes are read at the same point in time.
pub(super) async fn changes(
    database: &Database,
    collection: &str,
    after: ChangeNumber,
    limit: usize,
) -> Result<Vec<RecordedChange>, ChangesError> {
    let asked = |error: mongodb::error::Error| reading(&error);
    let mut tries = Tries::default();
    let (Moment { database, mut session }, state) = loop {
        let mut moment = Moment::of(database).await.map_err(asked)?;
        let states = moment.database.collection::<RawDocumentBuf>(STATE);
        match states.find_one(of(collection)).session(&mut moment.session).await {
            Err(error) if tries.again(&error).await => {}
            state => break (moment, state.map_err(asked)?),
        }
    };
    let number = |name| state.as_ref().and_then(|state| natural(state, name)).unwrap_or(0);
    let (last, gone) = (number("last"), number("gone"));
    if after > last {
        return Err(ChangesError::Unknown { after, last });
    }
    if after < gone {
        return Err(ChangesError::Gone { after, oldest: gone + 1 });
    }
    let notes = database.collection::<RawDocumentBuf>(NOTES);
    let found = notes.find(between(collection, after, last)).sort(doc! { "_id": 1 });
    let mut found = found.limit(limit as i64).session(&mut session).await.map_err(asked)?;
    let mut changes = Vec::new();
    while found.advance(&mut session).await.map_err(asked)? {
        let damaged = || StoreError::Damaged(format!("{NOTES}: a note is not what was written"));
        changes.push(read(found.current()).ok_or_else(damaged)?);
    }
    Ok(changes)
}

/// Returns a filter for the notes with numbers above `after` and up to `last`.
fn between(collection: &str, after: ChangeNumber, last: ChangeNumber) -> Document {
    let id = |number: ChangeNumber| id_of(collection, number.cast_signed());
    doc! { "_id": { "$gt": id(after), "$lte": id(last) } }
}

/// Removes notes that are no longer kept. The state is updated first, so no reader takes the rest for complete.
pub(super) async fn trim(
    database: &Database,
    collection: &str,
    last: ChangeNumber,
    kept: u64,
) -> mongodb::error::Result<()> {
    let gone = last.saturating_sub(kept);
    let say = doc! { "$max": { "gone": gone.cast_signed() } };
    database.collection::<Document>(STATE).update_one(of(collection), say).await?;
    database.collection::<Document>(NOTES).delete_many(between(collection, 0, gone)).await?;
    Ok(())
}
