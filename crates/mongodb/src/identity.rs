//! Who a tenant's store is, and the beginning of its log.
//!
//! ```text
//! annals-store: {_id: "identity", storeId uuid, incarnation int32, incarnationStart int64}
//! ```

use std::time::Duration;

use annals_core::{Identity, Uuid, new_uuid};
use mongodb::Database;
use mongodb::bson::{Bson, Document, RawDocumentBuf, doc};
use mongodb::options::ReturnDocument;

use crate::layout::fields::natural;
use crate::layout::names::{ENTRIES, EVENT_LOG, EVENT_LOG_METADATA, IDENTITY};
use crate::layout::writer::{decimal, uuid_value};
use crate::options::Options;
use crate::refused::{Code, OpenError, asking, code_of};

/// Reads it, or makes it up where the store is new. Of two processes that do so at once one wins, and both get the same.
pub(crate) async fn of(database: &Database, options: &Options) -> Result<Identity, OpenError> {
    let fresh = new_uuid(options.clock.now(), &*options.random);
    let found = database
        .collection::<Document>(IDENTITY)
        .find_one_and_update(
            doc! { "_id": "identity" },
            doc! { "$setOnInsert": {
                "storeId": uuid_value(fresh), "incarnation": 0_i32, "incarnationStart": 0_i64,
            } },
        )
        .upsert(true)
        .return_document(ReturnDocument::After)
        .await
        .map_err(|error| asking(database.name(), &error))?;
    let read = |found: &Document| {
        let Bson::Binary(id) = found.get("storeId")? else { return None };
        Some(Identity {
            store_id: Uuid::from_slice(&id.bytes).ok()?,
            incarnation: u32::try_from(found.get_i32("incarnation").ok()?).ok()?,
            incarnation_start: u64::try_from(found.get_i64("incarnationStart").ok()?).ok()?,
        })
    };
    found.as_ref().and_then(read).ok_or_else(|| {
        let message = format!("{}.{IDENTITY} is not what was written; restore it from a backup", database.name());
        OpenError::new(Code::StoreDamaged, message)
    })
}

/// Where the log stands, and where its events and its entries end: one moment of all three, because a sequencer may be at work.
async fn reach(database: &Database) -> mongodb::error::Result<(u64, [u64; 2])> {
    let mut session = database.client().start_session().snapshot(true).await?;
    let metadata = database.collection::<RawDocumentBuf>(EVENT_LOG_METADATA);
    let next = metadata.find_one(doc! { "_id": EVENT_LOG }).session(&mut session).await?;
    let next = next.as_deref().and_then(|found| natural(found, "NextEventOffset")).unwrap_or(0);
    let mut ends = [0; 2];
    for (place, name) in [EVENT_LOG, ENTRIES].into_iter().enumerate() {
        let documents = database.collection::<RawDocumentBuf>(name);
        let last = documents.find_one(doc! {}).sort(doc! { "_id": -1 }).session(&mut session).await?;
        let Some(last) = last else { continue };
        let count = if name == ENTRIES { natural(&last, "n") } else { Some(1) };
        ends[place] = natural(&last, "_id").unwrap_or(0) + count.unwrap_or(0);
    }
    Ok((next, ends))
}

const SNAPSHOT_UNAVAILABLE: i32 = 246;
const SNAPSHOT_TRIES: usize = 100;

/// Sees to it that the log has a next number, which it gives, and that nobody else has given some.
pub(crate) async fn begin_log(database: &Database) -> Result<u64, OpenError> {
    let asked = |error: mongodb::error::Error| asking(database.name(), &error);
    let metadata = database.collection::<Document>(EVENT_LOG_METADATA);
    let begin = doc! { "$setOnInsert": { "NextEventOffset": decimal(0) } };
    metadata.update_one(doc! { "_id": EVENT_LOG }, begin).upsert(true).await.map_err(asked)?;
    let mut tries = 0;
    let (next, ends) = loop {
        match reach(database).await {
            // A collection that was made a moment ago is in no snapshot yet.
            Err(error) if code_of(&error) == Some(SNAPSHOT_UNAVAILABLE) && tries < SNAPSHOT_TRIES => tries += 1,
            other => break other.map_err(asked)?,
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    if ends.iter().all(|end| *end == next) {
        return Ok(next);
    }
    let message = format!(
        "database {}: {EVENT_LOG} reaches to {}, {ENTRIES} to {}, and NextEventOffset is {next}: events were numbered by other \
         software, which must be stopped; a log of the Dolittle Runtime cannot be continued yet, so use another database",
        database.name(),
        ends[0],
        ends[1]
    );
    Err(OpenError::new(Code::UnsuitableServer, message))
}
