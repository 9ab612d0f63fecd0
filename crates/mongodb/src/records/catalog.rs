//! The catalog of declared collections.
//!
//! ```text
//! annals-records: {_id: the collection's name, indexes: [{name, fields: [[path, 1 or -1]], unique, hashed, text, sparse, partial,
//!                                                          expiresAfterSeconds, language,
//!                                                          languageOverride}],
//!                  feed: "starting" or true, unmarked, pending}
//!                  feed: left out without one; "starting": changes are noted, but writers without notes may still be in flight
//!                  unmarked: an index that expires was added, and records may lack their markers; see expiry.rs
//!                  pending: the collection and its indexes may not exist yet, and there are no records; see create.rs
//! ```
//!
//! Entries are cached. Indexes and feeds are only ever added, so readers can use a stale entry; only an entry without a feed is read again
//! before a reader of the feed is refused. Writers need the newest entry: see fence.rs, which says when to forget entries. An entry stops
//! being pending once and never starts again, so an entry that is not pending may be stale too.

use std::collections::HashMap;
use std::fmt::Display;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use annals_core::bson::{self, Bson, Document, RawDocumentBuf, doc};
use annals_core::order::Direction;
use annals_core::{ChangesError, Collection, Condition, Index, IndexForm, RecordError, StoreError};
use mongodb::Database;
use serde::{Deserialize, Serialize};

use crate::refused::{code_of, reading};

/// The collection of the catalog.
pub(super) const CATALOG: &str = "annals-records";

const DUPLICATE_KEY: i32 = 11000;

const FEED: &str = "feed";
const STARTING: &str = "starting";
const UNMARKED: &str = "unmarked";
const PENDING: &str = "pending";

/// A declared collection.
pub(super) struct Known {
    /// Its `feed` is true only once the feed can be followed.
    collection: Collection,
    /// Whether its changes are noted.
    pub(super) notes: bool,
    /// Whether records that expire may lack their markers.
    pub(super) unmarked: bool,
    /// Whether the collection is created before the first write to it, which has not happened yet.
    pub(super) pending: bool,
}

impl Deref for Known {
    type Target = Collection;

    fn deref(&self) -> &Collection {
        &self.collection
    }
}

#[cfg(test)]
impl From<Collection> for Known {
    fn from(collection: Collection) -> Self {
        Self { notes: collection.feed, unmarked: false, pending: false, collection }
    }
}

/// The declared collections that this process knows.
pub(super) struct Catalog {
    database: Database,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    known: HashMap<String, Arc<Known>>,
    /// How often all entries were forgotten.
    forgotten: u64,
}

impl Catalog {
    pub(super) fn new(database: Database) -> Self {
        Self { database, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a declared collection.
    pub(super) async fn declared(&self, name: &str) -> Result<Arc<Known>, RecordError> {
        let known = self.state().known.get(name).cloned();
        match known {
            Some(known) => Ok(known),
            None => self.read(name).await?.ok_or_else(|| RecordError::UnknownCollection(name.to_owned())),
        }
    }

    /// Checks that a collection has a feed that can be followed.
    pub(super) async fn followed(&self, name: &str) -> Result<(), ChangesError> {
        if self.state().known.get(name).is_some_and(|known| known.feed) {
            return Ok(());
        }
        match self.read(name).await? {
            Some(known) if known.feed => Ok(()),
            Some(_) => Err(ChangesError::NoFeed(name.to_owned())),
            None => Err(ChangesError::UnknownCollection(name.to_owned())),
        }
    }

    /// Reads an entry again, because another process may have declared more.
    pub(super) async fn read(&self, name: &str) -> Result<Option<Arc<Known>>, StoreError> {
        let forgotten = self.state().forgotten;
        let found = self.database.collection::<Document>(CATALOG).find_one(doc! { "_id": name }).await;
        let Some(found) = found.map_err(|error| reading(&error))? else { return Ok(None) };
        let known = Arc::new(known_of(&found)?);
        let mut state = self.state();
        // An entry read before all were forgotten may be one of those to forget.
        if state.forgotten == forgotten {
            state.known.insert(name.to_owned(), known.clone());
        }
        Ok(Some(known))
    }

    /// Forgets every entry. Later look-ups read what is stored from now on.
    pub(super) fn forget(&self) {
        let mut state = self.state();
        state.forgotten += 1;
        state.known.clear();
    }

    /// Returns all declared collections, in order of name.
    pub(super) async fn all(&self) -> Result<Vec<Collection>, StoreError> {
        let asked = |error: mongodb::error::Error| reading(&error);
        let mut found =
            self.database.collection::<Document>(CATALOG).find(doc! {}).sort(doc! { "_id": 1 }).await.map_err(asked)?;
        let mut all = Vec::new();
        while found.advance().await.map_err(asked)? {
            let document = found.deserialize_current().map_err(asked)?;
            all.push(known_of(&document)?.collection);
        }
        Ok(all)
    }

    /// Adds a collection that did not exist, whole and with its feed, in one write. Returns false if it is declared by now. If `pending`,
    /// it is created before the first write to it.
    ///
    /// A feed needs none of the steps of start.rs: until this write, every transaction judged the collection as undeclared and wrote
    /// nothing to it, and it has no records that could lack their markers.
    pub(super) async fn add_new(&self, declared: &Collection, pending: bool) -> Result<bool, StoreError> {
        let indexes = declared.indexes.iter().map(written).collect::<Result<Vec<_>, _>>()?;
        let mut entry = doc! { "_id": &declared.name, "indexes": indexes };
        match declared.feed {
            true => drop(entry.insert(FEED, true)),
            false if declared.indexes.iter().any(|index| index.expires_after_seconds().is_some()) => {
                entry.insert(UNMARKED, true);
            }
            false => {}
        }
        if pending {
            entry.insert(PENDING, true);
        }
        match self.database.collection::<Document>(CATALOG).insert_one(entry).await {
            Ok(_) => Ok(true),
            Err(error) if code_of(&error) == Some(DUPLICATE_KEY) => Ok(false),
            Err(error) => Err(reading(&error)),
        }
    }

    /// Adds the collection and those of its indexes that are missing. A feed is added by start.rs.
    pub(super) async fn add(&self, declared: &Collection) -> Result<(), StoreError> {
        let asked = |error: mongodb::error::Error| reading(&error);
        let catalog = self.database.collection::<Document>(CATALOG);
        let begin = doc! { "$setOnInsert": { "indexes": [] } };
        catalog.update_one(doc! { "_id": &declared.name }, begin).upsert(true).await.map_err(asked)?;
        self.push(declared, &doc! { "_id": &declared.name }).await
    }

    /// Adds those indexes that are missing to the entry of a collection, as long as that is pending.
    pub(super) async fn add_pending(&self, declared: &Collection) -> Result<(), StoreError> {
        self.push(declared, &doc! { "_id": &declared.name, PENDING: true }).await
    }

    async fn push(&self, declared: &Collection, entry: &Document) -> Result<(), StoreError> {
        for index in &declared.indexes {
            let mut unknown = entry.clone();
            unknown.insert("indexes.name", doc! { "$ne": index.name() });
            let mut add = doc! { "$push": { "indexes": written(index)? } };
            if index.expires_after_seconds().is_some() {
                add.insert("$set", doc! { UNMARKED: true });
            }
            self.update(unknown, add).await?;
        }
        Ok(())
    }

    /// Stores that a collection exists with every index of this entry.
    pub(super) async fn created(&self, known: &Known) -> Result<(), StoreError> {
        // Does not match if another index was added in the meantime; it must exist too before the first write.
        let same = doc! { "_id": &known.name, "indexes": { "$size": count(known) } };
        self.update(same, doc! { "$unset": { PENDING: "" } }).await
    }

    /// Makes writers that read the entry from now on note changes.
    pub(super) async fn start_feed(&self, name: &str) -> Result<(), StoreError> {
        self.update(doc! { "_id": name, FEED: { "$ne": true } }, doc! { "$set": { FEED: STARTING } }).await
    }

    /// Lets readers follow the feed: every record that expires by an index of this entry has its marker.
    pub(super) async fn finish_feed(&self, known: &Known) -> Result<(), StoreError> {
        // Does not match if another index was added in the meantime; its declaration marks records again.
        let same = doc! { "_id": &known.name, "indexes": { "$size": count(known) } };
        self.update(same, doc! { "$unset": { UNMARKED: "" } }).await?;
        self.update(doc! { "_id": &known.name }, doc! { "$set": { FEED: true } }).await
    }

    async fn update(&self, which: Document, update: Document) -> Result<(), StoreError> {
        let updated = self.database.collection::<Document>(CATALOG).update_one(which, update).await;
        updated.map(drop).map_err(|error| reading(&error))
    }
}

/// Returns the number of indexes of an entry. Indexes are only ever added, so an entry with as many is the same.
fn count(known: &Known) -> i64 {
    i64::try_from(known.indexes.len()).unwrap_or(i64::MAX)
}

/// The stored form of an index.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stored {
    name: String,
    fields: Vec<(String, i32)>,
    unique: bool,
    // Absent from entries of earlier versions.
    #[serde(default)]
    hashed: bool,
    #[serde(default)]
    text: bool,
    sparse: bool,
    partial: Option<Document>,
    expires_after_seconds: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    language: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    language_override: Option<String>,
}

fn written(index: &Index) -> Result<Document, StoreError> {
    let form: IndexForm = index.clone().into();
    let unwritable = |error: &dyn Display| StoreError::Io(error.to_string());
    let partial = form.partial.map(|condition| condition.to_bson()).transpose().map_err(|error| unwritable(&error))?;
    let partial = partial.map(|raw| Document::try_from(&*raw)).transpose().map_err(|error| unwritable(&error))?;
    let stored = Stored {
        name: form.name,
        fields: form.fields.into_iter().map(|(path, way)| (path, way_of(way))).collect(),
        unique: form.unique,
        hashed: form.hashed,
        text: form.text,
        sparse: form.sparse,
        partial,
        expires_after_seconds: form.expires_after_seconds.map(i64::from),
        language: form.language,
        language_override: form.language_override,
    };
    bson::serialize_to_document(&stored).map_err(|error| unwritable(&error))
}

fn way_of(direction: Direction) -> i32 {
    if direction == Direction::Ascending { 1 } else { -1 }
}

fn known_of(found: &Document) -> Result<Known, StoreError> {
    let name = found.get_str("_id").unwrap_or_default();
    let damaged = || StoreError::Damaged(format!("{CATALOG}: the declaration of {name:?} is damaged"));
    let indexes = found.get_array("indexes").into_iter().flatten().map(index_of).collect::<Option<Vec<_>>>();
    let (feed, notes) = match found.get(FEED) {
        None => (false, false),
        Some(Bson::Boolean(feed)) => (*feed, *feed),
        Some(Bson::String(state)) if state == STARTING => (false, true),
        Some(_) => return Err(damaged()),
    };
    let collection = Collection { name: name.to_owned(), indexes: indexes.ok_or_else(damaged)?, feed };
    let flag = |name| found.get_bool(name).unwrap_or(false);
    Ok(Known { collection, notes, unmarked: flag(UNMARKED), pending: flag(PENDING) })
}

fn index_of(found: &Bson) -> Option<Index> {
    let stored: Stored = bson::deserialize_from_bson(found.clone()).ok()?;
    let raw = stored.partial.map(|written| RawDocumentBuf::try_from(&written)).transpose().ok()?;
    let partial = raw.map(|raw| Condition::from_bson(&raw)).transpose().ok()?;
    let way = |way| if way == 1 { Direction::Ascending } else { Direction::Descending };
    let form = IndexForm {
        name: stored.name,
        fields: stored.fields.into_iter().map(|(path, direction)| (path, way(direction))).collect(),
        unique: stored.unique,
        hashed: stored.hashed,
        text: stored.text,
        sparse: stored.sparse,
        partial,
        expires_after_seconds: stored.expires_after_seconds.and_then(|seconds| u32::try_from(seconds).ok()),
        language: stored.language,
        language_override: stored.language_override,
    };
    Index::try_from(form).ok()
}
