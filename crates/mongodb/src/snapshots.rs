//! Snapshots: records of our own, and documents that Wow saved in the same collections.
//!
//! Wow creates `{aggregate}_snapshot` and saves to it without our catalog. A snapshot is therefore read from its collection whether or not
//! that is declared, and a caller that waits for one polls the stored version.

use std::sync::Arc;

use annals_core::{
    Aggregate, Index, RecordError, RecordSnapshots, RecordWrites, Records, Snapshot, Snapshots, Version,
    snapshot_collection,
};
use async_trait::async_trait;
use mongodb::Database;
use mongodb::bson::{Bson, RawDocumentBuf, doc};

use crate::log::{Log, Means};
use crate::records::MongoRecords;
use crate::refused::reading;

/// The snapshots of one tenant.
pub(crate) struct MongoSnapshots {
    own: RecordSnapshots,
    records: Arc<MongoRecords>,
    database: Database,
    means: Means,
}

impl MongoSnapshots {
    /// Creates the snapshots in `database`, which has these records.
    pub(crate) fn new(log: &Log, records: Arc<MongoRecords>, database: Database) -> Self {
        let own = RecordSnapshots::new(records.clone(), &*log.context, log.clock.clone());
        Self { own, records, database, means: log.means.clone() }
    }

    /// Reads a snapshot from a collection that is not declared.
    async fn undeclared(&self, collection: &str, aggregate: &Aggregate) -> Result<Option<Snapshot>, RecordError> {
        let found = async {
            let all = self.database.collection::<RawDocumentBuf>(collection);
            let found = all.find_one(doc! { "_id": &*aggregate.id }).await;
            found.map_err(|error| RecordError::from(reading(&error)))
        };
        let found = self.means.answers.of(found).await?;
        Ok(found.and_then(|found| Snapshot::of_document(aggregate, &found)))
    }
}

#[async_trait]
impl Snapshots for MongoSnapshots {
    async fn declare(&self, name: &str, indexes: Vec<Index>) -> Result<(), RecordError> {
        self.own.declare(name, indexes).await
    }

    async fn save(&self, snapshot: &Snapshot) -> Result<bool, RecordError> {
        self.own.save(snapshot).await
    }

    async fn load(&self, aggregate: &Aggregate) -> Result<Option<Snapshot>, RecordError> {
        aggregate.validate()?;
        let collection = snapshot_collection(&aggregate.name)?;
        match self.records.get(&collection, &Bson::from(&*aggregate.id)).await {
            Ok(found) => Ok(found.and_then(|found| Snapshot::of_document(aggregate, &found.document))),
            Err(RecordError::UnknownCollection(_)) => self.undeclared(&collection, aggregate).await,
            Err(error) => Err(error),
        }
    }

    async fn until(&self, aggregate: &Aggregate, version: Version) -> Result<(), RecordError> {
        let mut seen = None;
        loop {
            // Subscribe before reading: a snapshot saved after the read is a write after this point. A save by other software is not
            // announced, but the wait also ends after a second.
            seen = Some(self.records.wait(seen).await?);
            if self.version(aggregate).await? >= version {
                return Ok(());
            }
        }
    }

    async fn delete(&self, aggregate: &Aggregate, version: Option<Version>) -> Result<bool, RecordError> {
        if self.own.delete(aggregate, version).await? {
            return Ok(true);
        }
        // Wow may have saved it before its collection was declared.
        let is_meant = |found: Snapshot| version.is_none_or(|version| found.info.version == version);
        if !self.load(aggregate).await?.is_some_and(is_meant) {
            return Ok(false);
        }
        self.own.declare(&aggregate.name, Vec::new()).await?;
        self.own.delete(aggregate, version).await
    }
}
