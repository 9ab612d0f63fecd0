//! The identity of a tenant's store, and the beginning of its log.
//!
//! ```text
//! annals-store: {_id: "identity", storeId uuid, incarnation int32, incarnationStart int64}
//! ```

use annals_core::{Identity, SequenceNumber, Uuid, new_uuid};
use mongodb::Database;
use mongodb::bson::{Bson, Document, RawDocumentBuf, doc};
use mongodb::options::ReturnDocument;

use crate::layout::fields::natural;
use crate::layout::names::{EVENT_LOG, EVENT_LOG_METADATA, IDENTITY};
use crate::layout::writer::{decimal, uuid_value};
use crate::options::Options;
use crate::reach;
use crate::refused::{Code, OpenError, asking};

/// Reads the identity, or creates it for a new store. If two processes do so at once, both get the same identity.
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

/// Returns how far an adopted log reaches, as `annals adopt` recorded it; `None` if nothing was adopted.
///
/// ```text
/// annals-store: {_id: "adopted", head int64, (underWay true)}
/// ```
pub(crate) async fn adopted(database: &Database) -> mongodb::error::Result<Option<SequenceNumber>> {
    let found = database.collection::<RawDocumentBuf>(IDENTITY).find_one(doc! { "_id": ADOPTED }).await?;
    Ok(found.and_then(|found| natural(&found, "head")))
}

pub(crate) const ADOPTED: &str = "adopted";

/// Ensures that the log has a next sequence number and that no other software has assigned any. Returns the next number.
///
/// # Errors
/// `foreign_numbers`, `not_adopted`, `unreachable`.
pub(crate) async fn begin_log(database: &Database) -> Result<SequenceNumber, OpenError> {
    let metadata = database.collection::<Document>(EVENT_LOG_METADATA);
    let begin = doc! { "$setOnInsert": { "NextEventOffset": decimal(0) } };
    let begun = metadata.update_one(doc! { "_id": EVENT_LOG }, begin).upsert(true).await;
    begun.map_err(|error| asking(database.name(), &error))?;
    reach::judge(database).await.map(|reach| reach.end())
}
