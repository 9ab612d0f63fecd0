//! Typed access to records.

use std::marker::PhantomData;
use std::sync::Arc;

use bson::Bson;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::decode::decode;
use super::{Collection, Cursor, Expected, Index, Record, RecordChange, RecordError, RecordQuery, Records, Revision};
use crate::{Code, Invalid, StoreError};

/// A type whose values are records. Its serde names are the stored field names; one field is named `_id`.
pub trait RecordType: Serialize + DeserializeOwned {
    /// The name of its collection, unless another one is chosen when it is declared.
    const COLLECTION: &'static str;
    /// Whether its collection has a feed of its changes.
    const FEED: bool = false;

    /// Returns the indexes of its collection.
    fn indexes() -> Vec<Index> {
        Vec::new()
    }

    /// Returns the declaration of its collection.
    fn collection() -> Collection {
        Collection { name: Self::COLLECTION.to_owned(), indexes: Self::indexes(), feed: Self::FEED }
    }
}

/// A value and its revision.
#[derive(Debug, Clone, PartialEq)]
pub struct Stored<T> {
    /// The value.
    pub value: T,
    /// The write that produced it.
    pub revision: Revision,
}

/// A collection with records of one type.
pub struct TypedRecords<T> {
    records: Arc<dyn Records>,
    name: String,
    of: PhantomData<fn() -> T>,
}

impl<T: RecordType> TypedRecords<T> {
    /// Declares the type's collection.
    ///
    /// # Errors
    /// As [`Records::declare`].
    pub async fn declare(records: Arc<dyn Records>) -> Result<Self, RecordError> {
        Self::declare_as(records, T::COLLECTION).await
    }

    /// Declares a collection of the type under another name, for example one for each scope.
    ///
    /// # Errors
    /// As [`Records::declare`].
    pub async fn declare_as(records: Arc<dyn Records>, name: impl Into<String>) -> Result<Self, RecordError> {
        let name = name.into();
        records.declare(Collection { name: name.clone(), ..T::collection() }).await?;
        Ok(Self { records, name, of: PhantomData })
    }

    /// Returns the name of the collection.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the type's collection, which must already be declared.
    pub fn declared(records: Arc<dyn Records>) -> Self {
        Self { records, name: T::COLLECTION.to_owned(), of: PhantomData }
    }

    /// Returns a collection of the type under another name, which must already be declared.
    pub fn declared_as(records: Arc<dyn Records>, name: impl Into<String>) -> Self {
        Self { records, name: name.into(), of: PhantomData }
    }

    /// Inserts a record that does not exist yet.
    ///
    /// # Errors
    /// As [`Records::insert`].
    pub async fn insert(&self, value: &T) -> Result<Revision, RecordError> {
        self.records.insert(&self.name, document(value)?).await
    }

    /// Replaces the record with the value's `_id`, if it is as expected.
    ///
    /// # Errors
    /// As [`Records::replace_if`].
    pub async fn replace_if(&self, value: &T, expected: Expected) -> Result<Revision, RecordError> {
        self.records.replace_if(&self.name, document(value)?, expected).await
    }

    /// Returns the replacement as part of a batch, in the type's own collection.
    ///
    /// # Errors
    /// `invalid_record` if the value cannot be a document.
    pub fn replacement(value: &T, expected: Expected) -> Result<RecordChange, RecordError> {
        Ok(RecordChange::replace_if(T::COLLECTION, document(value)?, expected))
    }

    /// Returns the replacement as part of a batch, in this collection.
    ///
    /// # Errors
    /// As [`replacement`](Self::replacement).
    pub fn replacing(&self, value: &T, expected: Expected) -> Result<RecordChange, RecordError> {
        Ok(RecordChange::replace_if(&*self.name, document(value)?, expected))
    }

    /// Deletes a record, if it is as expected.
    ///
    /// # Errors
    /// As [`Records::delete_if`].
    pub async fn delete_if(&self, id: impl Into<Bson>, expected: Expected) -> Result<Revision, RecordError> {
        self.records.delete_if(&self.name, id.into(), expected).await
    }

    /// Returns the record with this id.
    ///
    /// # Errors
    /// As [`Records::get`]; `malformed_document` if the stored document is not a value of the type.
    pub async fn get(&self, id: impl Into<Bson>) -> Result<Option<Stored<T>>, RecordError> {
        let record = self.records.get(&self.name, &id.into()).await?;
        Ok(record.map(|record| value(&self.name, record)).transpose()?)
    }

    /// Returns a page of the type's records. Build the query from [`query`](Self::query).
    ///
    /// # Errors
    /// As [`Records::find`]; `malformed_document` if a stored document is not a value of the type.
    pub async fn find(&self, query: RecordQuery) -> Result<(Vec<Stored<T>>, Option<Cursor>), RecordError> {
        let page = self.records.find(RecordQuery { collection: self.name.clone(), ..query }).await?;
        let values = page.records.into_iter().map(|record| value(&self.name, record));
        Ok((values.collect::<Result<_, _>>()?, page.next))
    }
}

impl<T: RecordType> TypedRecords<T> {
    /// Returns a query for all records of the type, to be narrowed.
    pub fn query() -> RecordQuery {
        RecordQuery::new(T::COLLECTION)
    }

    /// Returns a page as [`find`](Self::find) does, but skips documents that are not values of the type and passes their errors to
    /// `malformed`.
    ///
    /// # Errors
    /// As [`Records::find`].
    pub async fn find_readable(
        &self,
        query: RecordQuery,
        mut malformed: impl FnMut(StoreError),
    ) -> Result<(Vec<Stored<T>>, Option<Cursor>), RecordError> {
        let page = self.records.find(RecordQuery { collection: self.name.clone(), ..query }).await?;
        let values =
            page.records.into_iter().filter_map(|record| value(&self.name, record).map_err(&mut malformed).ok());
        Ok((values.collect(), page.next))
    }
}

fn document<T: Serialize>(value: &T) -> Result<bson::RawDocumentBuf, Invalid> {
    bson::serialize_to_raw_document_buf(value)
        .map_err(|error| Invalid::new(Code::InvalidRecord, "document", format!("cannot be a document: {error}")))
}

fn value<T: DeserializeOwned>(collection: &str, record: Record) -> Result<Stored<T>, StoreError> {
    let value = decode(&record.document).map_err(|error: bson::error::Error| {
        let id = record.document.get("_id").ok().flatten().map_or_else(|| "none".to_owned(), shown);
        let why = error.message.clone().unwrap_or_else(|| error.to_string());
        let message = format!("{collection}: the document with the _id {id}: {why}; correct it there, or delete it");
        StoreError::other(Code::MalformedDocument, message)
    })?;
    Ok(Stored { value, revision: record.revision })
}

fn shown(value: bson::RawBsonRef<'_>) -> String {
    Bson::try_from(value).map_or_else(|_| "that cannot be read".to_owned(), |value| value.to_string())
}
