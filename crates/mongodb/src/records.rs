//! The records of one tenant, in its database.
//!
//! ```text
//!   document.rs  a record as it is stored               filter.rs   conditions as filters
//!   catalog.rs   what is declared                       find.rs     pages and counts; explain.rs; behind.rs, cursor.rs: where one goes on
//!   declare.rs   collections and indexes; text.rs       feed.rs     what has changed
//!   queries.rs   snapshots and commits, which need not be declared
//!   write.rs     gathers what comes at once             expiry.rs   deletes what has expired; markers.rs: when each does
//!   batch.rs     one transaction; judge.rs decides, commands.rs sends, checks.rs makes it conflict with changes of what was checked
//! ```
//!
//! Invariants:
//! - A record, the note of its change and the counter are written by one transaction, so numbers have no holes and nobody sees one without
//!   the other.
//! - What decides is read in that transaction, from the primary; answers that rest on nothing written wait until that is at majority.

mod batch;
mod behind;
mod catalog;
mod checks;
mod commands;
mod cursor;
mod declare;
mod document;
mod expiry;
mod explain;
mod feed;
mod filter;
mod find;
mod judge;
mod markers;
mod queries;
mod text;
mod write;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use annals_core::bson::{Bson, RawDocumentBuf, doc};
use annals_core::{
    ChangeNumber, ChangesError, Clock, Code, Collection, Condition, DocumentKind, Explained, Invalid, Now, Record,
    RecordChange, RecordError, RecordPage, RecordQuery, RecordedChange, Records, StoreError, limits, new_uuid,
    valid_changes,
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
use expiry::Due;
pub use filter::filter_of;
pub(crate) use queries::MongoDocuments;
use write::{Work, Writer};

/// How often who waits looks for itself, should another process write.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The records of one tenant.
pub(crate) struct MongoRecords {
    database: Database,
    catalog: Catalog,
    writer: Writer,
    clock: Arc<dyn Clock>,
    /// Whether collections and indexes are made when they are missing.
    create: bool,
    begun: OnceCell<()>,
    answers: Arc<Answers>,
}

impl MongoRecords {
    /// The records in this database; deletes what expires for as long as they are open.
    pub(crate) fn new(database: Database, options: &Options, means: Means) -> Arc<Self> {
        let name = new_uuid(options.clock.now(), &*options.random).to_string();
        let place = Place {
            database: database.clone(),
            clock: options.clock.clone(),
            random: options.random.clone(),
            trimmed: AtomicU64::new(0),
            due: Due::default(),
            sessions: means.sessions,
        };
        let records = Arc::new(Self {
            catalog: Catalog::new(database.clone()),
            writer: Writer::new(
                place,
                name,
                options.waiting_max,
                options.record_changes_kept.max(limits::CHANGES_KEPT_MIN),
            ),
            database,
            clock: options.clock.clone(),
            create: options.auto_init_schema,
            begun: OnceCell::new(),
            answers: means.answers,
        });
        tokio::spawn(expiry::run(Arc::downgrade(&records)));
        records
    }

    /// Takes no more writes, and waits until those under way are answered.
    pub(crate) async fn close(&self) {
        self.writer.close().await;
    }

    /// Answers what is under way without waiting for MongoDB any longer.
    pub(crate) fn give_up(&self) {
        self.writer.give_up();
    }

    /// The time that windows of time are of.
    fn now(&self) -> Now {
        Now::utc(self.clock.now())
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
        self.begun.get_or_try_init(|| feed::begin(&self.database, self.create)).await?;
        declare::declare(&self.database, &self.catalog, &collection, self.create).await
    }

    async fn collections(&self) -> Result<Vec<Collection>, RecordError> {
        self.open()?;
        self.answers.of(async { Ok(self.catalog.all().await?) }).await
    }

    async fn write(&self, changes: Vec<RecordChange>) -> Result<Vec<ChangeNumber>, RecordError> {
        valid_changes(&changes)?;
        self.open()?;
        self.answers.expected().await?;
        let mut collections = HashMap::new();
        for (at, change) in changes.iter().enumerate() {
            document::storable_change(change)
                .map_err(|error| Invalid { path: format!("changes[{at}].{}", error.path), ..error })?;
            let name = change.collection();
            if !collections.contains_key(name) {
                collections.insert(name.to_owned(), self.answers.of(self.catalog.declared(name)).await?);
            }
        }
        if changes.is_empty() {
            return Ok(Vec::new());
        }
        self.writer.write(Work::Changes(changes), collections).await
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
            self.catalog.declared(&query.collection).await?;
            find::find(&self.database, &query).await
        };
        self.answers.of(found).await
    }

    async fn explain(&self, query: RecordQuery) -> Result<Explained, RecordError> {
        let query = query.resolved(DocumentKind::Record, &self.now())?;
        query.validate()?;
        self.open()?;
        let explained = async {
            self.catalog.declared(&query.collection).await?;
            explain::explain(&self.database, &query).await
        };
        self.answers.of(explained).await
    }

    async fn count(&self, collection: &str, condition: &Condition) -> Result<u64, RecordError> {
        let condition = &condition.resolved(DocumentKind::Record, &self.now())?;
        condition.validate()?;
        self.open()?;
        let counted = async {
            self.catalog.declared(collection).await?;
            find::count(&self.database, collection, condition).await
        };
        self.answers.of(counted).await
    }

    async fn changes(&self, after: ChangeNumber, limit: usize) -> Result<Vec<RecordedChange>, ChangesError> {
        if !(1..=limits::PAGE_MAX).contains(&limit) {
            let message = format!("is {limit}; 1 to {} are allowed", limits::PAGE_MAX);
            return Err(Invalid::new(Code::InvalidQuery, "limit", message).into());
        }
        self.open()?;
        self.answers.of(feed::changes(&self.database, after, limit)).await
    }

    async fn last_change(&self) -> Result<ChangeNumber, ChangesError> {
        self.open()?;
        self.answers.of(async { Ok(feed::last(&self.database).await?) }).await
    }

    async fn wait_past_change(&self, after: ChangeNumber) -> Result<ChangeNumber, ChangesError> {
        let mut announced = self.writer.announced();
        loop {
            if announced.borrow_and_update().is_none() {
                return Err(StoreError::Closed.into());
            }
            // An announcement is a wake-up; the stored number decides.
            let last = self.last_change().await?;
            if last > after {
                return Ok(last);
            }
            let _ = tokio::time::timeout(LOOK_EVERY, announced.changed()).await;
        }
    }
}
