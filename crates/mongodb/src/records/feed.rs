//! What has changed: a note of each change, written with the change itself.
//!
//! ```text
//! annals-record-changes: {_id int64: the number, note: {c: collection, id, w: "i" "r" or "d"}, by}      by: on the first of a transaction
//! annals-record-state:   {_id: "changes", last int64, gone int64, fence int64}
//!                        last: the newest number   gone: up to it they are removed
//! ```

use annals_core::bson::raw::{RawDocument, RawDocumentBuf};
use annals_core::bson::{Bson, Document, doc};
use annals_core::{ChangeKind, ChangeNumber, ChangesError, RecordedChange, StoreError};
use mongodb::Database;

use crate::layout::fields::{inner, natural, text};
use crate::moment::{Moment, Tries};
use crate::refused::reading;

/// The notes.
pub(super) const NOTES: &str = "annals-record-changes";
/// How far they go.
pub(super) const STATE: &str = "annals-record-state";

pub(super) fn of_changes() -> Document {
    doc! { "_id": "changes" }
}

/// Makes what the first write needs: nothing is created inside a transaction.
/// With `create` off it must be there already.
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
    made.map_err(|error| reading(&error))
}

async fn make(database: &Database) -> mongodb::error::Result<()> {
    let begin = doc! { "$setOnInsert": { "last": 0_i64, "gone": 0_i64, "fence": 0_i64 } };
    database.collection::<Document>(STATE).update_one(of_changes(), begin).upsert(true).await?;
    for name in [super::catalog::CATALOG, NOTES, super::expiry::EXPIRIES] {
        match database.create_collection(name).await {
            Err(error) if crate::refused::code_of(&error) != Some(48) => return Err(error),
            _ => {}
        }
    }
    let by_time =
        doc! { "createIndexes": super::expiry::EXPIRIES, "indexes": [{ "key": { "at": 1 }, "name": "at_1" }] };
    database.run_command(by_time).await?;
    Ok(())
}

pub(super) fn note(number: ChangeNumber, collection: &str, id: &Bson, what: ChangeKind) -> Document {
    let what = match what {
        ChangeKind::Inserted => "i",
        ChangeKind::Replaced => "r",
        ChangeKind::Deleted => "d",
    };
    doc! { "_id": number.cast_signed(), "note": { "c": collection, "id": id.clone(), "w": what } }
}

fn read(note: &RawDocument) -> Option<RecordedChange> {
    let number = natural(note, "_id")?;
    let note = inner(note, "note")?;
    let what = match text(note, "w")? {
        "i" => ChangeKind::Inserted,
        "r" => ChangeKind::Replaced,
        "d" => ChangeKind::Deleted,
        _ => return None,
    };
    let id = Bson::try_from(note.get("id").ok()??).ok()?;
    Some(RecordedChange { number, collection: text(note, "c")?.to_owned(), id, what })
}

/// The newest number.
pub(super) async fn last(database: &Database) -> Result<ChangeNumber, StoreError> {
    let state = database.collection::<RawDocumentBuf>(STATE).find_one(of_changes()).await;
    let state = state.map_err(|error| reading(&error))?;
    Ok(state.and_then(|state| natural(&state, "last")).unwrap_or(0))
}

/// Changes after a number, oldest first: one moment of the state and the notes.
pub(super) async fn changes(
    database: &Database,
    after: ChangeNumber,
    limit: usize,
) -> Result<Vec<RecordedChange>, ChangesError> {
    let asked = |error: mongodb::error::Error| reading(&error);
    let mut tries = Tries::default();
    let (Moment { database, mut session }, state) = loop {
        let mut moment = Moment::of(database).await.map_err(asked)?;
        let states = moment.database.collection::<RawDocumentBuf>(STATE);
        match states.find_one(of_changes()).session(&mut moment.session).await {
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
    let found = notes.find(doc! { "_id": { "$gt": after.cast_signed() } }).sort(doc! { "_id": 1 });
    let mut found = found.limit(limit as i64).session(&mut session).await.map_err(asked)?;
    let mut changes = Vec::new();
    while found.advance(&mut session).await.map_err(asked)? {
        let damaged = || StoreError::Damaged(format!("{NOTES}: a note is not what was written"));
        changes.push(read(found.current()).ok_or_else(damaged)?);
    }
    Ok(changes)
}

/// Removes notes beyond those that are kept. The state says so first, so nobody takes the rest for all.
pub(super) async fn trim(database: &Database, last: ChangeNumber, kept: u64) -> mongodb::error::Result<()> {
    let gone = last.saturating_sub(kept).cast_signed();
    database.collection::<Document>(STATE).update_one(of_changes(), doc! { "$max": { "gone": gone } }).await?;
    database.collection::<Document>(NOTES).delete_many(doc! { "_id": { "$lte": gone } }).await?;
    Ok(())
}
