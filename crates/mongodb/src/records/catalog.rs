//! The declared collections.
//!
//! ```text
//! annals-records: {_id: the collection's name, indexes: [{name, fields: [[path, 1 or -1]], unique, sparse, partial, expiresAfterSeconds}]}
//! ```

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use annals_core::bson::{Bson, Document, RawDocumentBuf, doc};
use annals_core::order::Direction;
use annals_core::{Collection, Condition, Index, RecordError, StoreError};
use mongodb::Database;

use crate::refused::reading;

/// Where they are kept.
pub(super) const CATALOG: &str = "annals-records";

/// The declared collections, as far as this process knows them. What was declared once stays so.
pub(super) struct Catalog {
    database: Database,
    known: Mutex<HashMap<String, Arc<Collection>>>,
}

impl Catalog {
    pub(super) fn new(database: Database) -> Self {
        Self { database, known: Mutex::default() }
    }

    /// A declared collection.
    pub(super) async fn declared(&self, name: &str) -> Result<Arc<Collection>, RecordError> {
        if let Some(known) = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(name) {
            return Ok(known.clone());
        }
        self.read(name).await?.ok_or_else(|| RecordError::UnknownCollection(name.to_owned()))
    }

    /// Reads a collection anew: another process may have declared more of it.
    pub(super) async fn read(&self, name: &str) -> Result<Option<Arc<Collection>>, StoreError> {
        let found = self.database.collection::<Document>(CATALOG).find_one(doc! { "_id": name }).await;
        let Some(found) = found.map_err(|error| reading(&error))? else { return Ok(None) };
        let collection = Arc::new(collection_of(&found)?);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(name.to_owned(), collection.clone());
        Ok(Some(collection))
    }

    /// All of them, in the order of their names.
    pub(super) async fn all(&self) -> Result<Vec<Collection>, StoreError> {
        let asked = |error: mongodb::error::Error| reading(&error);
        let mut found =
            self.database.collection::<Document>(CATALOG).find(doc! {}).sort(doc! { "_id": 1 }).await.map_err(asked)?;
        let mut all = Vec::new();
        while found.advance().await.map_err(asked)? {
            let document = found.deserialize_current().map_err(asked)?;
            all.push(collection_of(&document)?);
        }
        Ok(all)
    }

    /// Adds what is not there yet.
    pub(super) async fn add(&self, declared: &Collection) -> Result<(), StoreError> {
        let asked = |error: mongodb::error::Error| reading(&error);
        let catalog = self.database.collection::<Document>(CATALOG);
        let begin = doc! { "$setOnInsert": { "indexes": [] } };
        catalog.update_one(doc! { "_id": &declared.name }, begin).upsert(true).await.map_err(asked)?;
        for index in &declared.indexes {
            let unknown = doc! { "_id": &declared.name, "indexes.name": { "$ne": &index.name } };
            catalog.update_one(unknown, doc! { "$push": { "indexes": written(index)? } }).await.map_err(asked)?;
        }
        Ok(())
    }
}

fn written(index: &Index) -> Result<Document, StoreError> {
    let direction = |direction| if direction == Direction::Ascending { 1 } else { -1 };
    let fields: Vec<Bson> = index
        .fields
        .iter()
        .map(|(path, way)| Bson::Array(vec![path.as_str().into(), direction(*way).into()]))
        .collect();
    let partial = match &index.partial {
        None => Bson::Null,
        Some(condition) => {
            let written = condition.to_bson().map_err(|error| StoreError::Io(error.to_string()))?;
            Bson::Document(Document::try_from(&*written).map_err(|error| StoreError::Io(error.to_string()))?)
        }
    };
    Ok(doc! {
        "name": &index.name, "fields": fields, "unique": index.unique, "hashed": index.hashed, "text": index.text,
        "sparse": index.sparse, "partial": partial,
        "expiresAfterSeconds": index.expires_after_seconds.map_or(Bson::Null, |seconds| Bson::Int64(seconds.into())),
    })
}

fn collection_of(found: &Document) -> Result<Collection, StoreError> {
    let name = found.get_str("_id").unwrap_or_default();
    let indexes = found.get_array("indexes").into_iter().flatten();
    let read = indexes.map(|index| index.as_document().and_then(index_of)).collect::<Option<Vec<_>>>();
    let damaged = || StoreError::Damaged(format!("{CATALOG}: the declaration of {name:?} is not what was written"));
    Ok(Collection { name: name.to_owned(), indexes: read.ok_or_else(damaged)? })
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
    Some(Index {
        name: found.get_str("name").ok()?.to_owned(),
        fields: found.get_array("fields").ok()?.iter().map(field).collect::<Option<_>>()?,
        unique: found.get_bool("unique").ok()?,
        // Left out by versions that had none.
        hashed: found.get_bool("hashed").unwrap_or(false),
        text: found.get_bool("text").unwrap_or(false),
        sparse: found.get_bool("sparse").ok()?,
        partial,
        expires_after_seconds: seconds.and_then(|seconds| u32::try_from(seconds).ok()),
    })
}
