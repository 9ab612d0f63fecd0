//! The definitions of streams as the Dolittle Runtime stores them, so that software that reads its layout knows what fills each stream.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::names::{of_scope, stream_uuid, uuid_of};
use crate::records::decode::decode;
use crate::{
    ByteString, Condition, DEFAULT_SCOPE, Expected, RecordError, RecordType, Records, StoreError, TypedRecords, Uuid,
};

/// The collection of stream definitions, in the default scope.
pub const STREAM_DEFINITIONS: &str = "stream-definitions";

/// The Dolittle Runtime's description of the filter of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamDefinition {
    /// Whether its entries have partitions.
    pub partitioned: bool,
    /// Whether partners may see it.
    pub public: bool,
    /// The event types that it includes; `None` for a filter with other rules, which the layout calls remote.
    pub types: Option<BTreeSet<Uuid>>,
}

/// The definitions of the streams of a tenant's scope, each `{_id, Partitioned, Public, Filter: {Type, Types}}`.
///
/// The Dolittle Runtime reads and writes the same documents. Facts that its layout cannot represent are stored elsewhere.
#[async_trait]
pub trait StreamDefinitions: Send + Sync + 'static {
    /// Returns the stored definition of a stream.
    ///
    /// # Errors
    /// See [`StoreError`]; `malformed_document` for a document that is not a definition.
    async fn get(&self, stream: &str) -> Result<Option<StreamDefinition>, StoreError>;

    /// Stores the definition of a stream, replacing an earlier one.
    ///
    /// # Errors
    /// See [`StoreError`].
    async fn put(&self, stream: &str, definition: StreamDefinition) -> Result<(), StoreError>;

    /// Deletes the definition of a stream, if there is one.
    ///
    /// # Errors
    /// See [`StoreError`].
    async fn delete(&self, stream: &str) -> Result<(), StoreError>;

    /// Returns the UUID of an event type.
    fn type_id(&self, name: &str) -> Uuid {
        uuid_of("event", name)
    }

    /// Returns the name of the event type with this UUID.
    fn type_name(&self, id: Uuid) -> ByteString {
        id.to_string().into()
    }
}

/// Stream definitions as records, for a store with its own layout.
pub(crate) struct RecordStreamDefinitions {
    records: Arc<dyn Records>,
    collection: String,
}

/// A definition as stored, with the Dolittle Runtime's field names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct DefinitionDocument {
    #[serde(rename = "_id")]
    id: bson::Uuid,
    #[serde(rename = "Partitioned")]
    partitioned: bool,
    #[serde(rename = "Public")]
    public: bool,
    #[serde(rename = "Filter")]
    filter: FilterDocument,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "Type")]
enum FilterDocument {
    EventTypeId {
        #[serde(rename = "Types")]
        types: Vec<bson::Uuid>,
    },
    Remote,
}

impl RecordType for DefinitionDocument {
    const COLLECTION: &'static str = STREAM_DEFINITIONS;
}

impl StreamDefinition {
    /// Returns the definition of this stream as a document of the layout.
    ///
    /// # Errors
    /// Never for a definition; a document that cannot be written is [`StoreError::Io`].
    pub fn to_document(&self, stream: &str) -> Result<bson::Document, StoreError> {
        bson::serialize_to_document(&DefinitionDocument::of(stream, self))
            .map_err(|error| StoreError::Io(error.to_string()))
    }

    /// Parses a document of the layout.
    ///
    /// # Errors
    /// A sentence that says what is wrong with it.
    pub fn from_document(document: &[u8]) -> Result<Self, String> {
        let document = bson::RawDocument::from_bytes(document).map_err(|error| error.to_string())?;
        let read: DefinitionDocument = decode(document).map_err(|error| error.to_string())?;
        Ok(read.read())
    }
}

impl DefinitionDocument {
    fn of(stream: &str, definition: &StreamDefinition) -> Self {
        let uuid = |id: &Uuid| bson::Uuid::from_bytes(id.into_bytes());
        Self {
            id: uuid(&stream_uuid(stream)),
            partitioned: definition.partitioned,
            public: definition.public,
            filter: match &definition.types {
                Some(types) => FilterDocument::EventTypeId { types: types.iter().map(uuid).collect() },
                None => FilterDocument::Remote,
            },
        }
    }

    fn read(self) -> StreamDefinition {
        let types = match self.filter {
            FilterDocument::EventTypeId { types } => {
                Some(types.into_iter().map(|id| Uuid::from_bytes(id.bytes())).collect())
            }
            FilterDocument::Remote => None,
        };
        StreamDefinition { partitioned: self.partitioned, public: self.public, types }
    }
}

impl RecordStreamDefinitions {
    pub(crate) fn new(records: Arc<dyn Records>, scope: &str) -> Self {
        let collection = match scope {
            DEFAULT_SCOPE => STREAM_DEFINITIONS.to_owned(),
            scope => of_scope(uuid_of("scope", scope), STREAM_DEFINITIONS),
        };
        Self { records, collection }
    }

    async fn declared(&self) -> Result<TypedRecords<DefinitionDocument>, StoreError> {
        let declared = TypedRecords::declare_as(Arc::clone(&self.records), self.collection.as_str()).await;
        declared.map_err(failed)
    }
}

fn id_of(stream: &str) -> bson::Uuid {
    bson::Uuid::from_bytes(stream_uuid(stream).into_bytes())
}

fn failed(error: RecordError) -> StoreError {
    match error {
        RecordError::Store(error) => error,
        other => StoreError::other(other.code(), other.to_string()),
    }
}

#[async_trait]
impl StreamDefinitions for RecordStreamDefinitions {
    async fn get(&self, stream: &str) -> Result<Option<StreamDefinition>, StoreError> {
        match self.records.get(&self.collection, &id_of(stream).into()).await {
            Err(RecordError::UnknownCollection(_)) | Ok(None) => Ok(None),
            Ok(Some(record)) => {
                let read = StreamDefinition::from_document(record.document.as_bytes());
                let malformed = |why| {
                    let message =
                        format!("{}: the definition of stream {stream:?} cannot be read: {why}", self.collection);
                    StoreError::other(crate::Code::MalformedDocument, message)
                };
                read.map(Some).map_err(malformed)
            }
            Err(error) => Err(failed(error)),
        }
    }

    async fn put(&self, stream: &str, definition: StreamDefinition) -> Result<(), StoreError> {
        let document = DefinitionDocument::of(stream, &definition);
        let written = self.declared().await?.replace_if(&document, Expected::AbsentOr(Condition::All)).await;
        written.map(drop).map_err(failed)
    }

    async fn delete(&self, stream: &str) -> Result<(), StoreError> {
        let any = Expected::AbsentOr(Condition::All);
        match self.records.delete_if(&self.collection, id_of(stream).into(), any).await {
            Ok(_) | Err(RecordError::UnknownCollection(_)) => Ok(()),
            Err(error) => Err(failed(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    fn definition(types: Option<&[&str]>) -> StreamDefinition {
        let types = types.map(|names| names.iter().map(|name| uuid_of("event", name)).collect());
        StreamDefinition { partitioned: true, public: false, types }
    }

    #[test]
    fn a_definition_is_stored_in_the_shape_of_the_dolittle_runtime() {
        let stream = "stream-323bcdb2-5bbd-4f13-a7c3-b19bc2cc2452";
        let id = bson::Uuid::parse_str("323bcdb2-5bbd-4f13-a7c3-b19bc2cc2452").expect("a UUID");
        let placed = bson::Uuid::parse_str("f6501ea0-dd05-5e7d-8a21-05525b42831f").expect("a UUID");
        let of_types = definition(Some(&["order_placed"])).to_document(stream).expect("written");
        let expected = doc! {
            "_id": id, "Partitioned": true, "Public": false, "Filter": { "Type": "EventTypeId", "Types": [placed] },
        };
        assert_eq!(of_types, expected);
        let remote = definition(None).to_document(stream).expect("written");
        let expected = doc! { "_id": id, "Partitioned": true, "Public": false, "Filter": { "Type": "Remote" } };
        assert_eq!(remote, expected);
    }

    #[test]
    fn a_definition_without_a_known_discriminator_is_refused() {
        let mut document = definition(Some(&["a"])).to_document("s").expect("written");
        let bytes = |document: &bson::Document| bson::serialize_to_vec(document).expect("bytes");
        assert_eq!(StreamDefinition::from_document(&bytes(&document)), Ok(definition(Some(&["a"]))));
        for filter in [doc! {}, doc! { "Type": "Other" }] {
            document.insert("Filter", filter);
            assert!(StreamDefinition::from_document(&bytes(&document)).is_err(), "{document}");
        }
    }
}
