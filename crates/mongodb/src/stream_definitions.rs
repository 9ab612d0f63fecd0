//! The definitions of a scope's streams, exactly in the Dolittle Runtime's layout: its reader rejects unknown fields, so these documents
//! are not records of our own.

use std::sync::Arc;

use annals_core::names::stream_uuid;
use annals_core::{ByteString, StoreError, StreamDefinition, StreamDefinitions, Uuid};
use async_trait::async_trait;
use mongodb::bson::{self, Document, RawDocumentBuf, doc};
use mongodb::{Collection, Database};

use crate::answers::Answers;
use crate::layout::mapping::{Kind, Mapping};
use crate::log::Log;
use crate::refused::{malformed, reading};
use crate::scope::ScopeLog;

/// The definitions of one scope's streams.
pub(crate) struct MongoStreamDefinitions {
    database: Database,
    collection: String,
    mapping: Arc<Mapping>,
    answers: Arc<Answers>,
}

impl MongoStreamDefinitions {
    /// Creates the definitions of the default scope.
    pub(crate) fn of_default(log: &Log) -> Self {
        Self {
            database: log.database.clone(),
            collection: crate::layout::names::STREAM_DEFINITIONS.to_owned(),
            mapping: Arc::clone(&log.adopted.reader.mapping),
            answers: Arc::clone(&log.means.answers),
        }
    }

    /// Creates the definitions of another scope.
    pub(crate) fn of_scope(log: &ScopeLog) -> Self {
        Self {
            database: log.database.clone(),
            collection: crate::layout::names::of_scope(log.id, crate::layout::names::STREAM_DEFINITIONS),
            mapping: Arc::clone(log.mapping()),
            answers: Arc::clone(&log.means.answers),
        }
    }

    fn documents<T: Send + Sync>(&self) -> Collection<T> {
        self.database.collection(&self.collection)
    }
}

fn id_of(stream: &str) -> bson::Uuid {
    bson::Uuid::from_bytes(stream_uuid(stream).into_bytes())
}

#[async_trait]
impl StreamDefinitions for MongoStreamDefinitions {
    async fn get(&self, stream: &str) -> Result<Option<StreamDefinition>, StoreError> {
        let documents = self.documents::<RawDocumentBuf>();
        let find = async { documents.find_one(doc! { "_id": id_of(stream) }).await.map_err(|error| reading(&error)) };
        let Some(found) = self.answers.of(find).await? else { return Ok(None) };
        let read = StreamDefinition::from_document(found.as_bytes());
        read.map(Some).map_err(|why| malformed(&self.database, &self.collection, &found, why))
    }

    async fn put(&self, stream: &str, definition: StreamDefinition) -> Result<(), StoreError> {
        let document = definition.to_document(stream)?;
        let documents = self.documents::<Document>();
        let write = async {
            let replace = documents.replace_one(doc! { "_id": id_of(stream) }, document).upsert(true);
            replace.await.map(drop).map_err(|error| reading(&error))
        };
        self.answers.of(write).await
    }

    async fn delete(&self, stream: &str) -> Result<(), StoreError> {
        let documents = self.documents::<Document>();
        let delete = async {
            documents.delete_one(doc! { "_id": id_of(stream) }).await.map(drop).map_err(|error| reading(&error))
        };
        self.answers.of(delete).await
    }

    fn type_id(&self, name: &str) -> Uuid {
        self.mapping.uuid(Kind::Event, name)
    }

    fn type_name(&self, id: Uuid) -> ByteString {
        self.mapping.name(Kind::Event, id)
    }
}
