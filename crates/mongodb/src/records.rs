//! The records of one tenant, in its database.
//!
//! ```text
//!   document.rs  a record as it is stored               filter.rs   conditions as filters
//!   catalog.rs   what is declared                       find.rs     pages and counts; explain.rs; behind.rs, cursor.rs: where one goes on;
//!                                                                   served.rs, in_order.rs: pages in the order of an index
//!   declare.rs   what is added to it                    feed.rs     what has changed, where a collection asks for a feed
//!   create.rs    collections; physical.rs, text.rs: their indexes
//!   start.rs     turning a feed on                      expiry.rs   deletes what has expired; markers.rs: when each does
//!   group.rs     groups of records
//!   queries.rs   snapshots and commits, which need not be declared
//!   write.rs     gathers what comes at once             revisions.rs   which write a record is of
//!   batch.rs     one transaction; look.rs reads, judge.rs decides, commands.rs sends; checks.rs makes it conflict with changes of what was
//!                checked, fence.rs with declarations
//! ```
//!
//! INVARIANTS (batch.rs, fence.rs, feed.rs and revisions.rs have their own):
//! - A record and the note of its change are written in one transaction, so no reader sees one without the other.
//! - Data on which a decision depends is read in that transaction, from the primary. An answer without a write waits until that data is at
//!   majority.
//! - Transactions on different records of collections without a feed have no document in common.

mod batch;
mod behind;
mod catalog;
mod checks;
mod commands;
mod create;
mod cursor;
mod declare;
mod document;
mod expiry;
mod explain;
mod feed;
mod fence;
mod filter;
mod find;
mod group;
mod in_order;
mod judge;
mod look;
mod markers;
mod physical;
mod queries;
mod revisions;
mod served;
mod start;
mod text;
mod write;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use annals_core::bson::{Bson, RawDocumentBuf, doc};
use annals_core::{
    ChangeNumber, ChangesError, Clock, Code, Collection, Condition, DocumentKind, Explained, GroupPage, GroupQuery,
    Invalid, Now, Record, RecordChange, RecordError, RecordPage, RecordQuery, RecordWrites, RecordedChange, Records,
    Revision, StoreError, limits, new_uuid, valid_changes,
};
use async_trait::async_trait;
use mongodb::Database;
use tokio::sync::OnceCell;

use crate::answers::Answers;
use crate::log::Means;
use crate::options::Options;
use crate::refused::reading;
use batch::Place;
use catalog::Catalog;
use create::Creator;
use expiry::Due;
use fence::Fence;
pub use filter::filter_of;
pub(crate) use queries::MongoDocuments;
use revisions::Revisions;
use write::{Announced, Work, Writer};

/// How often a waiter checks for itself, since another process may write.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The records of one tenant.
pub(crate) struct MongoRecords {
    database: Database,
    catalog: Arc<Catalog>,
    writer: Writer,
    clock: Arc<dyn Clock>,
    creator: Arc<Creator>,
    begun: OnceCell<()>,
    answers: Arc<Answers>,
}

impl MongoRecords {
    /// Opens the records in this database. Expired records are deleted as long as they are open.
    pub(crate) fn new(database: Database, options: &Options, means: Means) -> Arc<Self> {
        let process = new_uuid(options.clock.now(), &*options.random).to_string();
        let catalog = Arc::new(Catalog::new(database.clone()));
        let creator = Arc::new(Creator::new(database.clone(), catalog.clone(), options));
        let place = Place {
            database: database.clone(),
            clock: options.clock.clone(),
            random: options.random.clone(),
            revisions: Revisions::new(options.clock.clone(), &*options.random),
            fence: Fence::new(database.clone(), catalog.clone(), &process),
            creator: creator.clone(),
            due: Due::default(),
            sessions: means.sessions,
        };
        let kept = options.record_changes_kept.max(limits::CHANGES_KEPT_MIN);
        let records = Arc::new(Self {
            catalog,
            writer: Writer::new(place, options.waiting_max, kept),
            database,
            clock: options.clock.clone(),
            creator,
            begun: OnceCell::new(),
            answers: means.answers,
        });
        tokio::spawn(expiry::run(Arc::downgrade(&records)));
        records
    }

    /// Accepts no more writes, and waits until those in flight are answered.
    pub(crate) async fn close(&self) {
        self.writer.close().await;
    }

    /// Answers the requests in flight without waiting for MongoDB any longer.
    pub(crate) fn give_up(&self) {
        self.writer.give_up();
    }

    /// Returns the time against which time windows are evaluated.
    fn now(&self) -> Now {
        Now::utc(self.clock.now())
    }

    /// Creates what declarations and writes of all collections need, once.
    async fn begin(&self) -> Result<(), StoreError> {
        self.begun.get_or_try_init(|| feed::begin(&self.database, self.creator.creates())).await.map(drop)
    }

    fn open(&self) -> Result<(), StoreError> {
        if self.writer.is_closed() { Err(StoreError::Closed) } else { Ok(()) }
    }
}

#[async_trait]
impl Records for MongoRecords {
    async fn declare(&self, collection: Collection) -> Result<(), RecordError> {
        collection.validate()?;
        self.open()?;
        self.answers.expected().await?;
        self.begin().await?;
        let known = declare::declare(&self.database, &self.catalog, &self.creator, &collection).await?;
        if start::is_due(&known, collection.feed) {
            start::run(self, &collection.name).await?;
        }
        Ok(())
    }

    async fn collections(&self) -> Result<Vec<Collection>, RecordError> {
        self.open()?;
        self.answers.of(async { Ok(self.catalog.all().await?) }).await
    }

    async fn write(&self, changes: Vec<RecordChange>) -> Result<Vec<Revision>, RecordError> {
        valid_changes(&changes)?;
        self.open()?;
        self.answers.expected().await?;
        let mut declared = HashSet::new();
        for (at, change) in changes.iter().enumerate() {
            document::storable_change(change)
                .map_err(|error| Invalid { path: format!("changes[{at}].{}", error.path), ..error })?;
            if declared.insert(change.collection()) {
                let known = self.answers.of(self.catalog.declared(change.collection())).await?;
                // Here, so that writes of other collections need not wait for it.
                if known.pending {
                    self.answers.of(self.creator.ready(change.collection())).await?;
                }
            }
        }
        if changes.is_empty() {
            return Ok(Vec::new());
        }
        self.answers.of(async { self.begin().await }).await?;
        self.writer.write(Work::Changes(changes)).await
    }

    async fn get(&self, collection: &str, id: &Bson) -> Result<Option<Record>, RecordError> {
        self.open()?;
        let read = async {
            self.catalog.declared(collection).await?;
            let records = self.database.collection::<RawDocumentBuf>(collection);
            let found = records.find_one(doc! { "_id": { "$eq": id.clone() } }).await;
            found.map_err(|error| RecordError::from(reading(&error)))
        };
        let found = self.answers.of(read).await?;
        Ok(found.map(|stored| Record { document: document::given(&stored), revision: document::revision_of(&stored) }))
    }

    async fn find(&self, query: RecordQuery) -> Result<RecordPage, RecordError> {
        let query = query.resolved(DocumentKind::Record, &self.now())?;
        query.validate()?;
        self.open()?;
        let found = async {
            let declared = self.catalog.declared(&query.collection).await?;
            find::find(&self.database, &query, &declared).await
        };
        self.answers.of(found).await
    }

    async fn explain(&self, query: RecordQuery) -> Result<Explained, RecordError> {
        let query = query.resolved(DocumentKind::Record, &self.now())?;
        query.validate()?;
        self.open()?;
        let explained = async {
            let declared = self.catalog.declared(&query.collection).await?;
            explain::explain(&self.database, &query, Some(&declared)).await
        };
        self.answers.of(explained).await
    }

    async fn count(&self, collection: &str, condition: &Condition) -> Result<u64, RecordError> {
        self.count_up_to(collection, condition, u64::MAX).await
    }

    async fn count_up_to(&self, collection: &str, condition: &Condition, at_most: u64) -> Result<u64, RecordError> {
        let condition = &condition.resolved(DocumentKind::Record, &self.now())?;
        condition.validate()?;
        self.open()?;
        let counted = async {
            self.catalog.declared(collection).await?;
            find::count(&self.database, collection, condition, at_most).await
        };
        self.answers.of(counted).await
    }

    async fn group(&self, query: GroupQuery) -> Result<GroupPage, RecordError> {
        let query = query.resolved(&self.now())?;
        query.validate()?;
        self.open()?;
        let grouped = async {
            self.catalog.declared(&query.collection).await?;
            group::group(&self.database, &query).await
        };
        self.answers.of(grouped).await
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
        self.open()?;
        let read = async {
            self.catalog.followed(collection).await?;
            feed::changes(&self.database, collection, after, limit).await
        };
        self.answers.of(read).await
    }

    async fn last_change(&self, collection: &str) -> Result<ChangeNumber, ChangesError> {
        self.open()?;
        let read = async {
            self.catalog.followed(collection).await?;
            Ok(feed::last(&self.database, collection).await?)
        };
        self.answers.of(read).await
    }

    async fn wait_past_change(&self, collection: &str, after: ChangeNumber) -> Result<ChangeNumber, ChangesError> {
        let mut announced = self.writer.announced();
        loop {
            if announced.borrow().closed {
                return Err(StoreError::Closed.into());
            }
            // An announcement is only a wake-up; the stored number decides.
            let last = self.last_change(collection).await?;
            if last > after {
                return Ok(last);
            }
            let written = announced.wait_for(|announced| announced.closed || announced.is_past(collection, after));
            let _ = tokio::time::timeout(LOOK_EVERY, written).await;
        }
    }
}

#[async_trait]
impl RecordWrites for MongoRecords {
    async fn wait(&self, seen: Option<u64>) -> Result<u64, StoreError> {
        let mut announced = self.writer.announced();
        let is_news = |announced: &Announced| announced.closed || seen != Some(announced.transactions);
        // Another process may have written after a while, so a timeout counts as news.
        let _ = tokio::time::timeout(LOOK_EVERY, announced.wait_for(is_news)).await;
        let announced = announced.borrow();
        if announced.closed { Err(StoreError::Closed) } else { Ok(announced.transactions) }
    }
}
