//! Records in an export: each collection with its indexes, and its documents in order of `_id`.

use std::io::Write;
use std::sync::Arc;

use annals_core::bson::Bson;
use annals_core::bson::raw::RawDocumentBuf;
use annals_core::{
    Code, Collection, Condition, Data, Index, RecordChange, RecordError, RecordQuery, Records, RecordsHash, Store,
    limits, valid_document,
};
use serde::{Deserialize, Serialize};

use super::begun::Written;
use super::write::{besides, line, unwritten, written};
use super::{from_hex, to_hex};
use crate::operations::OperationError;

/// The maximum number of records, and of their bytes, that are inserted at once.
const RECORDS_MAX: usize = 256;
const BYTES_MAX: usize = 8 * 1024 * 1024;
/// The index named by the error with which a batch fails because some of its records exist.
const ID_INDEX: &str = "_id_";

type Outcome<T> = Result<T, OperationError>;

/// The line before the records of a collection.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct CollectionLine {
    pub(super) collection: Declared,
}

/// A collection of an export.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Declared {
    tenant: String,
    name: String,
    /// Sorted by name, because their order of creation has no meaning.
    indexes: Vec<Index>,
    /// Whether its changes can be followed. Absent if not, and in exports by versions that had one feed for all collections.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    feed: bool,
}

/// The line after the records of a collection.
#[derive(Serialize, Deserialize)]
pub(super) struct CollectionEnd {
    pub(super) collection_end: MovedCollection,
}

/// A collection that was exported or imported completely.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovedCollection {
    /// Its tenant.
    pub tenant: String,
    /// Its name.
    pub name: String,
    /// The number of its records.
    pub records: u64,
    /// The hash of their documents.
    pub records_hash: String,
}

/// A record of an export: its document as JSON, and its bytes if JSON cannot represent it.
#[derive(Serialize, Deserialize)]
struct RecordLine {
    record: Data,
    #[serde(default)]
    record_bson: Option<String>,
}

/// Writes each collection of a tenant.
pub(super) async fn export(
    store: &dyn Store,
    tenant: &str,
    out: &mut (dyn Write + Send),
    moved: &mut Vec<MovedCollection>,
) -> Outcome<()> {
    let records = store.records(tenant).map_err(|error| OperationError::new(error.code(), error.to_string()))?;
    for collection in records.collections().await.map_err(refused)? {
        let Collection { name, mut indexes, feed } = collection;
        indexes.sort_by(|one, other| one.name().cmp(other.name()));
        let declared = Declared { tenant: tenant.to_owned(), name: name.clone(), indexes, feed };
        line(out, &CollectionLine { collection: declared })?;
        let mut tally = Tally::default();
        let mut pages = Pages::of(&name);
        while let Some(page) = pages.next(&*records).await? {
            for document in page {
                tally.add(&document);
                write_record(document, out)?;
            }
        }
        let end = tally.finish(tenant, &name);
        moved.push(end.clone());
        line(out, &CollectionEnd { collection_end: end })?;
    }
    Ok(())
}

fn write_record(document: RawDocumentBuf, out: &mut (dyn Write + Send)) -> Outcome<()> {
    let data = stored(document)?;
    let json = serde_json::to_string(&data).map_err(|error| unwritten(&error.into()))?;
    let mut text = format!("{{\"record\":{json}}}").into_bytes();
    if Data::from_json(&json).ok().is_none_or(|read| read != data) {
        besides(&mut text, "record_bson", &to_hex(data.as_bytes()))?;
    }
    written(text, out)
}

fn stored(document: RawDocumentBuf) -> Outcome<Data> {
    let damaged = |why| OperationError::new(Code::StoreDamaged, format!("a record cannot be read: {why}"));
    Data::from_stored(document.into_bytes().into()).map_err(damaged)
}

/// The record count and hash of a collection.
#[derive(Default)]
struct Tally {
    records: u64,
    hash: RecordsHash,
}

impl Tally {
    fn add(&mut self, document: &RawDocumentBuf) {
        self.records += 1;
        self.hash.add(document);
    }

    fn finish(self, tenant: &str, name: &str) -> MovedCollection {
        let (tenant, name) = (tenant.to_owned(), name.to_owned());
        MovedCollection { tenant, name, records: self.records, records_hash: self.hash.finish() }
    }
}

/// Reads the documents of a collection, page by page.
struct Pages(Option<RecordQuery>);

impl Pages {
    fn of(name: &str) -> Self {
        Self(Some(RecordQuery { limit: limits::PAGE_MAX, ..RecordQuery::new(name) }))
    }

    async fn next(&mut self, records: &dyn Records) -> Outcome<Option<Vec<RawDocumentBuf>>> {
        let Some(query) = self.0.take() else { return Ok(None) };
        let page = records.find(query.clone()).await.map_err(refused)?;
        self.0 = page.next.map(|next| RecordQuery { after: Some(next), ..query });
        Ok(Some(page.records.into_iter().map(|record| record.document).collect()))
    }
}

/// A collection that is being imported.
pub(super) struct Filling<'a> {
    records: Arc<dyn Records>,
    declared: Declared,
    /// Whether its records may be deleted at any time because they expire.
    expires: bool,
    written: &'a Written,
    tally: Tally,
    ready: Vec<RawDocumentBuf>,
    bytes: usize,
}

impl<'a> Filling<'a> {
    /// Declares the collection. Expiring indexes are declared last, so that no record is deleted before it has been compared. So is the
    /// feed, which then begins with changes after the import.
    pub(super) async fn new(store: &dyn Store, declared: Declared, written: &'a Written) -> Outcome<Self> {
        let records = store.records(&declared.tenant);
        let records = records.map_err(|error| OperationError::new(error.code(), error.to_string()))?;
        let there = records.collections().await.map_err(refused)?;
        let expires = there
            .iter()
            .filter(|collection| collection.name == declared.name)
            .any(|collection| collection.indexes.iter().any(expiring));
        let lasting = declared.indexes.iter().filter(|index| !expiring(index)).cloned().collect();
        let collection = Collection { name: declared.name.clone(), indexes: lasting, feed: false };
        records.declare(collection).await.map_err(refused)?;
        Ok(Self { records, declared, expires, written, tally: Tally::default(), ready: Vec::new(), bytes: 0 })
    }

    /// Reads the line of the next record.
    pub(super) async fn take(&mut self, line: &[u8]) -> Outcome<Result<(), String>> {
        let document = match document(line) {
            Ok(document) => document,
            Err(why) => return Ok(Err(why)),
        };
        self.tally.add(&document);
        self.bytes += document.as_bytes().len();
        self.ready.push(document);
        if self.ready.len() >= RECORDS_MAX || self.bytes >= BYTES_MAX {
            self.store().await?;
        }
        Ok(Ok(()))
    }

    async fn store(&mut self) -> Outcome<()> {
        self.bytes = 0;
        let ready = std::mem::take(&mut self.ready);
        let name = &self.declared.name;
        let insert = |document: &RawDocumentBuf| RecordChange::insert(name.clone(), document.clone());
        match self.records.write(ready.iter().map(insert).collect()).await {
            Ok(_) => {
                self.written.add(&self.declared.tenant, ready.len());
                Ok(())
            }
            Err(RecordError::DuplicateKey { index, .. }) if index == ID_INDEX => {
                for document in &ready {
                    self.store_or_compare(document).await?;
                }
                Ok(())
            }
            Err(error) => Err(refused(error)),
        }
    }

    /// Stores one record of a batch of which some exist, or compares it if it exists, for an import that resumes another.
    async fn store_or_compare(&self, document: &RawDocumentBuf) -> Outcome<()> {
        let id = document.get("_id").ok().flatten().and_then(|id| Bson::try_from(id).ok()).unwrap_or(Bson::Null);
        match self.records.get(&self.declared.name, &id).await.map_err(refused)? {
            Some(there) if there.document == *document => Ok(()),
            Some(_) => Err(self.other(&format!("record {id} exists with other content"))),
            None => {
                self.records.insert(&self.declared.name, document.clone()).await.map_err(refused)?;
                self.written.add(&self.declared.tenant, 1);
                Ok(())
            }
        }
    }

    /// Stores the rest, compares the imported and the stored records with the export, and declares the remaining indexes.
    pub(super) async fn finish(mut self, due: MovedCollection) -> Outcome<Result<MovedCollection, String>> {
        self.store().await?;
        let Declared { tenant, name, indexes, feed } = self.declared.clone();
        if std::mem::take(&mut self.tally).finish(&tenant, &name) != due {
            let why = "the records are not those that were exported; the export was altered or is incomplete";
            return Ok(Err(why.to_owned()));
        }
        if self.expires {
            let count = self.records.count(&name, &Condition::All).await.map_err(refused)?;
            if count > due.records {
                return Err(self.other("it holds more records than the export"));
            }
        } else {
            let (mut tally, mut pages) = (Tally::default(), Pages::of(&name));
            while let Some(page) = pages.next(&*self.records).await? {
                page.iter().for_each(|document| tally.add(document));
            }
            if tally.finish(&tenant, &name) != due {
                return Err(self.other("it holds records that differ from the export"));
            }
        }
        self.records.declare(Collection { name, indexes, feed }).await.map_err(refused)?;
        Ok(Ok(due))
    }

    fn other(&self, why: &str) -> OperationError {
        let message = format!("{}, collection {}: {why}", self.declared.tenant, self.declared.name);
        OperationError::new(Code::OtherRecords, message)
    }
}

fn expiring(index: &Index) -> bool {
    index.expires_after_seconds().is_some()
}

/// Returns the document of a line.
fn document(line: &[u8]) -> Result<RawDocumentBuf, String> {
    let RecordLine { record, record_bson } = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let exact = match record_bson {
        None => record,
        Some(hex) => from_hex(&hex).ok_or("record_bson is not a BSON document in hexadecimal")?,
    };
    let document = RawDocumentBuf::from_bytes(exact.as_bytes().to_vec()).map_err(|error| error.to_string())?;
    valid_document(&document).map_err(|error| error.to_string())?;
    Ok(document)
}

fn refused(error: RecordError) -> OperationError {
    OperationError::new(error.code(), error.to_string())
}
