//! The declared collections.
//!
//! ```text
//! annals-records: {_id: the collection's name, indexes: [{name, fields: [[path, 1 or -1]], unique, hashed, text, sparse, partial,
//!                                                          expiresAfterSeconds, language,
//!                                                          languageOverride}],
//!                  feed: "starting" or true, unmarked}
//!                  feed: left out without one; "starting": changes are noted, but writers without notes may still be in flight
//!                  unmarked: an index that expires was added, and records may lack their markers; see expiry.rs
//! ```
//!
//! Entries are cached. Indexes and feeds are only ever added, so readers do without the newest entry, except that an entry without a feed
//! is read again before a reader of the feed is refused. Writers need the newest entry: see fence.rs, which says when to forget.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use annals_core::bson::{Bson, Document, RawDocumentBuf, doc};
use annals_core::order::Direction;
use annals_core::{ChangesError, Collection, Condition, Index, IndexForm, RecordError, StoreError};
use mongodb::Database;

use crate::refused::reading;

/// Where they are kept.
pub(super) const CATALOG: &str = "annals-records";

const FEED: &str = "feed";
const STARTING: &str = "starting";
const UNMARKED: &str = "unmarked";

/// A declared collection.
pub(super) struct Known {
    /// It has a feed only once that can be followed.
    collection: Collection,
    /// Its changes are noted.
    pub(super) notes: bool,
    /// Records that expire may lack their markers.
    pub(super) unmarked: bool,
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
        Self { notes: collection.feed, unmarked: false, collection }
    }
}

/// The declared collections, as far as this process knows them.
pub(super) struct Catalog {
    database: Database,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    known: HashMap<String, Arc<Known>>,
    /// How often everything was forgotten.
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

    /// Reads a collection again: another process may have declared more of it.
    pub(super) async fn read(&self, name: &str) -> Result<Option<Arc<Known>>, StoreError> {
        let forgotten = self.state().forgotten;
        let found = self.database.collection::<Document>(CATALOG).find_one(doc! { "_id": name }).await;
        let Some(found) = found.map_err(|error| reading(&error))? else { return Ok(None) };
        let known = Arc::new(known_of(&found)?);
        let mut state = self.state();
        // What was read before everything was forgotten may be what was to be forgotten.
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

    /// Returns all of them, in the order of their names.
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

    /// Adds the collection and its indexes that are not there yet. A feed is added by start.rs.
    pub(super) async fn add(&self, declared: &Collection) -> Result<(), StoreError> {
        let asked = |error: mongodb::error::Error| reading(&error);
        let catalog = self.database.collection::<Document>(CATALOG);
        let begin = doc! { "$setOnInsert": { "indexes": [] } };
        catalog.update_one(doc! { "_id": &declared.name }, begin).upsert(true).await.map_err(asked)?;
        for index in &declared.indexes {
            let unknown = doc! { "_id": &declared.name, "indexes.name": { "$ne": index.name() } };
            let mut add = doc! { "$push": { "indexes": written(index)? } };
            if index.expires_after_seconds().is_some() {
                add.insert("$set", doc! { UNMARKED: true });
            }
            catalog.update_one(unknown, add).await.map_err(asked)?;
        }
        Ok(())
    }

    /// Has writers that read the entry from now on note changes.
    pub(super) async fn start_feed(&self, name: &str) -> Result<(), StoreError> {
        self.update(doc! { "_id": name, FEED: { "$ne": true } }, doc! { "$set": { FEED: STARTING } }).await
    }

    /// Lets readers follow the feed: every record that expires by an index of this entry has its marker.
    pub(super) async fn finish_feed(&self, known: &Known) -> Result<(), StoreError> {
        let count = i64::try_from(known.indexes.len()).unwrap_or(i64::MAX);
        // Not if another index was added meanwhile: its declaration marks records again.
        let same = doc! { "_id": &known.name, "indexes": { "$size": count } };
        self.update(same, doc! { "$unset": { UNMARKED: "" } }).await?;
        self.update(doc! { "_id": &known.name }, doc! { "$set": { FEED: true } }).await
    }

    async fn update(&self, which: Document, update: Document) -> Result<(), StoreError> {
        let updated = self.database.collection::<Document>(CATALOG).update_one(which, update).await;
        updated.map(drop).map_err(|error| reading(&error))
    }
}

fn written(index: &Index) -> Result<Document, StoreError> {
    let direction = |direction| if direction == Direction::Ascending { 1 } else { -1 };
    let form: IndexForm = index.clone().into();
    let IndexForm { name, fields, unique, hashed, text, sparse, partial, expires_after_seconds, .. } = form;
    let field = |(path, way): (String, Direction)| Bson::Array(vec![path.into(), direction(way).into()]);
    let fields: Vec<Bson> = fields.into_iter().map(field).collect();
    let partial = match partial {
        None => Bson::Null,
        Some(condition) => {
            let written = condition.to_bson().map_err(|error| StoreError::Io(error.to_string()))?;
            Bson::Document(Document::try_from(&*written).map_err(|error| StoreError::Io(error.to_string()))?)
        }
    };
    let seconds = expires_after_seconds.map_or(Bson::Null, |seconds| Bson::Int64(seconds.into()));
    let mut written = doc! {
        "name": name, "fields": fields, "unique": unique, "hashed": hashed, "text": text, "sparse": sparse,
        "partial": partial, "expiresAfterSeconds": seconds,
    };
    for (name, value) in [("language", form.language), ("languageOverride", form.language_override)] {
        if let Some(value) = value {
            written.insert(name, value);
        }
    }
    Ok(written)
}

fn known_of(found: &Document) -> Result<Known, StoreError> {
    let name = found.get_str("_id").unwrap_or_default();
    let indexes = found.get_array("indexes").into_iter().flatten();
    let read = indexes.map(|index| index.as_document().and_then(index_of)).collect::<Option<Vec<_>>>();
    let damaged = || StoreError::Damaged(format!("{CATALOG}: the declaration of {name:?} is not what was written"));
    let (feed, notes) = match found.get(FEED) {
        None => (false, false),
        Some(Bson::Boolean(feed)) => (*feed, *feed),
        Some(Bson::String(state)) if state == STARTING => (false, true),
        Some(_) => return Err(damaged()),
    };
    let collection = Collection { name: name.to_owned(), indexes: read.ok_or_else(damaged)?, feed };
    Ok(Known { collection, notes, unmarked: found.get_bool(UNMARKED).unwrap_or(false) })
}

fn index_of(found: &Document) -> Option<Index> {
    let field = |field: &Bson| match field.as_array()?.as_slice() {
        [Bson::String(path), way] => {
            let way = if way.as_i32()? == 1 { Direction::Ascending } else { Direction::Descending };
            Some((path.clone(), way))
        }
        _ => None,
    };
    let partial = match found.get("partial")? {
        Bson::Document(written) => {
            let raw = RawDocumentBuf::try_from(written).ok()?;
            Some(Condition::from_bson(&raw).ok()?)
        }
        _ => None,
    };
    let seconds = found.get("expiresAfterSeconds").and_then(Bson::as_i64);
    let form = IndexForm {
        name: found.get_str("name").ok()?.to_owned(),
        fields: found.get_array("fields").ok()?.iter().map(field).collect::<Option<_>>()?,
        unique: found.get_bool("unique").ok()?,
        // Left out by versions that had none.
        hashed: found.get_bool("hashed").unwrap_or(false),
        text: found.get_bool("text").unwrap_or(false),
        sparse: found.get_bool("sparse").ok()?,
        partial,
        expires_after_seconds: seconds.and_then(|seconds| u32::try_from(seconds).ok()),
        language: found.get_str("language").ok().map(str::to_owned),
        language_override: found.get_str("languageOverride").ok().map(str::to_owned),
    };
    Index::try_from(form).ok()
}
