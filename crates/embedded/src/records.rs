//! The records of one tenant, stored in its engine.
//!
//! ```text
//!   write.rs     a batch of changes: judge · keep the indexes · note the change              runs on the engine's writer
//!   declare.rs   collections and indexes: compare, create, fill                              runs on the engine's writer
//!   find.rs      pages and counts: plan.rs and field.rs say where to look, scan.rs looks, a piece at a time, wanted.rs keeps what is
//!                of a page
//!   race.rs      if there are several plans: which of them finds the page, or has the fewest records
//!   merged.rs    several ranges of an index as one sequence, in order
//!   documents.rs documents by id, read on where they follow each other
//!   totals.rs    counts that resume where an earlier one ended
//!   group.rs     groups of records, from the same scans
//!   feed.rs      what has changed
//!   rebuild.rs   indexes made again, for a store that no process has open
//!   check.rs     whether all of it is as it must be
//!   expiry.rs    deletes what has expired                                                    a thread, once an index expires
//!   keys.rs      where everything stands in the engine's map
//! ```
//!
//! Invariants:
//! - A record, its index entries and the note of its change are written by the same engine write, so a view of the map has all of them or
//!   none.
//! - An index has one entry for each key of each record that it admits, and no others.
//! - Every reader and writer takes the catalog from the view on which it works, so it uses an index only if it sees the index's entries.

mod catalog;
mod check;
mod cursor;
mod declare;
mod documents;
mod entries;
mod expiry;
mod feed;
mod field;
mod find;
mod group;
mod keys;
mod merged;
mod plan;
mod race;
mod rebuild;
mod scan;
mod totals;
mod value;
mod wanted;
mod write;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use annals_core::bson::Bson;
use annals_core::{
    ChangeNumber, ChangesError, Code, Collection, Condition, DocumentKind, Explained, GroupPage, GroupQuery, Invalid,
    Now, Record, RecordChange, RecordError, RecordPage, RecordQuery, RecordWrites, RecordedChange, Records, Revision,
    StoreError, limits, valid_changes,
};
use async_trait::async_trait;

use crate::Options;
use crate::engine::Engine;

use self::catalog::CatalogCache;
use self::expiry::Expiry;
use self::totals::Totals;

pub(crate) use self::check::check;
pub(crate) use self::rebuild::rebuild;
pub(crate) use self::value::entry_is_whole;

/// The records of one tenant.
pub(crate) struct TenantRecords {
    engine: Arc<Engine>,
    options: Options,
    catalogs: Arc<CatalogCache>,
    totals: Arc<Totals>,
    expiry: Expiry,
}

impl TenantRecords {
    /// Opens the records in this engine.
    pub(crate) fn new(engine: Arc<Engine>, options: &Options) -> Arc<Self> {
        let catalogs = Arc::new(CatalogCache::default());
        let totals = Arc::new(Totals::default());
        let records = Arc::new(Self {
            expiry: Expiry::new(engine.clone(), catalogs.clone(), totals.clone(), options.clone()),
            engine,
            options: options.clone(),
            catalogs,
            totals,
        });
        // Nothing can be awaited here; the first use reports any error.
        if records.expires().unwrap_or(false) {
            records.expiry.start();
        }
        records
    }

    /// Returns the time to which windows of time are relative.
    fn now(&self) -> Now {
        Now::utc(self.options.clock.now())
    }

    fn expires(&self) -> Result<bool, StoreError> {
        self.engine.read(|view| Ok(self.catalogs.of(view)?.expires()))
    }

    /// Ends the background thread. Blocks until it has ended.
    pub(crate) fn close(&self) {
        self.expiry.close();
    }
}

#[async_trait]
impl Records for TenantRecords {
    async fn declare(&self, collection: Collection) -> Result<(), RecordError> {
        collection.validate()?;
        let collection = catalog::as_stored(collection)?;
        let expires = collection.indexes.iter().any(|index| index.expires_after_seconds().is_some());
        let catalogs = self.catalogs.clone();
        let known = self.engine.read(|view| Ok::<_, StoreError>(self.catalogs.of(view)?.has_all_of(&collection)))?;
        if !known {
            self.engine.write(move |map| declare::declare(map, &catalogs, &collection)).await?;
        }
        if expires {
            self.expiry.start();
        }
        Ok(())
    }

    async fn collections(&self) -> Result<Vec<Collection>, RecordError> {
        self.engine.read(|view| {
            let catalog = self.catalogs.of(view)?;
            let declared = |(name, known): (&String, &catalog::KnownCollection)| {
                let indexes = known.indexes.iter().map(|known| known.index.clone()).collect();
                Collection { name: name.clone(), indexes, feed: known.feed }
            };
            Ok(catalog.collections().map(declared).collect())
        })
    }

    async fn write(&self, changes: Vec<RecordChange>) -> Result<Vec<Revision>, RecordError> {
        valid_changes(&changes)?;
        let (catalogs, totals, options) = (self.catalogs.clone(), self.totals.clone(), self.options.clone());
        self.engine.write(move |map| write::write(map, &catalogs, &totals, &options, changes)).await
    }

    async fn get(&self, collection: &str, id: &Bson) -> Result<Option<Record>, RecordError> {
        let id = value::id_key(id)?;
        self.engine.read(|view| {
            let catalog = self.catalogs.of(view)?;
            let collection = catalog.collection(collection)?;
            let stored = view.get(&keys::document(collection.id, &id))?;
            Ok(stored.map(|bytes| value::record(&id, &bytes)).transpose()?)
        })
    }

    async fn find(&self, query: RecordQuery) -> Result<RecordPage, RecordError> {
        let query = query.resolved(DocumentKind::Record, &self.now())?;
        query.validate()?;
        query.condition.without_text_search().judgeable()?;
        find::find(&self.engine, &self.catalogs, query).await
    }

    async fn explain(&self, query: RecordQuery) -> Result<Explained, RecordError> {
        let query = query.resolved(DocumentKind::Record, &self.now())?;
        query.validate()?;
        query.condition.without_text_search().judgeable()?;
        find::explain(&self.engine, &self.catalogs, query).await
    }

    async fn count(&self, collection: &str, condition: &Condition) -> Result<u64, RecordError> {
        self.count_up_to(collection, condition, u64::MAX).await
    }

    async fn count_up_to(&self, collection: &str, condition: &Condition, at_most: u64) -> Result<u64, RecordError> {
        let condition = &condition.resolved(DocumentKind::Record, &self.now())?;
        condition.validate()?;
        condition.without_text_search().judgeable()?;
        find::count(&self.engine, (&*self.catalogs, &*self.totals), collection, condition, at_most).await
    }

    async fn group(&self, query: GroupQuery) -> Result<GroupPage, RecordError> {
        let query = query.resolved(&self.now())?;
        query.validate()?;
        query.condition.without_text_search().judgeable()?;
        group::group(&self.engine, &self.catalogs, &query).await
    }

    async fn changes(
        &self,
        collection: &str,
        after: ChangeNumber,
        limit: usize,
    ) -> Result<Vec<RecordedChange>, ChangesError> {
        if !(1..=limits::PAGE_MAX).contains(&limit) {
            let message = format!("is {limit}; 1 to {} are allowed", limits::PAGE_MAX);
            return Err(Invalid::new(Code::InvalidQuery, "limit", message).into());
        }
        self.engine.read(|view| feed::changes(view, &*self.catalogs.of(view)?, collection, after, limit))
    }

    async fn last_change(&self, collection: &str) -> Result<ChangeNumber, ChangesError> {
        self.engine.read(|view| Ok(feed::of(view, &*self.catalogs.of(view)?, collection)?.1.last))
    }

    async fn wait_past_change(&self, collection: &str, after: ChangeNumber) -> Result<ChangeNumber, ChangesError> {
        let mut batches = self.engine.batches();
        loop {
            let closed = batches.borrow_and_update().closed;
            let last = self.last_change(collection).await;
            match last {
                Ok(last) if last > after => return Ok(last),
                _ if closed => return Err(StoreError::Closed.into()),
                Ok(_) => {}
                Err(error) => return Err(error),
            }
            batches.changed().await.map_err(|_| StoreError::Closed)?;
        }
    }
}

#[async_trait]
impl RecordWrites for TenantRecords {
    async fn wait(&self, seen: Option<u64>) -> Result<u64, StoreError> {
        let mut batches = self.engine.batches();
        let news = batches.wait_for(|batches| batches.closed || seen != Some(batches.durable)).await;
        match news {
            Ok(batches) if !batches.closed => Ok(batches.durable),
            _ => Err(StoreError::Closed),
        }
    }
}
