//! Which collection each name of a collection of commits stands for, so that one that other software drops or renames is noticed by every
//! process, also by one that did not know it.
//!
//! ```text
//! annals-collections: {_id: the collection's name, uuid, replaced: true?, asked int64?}
//!                     replaced: it took the place of another one, so its indexes do not know all versions of the log
//!                     asked: it is not admitted yet; how often it was asked for
//! ```
//!
//! Commits of the collection before may be acknowledged and have no sequence numbers yet; then neither the log nor the new collection knows
//! their versions. So a process that finds another UUID than the registered one asks here. The question comes later in the oplog than the
//! new collection, and that later than every commit of the one before: when the sequencer meets it in the change stream, it has numbered
//! or held all of them, and admits the collection.
//!
//! INVARIANT: a process inserts commits only into a collection whose UUID is registered and not asked for.

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
    /// None where other software has changed it.
    pub(crate) uuid: Option<Uuid>,
    asked: Option<i64>,
    /// Whether it took the place of another one.
    pub(crate) replaced: bool,
    /// The value of the field, for comparison with what is stored.
    stored: Option<Bson>,
}

impl Registered {
    /// Whether commits may be inserted into the collection with this UUID.
    pub(crate) fn admits(&self, uuid: Uuid) -> bool {
        self.uuid == Some(uuid) && self.asked.is_none()
    }
}

/// Reads what is registered for a name.
///
/// # Errors
/// The driver's.
pub(crate) async fn read(database: &Database, collection: &str) -> mongodb::error::Result<Option<Registered>> {
    let found = database.collection::<RawDocumentBuf>(COLLECTIONS).find_one(doc! { "_id": collection }).await?;
    Ok(found.map(|found| Registered {
        uuid: guid::uuid(&found, "uuid"),
        asked: integer(&found, "asked"),
        replaced: boolean(&found, "replaced").unwrap_or(false),
        stored: found.get("uuid").ok().flatten().and_then(|uuid| Bson::try_from(uuid).ok()),
    }))
}

/// Registers the first collection of a name. False if another process was faster.
///
/// # Errors
/// The driver's.
pub(crate) async fn begin(database: &Database, collection: &str, uuid: Uuid) -> mongodb::error::Result<bool> {
    const DUPLICATE_KEY: i32 = 11000;
    let one = doc! { "_id": collection, "uuid": uuid_value(uuid) };
    match database.collection::<Document>(COLLECTIONS).insert_one(one).await {
        Err(error) if code_of(&error) == Some(DUPLICATE_KEY) => Ok(false),
        other => other.map(|_| true),
    }
}

/// Asks for the admission of a collection in place of what is registered. False, and nothing is asked, if that is not registered any more.
///
/// # Errors
/// The driver's.
pub(crate) async fn ask(
    database: &Database,
    collection: &str,
    registered: &Registered,
    uuid: Uuid,
) -> mongodb::error::Result<bool> {
    let Registered { asked, stored, .. } = registered;
    let same = doc! { "_id": collection, "uuid": stored.clone(), "asked": *asked };
    // All of it, so that the change stream shows all of it; and never what is there already, which it would not show.
    let next = asked.unwrap_or(0).wrapping_add(1);
    let asked = doc! { "_id": collection, "uuid": uuid_value(uuid), "replaced": true, "asked": next };
    let replaced = database.collection::<Document>(COLLECTIONS).replace_one(same, asked).await?;
    Ok(replaced.matched_count == 1)
}

/// Admits a collection, unless another one was asked for since.
///
/// # Errors
/// The driver's.
pub(crate) async fn admit(database: &Database, collection: &str, uuid: Uuid) -> mongodb::error::Result<()> {
    let one = doc! { "_id": collection, "uuid": uuid_value(uuid) };
    let register = database.collection::<Document>(COLLECTIONS);
    register.update_one(one, doc! { "$unset": { "asked": "" } }).await.map(drop)
}

/// The name and the UUID of a collection whose admission is asked for by this document.
pub(crate) fn asked_for(document: &RawDocument) -> Option<(String, Uuid)> {
    integer(document, "asked")?;
    Some((text(document, "_id")?.to_owned(), guid::uuid(document, "uuid")?))
}
