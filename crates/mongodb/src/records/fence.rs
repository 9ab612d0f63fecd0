//! The fence between writers and declarations: a declaration that requires more of writers waits for every transaction that does not know
//! of it, and every later transaction complies with it.
//!
//! A process caches catalog entries. If a feed is turned on (or an index that expires is added to a collection with one), a transaction
//! based on the older entry writes records without notes. Time cannot bound how long such a transaction stays in flight, so the server's
//! conflict detection does:
//!
//! ```text
//! annals-record-state: {_id: "writer:{process}", n int64, fence int64, at date}
//!
//!  declaration   1 stores the entry ─▶ 2 raises the fence: increments `fence` of every writer ─▶ 3 the entry is in force
//!  transaction   a increments `n` of its own writer, first of all, and compares `fence` with that of its entries ─▶ … ─▶ commit
//! ```
//!
//! INVARIANTS:
//! - A process reads catalog entries for writing only after its writer is stored, and associates them with the fence that it read before
//!   them.
//! - Every transaction that writes records writes its own writer first. So step 2 waits until the transactions in flight have ended, and a
//!   transaction whose snapshot is older than step 2 conflicts and is retried.
//! - A transaction that finds a fence other than that of its entries, or no writer, writes nothing: its entries are read again.
//! - A writer that is stored after step 2 has searched for writers reads its entries after step 1.
//!
//! Each process has a writer of its own, and one transaction at a time, so writers never conflict with each other. A process that dies
//! leaves its writer behind. A writer that was not used for a day is deleted; a process that was merely idle stores its own again.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use annals_core::StoreError;
use annals_core::bson::{Document, RawDocumentBuf, doc};
use mongodb::options::ReturnDocument;
use mongodb::{ClientSession, Collection, Database};

use super::catalog::{Catalog, Known};
use super::feed::STATE;
use crate::layout::fields::integer;
use crate::refused::{message_of, reading};

/// Prefix of the `_id`s of writers.
const PREFIX: &str = "writer:";
/// Upper bound of the `_id`s of writers: `;` follows `:`.
const AFTER_PREFIX: &str = "writer;";
/// Milliseconds after which an unused writer is deleted.
const UNUSED_MAX: i64 = 24 * 60 * 60 * 1_000;

/// The writer of this process.
pub(super) struct Fence {
    database: Database,
    catalog: Arc<Catalog>,
    id: String,
    /// The fence that the cached entries are associated with; `None` while the writer is not stored.
    known: Mutex<Option<i64>>,
}

/// Catalogue entries for a transaction.
pub(super) struct Entries {
    pub(super) collections: HashMap<String, Arc<Known>>,
    fence: i64,
}

impl Fence {
    pub(super) fn new(database: Database, catalog: Arc<Catalog>, process: &str) -> Self {
        Self { database, catalog, id: format!("{PREFIX}{process}"), known: Mutex::new(None) }
    }

    fn state(&self) -> Collection<Document> {
        self.database.collection(STATE)
    }

    fn known(&self) -> MutexGuard<'_, Option<i64>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn own(&self) -> Document {
        doc! { "_id": &self.id }
    }

    /// Returns the entries of these collections and their fence. An undeclared collection has no entry.
    pub(super) async fn entries(&self, names: &BTreeSet<&str>) -> Result<Entries, StoreError> {
        let known = *self.known();
        let fence = match known {
            Some(fence) => fence,
            None => self.store().await?,
        };
        let mut collections = HashMap::new();
        for name in names {
            match self.catalog.declared(name).await {
                Ok(entry) => drop(collections.insert((*name).to_owned(), entry)),
                Err(annals_core::RecordError::Store(error)) => return Err(error),
                // Evaluated as undeclared.
                Err(_) => {}
            }
        }
        Ok(Entries { collections, fence })
    }

    /// Stores the writer, and forgets every entry that was read before.
    async fn store(&self) -> Result<i64, StoreError> {
        let asked = |error: mongodb::error::Error| reading(&error);
        let begin = doc! { "$setOnInsert": { "n": 0_i64, "fence": 0_i64 }, "$currentDate": { "at": true } };
        let state = self.state();
        let stored = state.find_one_and_update(self.own(), begin).upsert(true);
        let stored = stored.return_document(ReturnDocument::After).await.map_err(asked)?;
        let fence = stored.and_then(|stored| stored.get_i64("fence").ok()).unwrap_or(0);
        self.catalog.forget();
        *self.known() = Some(fence);
        self.delete_unused().await;
        Ok(fence)
    }

    /// Deletes the writers of processes that have long ended.
    async fn delete_unused(&self) {
        let old = doc! { "$lt": ["$at", { "$subtract": ["$$NOW", UNUSED_MAX] }] };
        let unused = doc! { "_id": { "$gte": PREFIX, "$lt": AFTER_PREFIX }, "$expr": old };
        if let Err(error) = self.state().delete_many(unused).await {
            tracing::debug!(error = message_of(&error), "writers of records that have ended stay stored for now");
        }
    }

    /// Begins a transaction by writing the writer. Returns false if the entries must be read again before anything is written.
    pub(super) async fn enter(&self, entries: &Entries, session: &mut ClientSession) -> mongodb::error::Result<bool> {
        let writers = self.database.collection::<RawDocumentBuf>(STATE);
        let used = doc! { "$inc": { "n": 1_i64 }, "$currentDate": { "at": true } };
        let found = writers.find_one_and_update(self.own(), used).projection(doc! { "fence": 1 });
        let fence = found.session(session).await?.and_then(|found| integer(&found, "fence"));
        if fence == Some(entries.fence) {
            return Ok(true);
        }
        self.catalog.forget();
        *self.known() = fence;
        Ok(false)
    }

    /// Waits until no transaction based on earlier entries is in flight, and makes later ones read the entries again.
    pub(super) async fn raise(&self) -> Result<(), StoreError> {
        let all = doc! { "_id": { "$gte": PREFIX, "$lt": AFTER_PREFIX } };
        let raised = self.state().update_many(all, doc! { "$inc": { "fence": 1_i64 } }).await;
        raised.map(drop).map_err(|error| reading(&error))
    }

    /// Deletes the writer: the process no longer writes.
    pub(super) async fn leave(&self) {
        let stored = self.known().take().is_some();
        if stored && let Err(error) = self.state().delete_one(self.own()).await {
            tracing::debug!(error = message_of(&error), "the writer of records of this process stays stored");
        }
    }
}
