//! Registers the UUID of each collection of commits, so that every process notices when other software drops or renames one, even a
//! process that has not used it.
//!
//! ```text
//! annals-collections: {_id: the collection's name, uuid, replaced: true?, asked int64?}
//!                     replaced: it took the place of another one, so its indexes do not know all versions of the log
//!                     asked: it is not admitted yet; how often it was asked for
//! ```
//!
//! Commits of the previous collection may be acknowledged without having sequence numbers yet; neither the log nor the new collection then
//! knows their versions. So a process that finds a UUID other than the registered one requests admission here. The request is later in the
//! oplog than the new collection, which is later than every commit of the previous one. When the sequencer sees the request in the change
//! stream, it has numbered or held all of them, and admits the collection.
//!
//! INVARIANT: a process inserts commits only into a collection whose UUID is registered and whose admission is not pending.

use mongodb::Database;
use mongodb::bson::{Bson, Document, RawDocument, RawDocumentBuf, doc};
use uuid::Uuid;

use super::fields::{boolean, integer, text};
use super::guid;
use super::names::COLLECTIONS;
use super::writer::uuid_value;
use crate::refused::code_of;

/// A registered collection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Registered {
    /// `None` if other software has changed it.
    pub(crate) uuid: Option<Uuid>,
    asked: Option<i64>,
    /// Whether it replaced another collection.
    pub(crate) replaced: bool,
    /// The stored value of `uuid`, for comparison.
    stored: Option<Bson>,
}

impl Registered {
    /// Returns whether commits may be inserted into the collection with this UUID.
    pub(crate) fn admits(&self, uuid: Uuid) -> bool {
        self.uuid == Some(uuid) && self.asked.is_none()
    }
}

/// Reads the registration of a name.
///
/// # Errors
/// Errors of the driver.
pub(crate) async fn read(database: &Database, collection: &str) -> mongodb::error::Result<Option<Registered>> {
    let found = database.collection::<RawDocumentBuf>(COLLECTIONS).find_one(doc! { "_id": collection }).await?;
    Ok(found.map(|found| Registered {
        uuid: guid::uuid(&found, "uuid"),
        asked: integer(&found, "asked"),
        replaced: boolean(&found, "replaced").unwrap_or(false),
        stored: found.get("uuid").ok().flatten().and_then(|uuid| Bson::try_from(uuid).ok()),
    }))
}

/// Registers the first collection of a name. Returns false if another process was faster.
///
/// # Errors
/// Errors of the driver.
pub(crate) async fn begin(database: &Database, collection: &str, uuid: Uuid) -> mongodb::error::Result<bool> {
    const DUPLICATE_KEY: i32 = 11000;
    let one = doc! { "_id": collection, "uuid": uuid_value(uuid) };
    match database.collection::<Document>(COLLECTIONS).insert_one(one).await {
        Err(error) if code_of(&error) == Some(DUPLICATE_KEY) => Ok(false),
        other => other.map(|_| true),
    }
}

/// Requests the admission of a collection in place of the registered one. Returns false, without a request, if the registration has
/// changed.
///
/// # Errors
/// Errors of the driver.
pub(crate) async fn ask(
    database: &Database,
    collection: &str,
    registered: &Registered,
    uuid: Uuid,
) -> mongodb::error::Result<bool> {
    let Registered { asked, stored, .. } = registered;
    let same = doc! { "_id": collection, "uuid": stored.clone(), "asked": *asked };
    // A replacement of the whole document, so that the change stream shows all of it. The counter makes it differ from the stored one,
    // since the change stream omits an update without a change.
    let next = asked.unwrap_or(0).wrapping_add(1);
    let asked = doc! { "_id": collection, "uuid": uuid_value(uuid), "replaced": true, "asked": next };
    let replaced = database.collection::<Document>(COLLECTIONS).replace_one(same, asked).await?;
    Ok(replaced.matched_count == 1)
}

/// Admits a collection, unless the admission of another one was requested since.
///
/// # Errors
/// Errors of the driver.
pub(crate) async fn admit(database: &Database, collection: &str, uuid: Uuid) -> mongodb::error::Result<()> {
    let one = doc! { "_id": collection, "uuid": uuid_value(uuid) };
    let register = database.collection::<Document>(COLLECTIONS);
    register.update_one(one, doc! { "$unset": { "asked": "" } }).await.map(drop)
}

/// Returns the name and the UUID of the collection whose admission this document requests.
pub(crate) fn asked_for(document: &RawDocument) -> Option<(String, Uuid)> {
    integer(document, "asked")?;
    Some((text(document, "_id")?.to_owned(), guid::uuid(document, "uuid")?))
}
