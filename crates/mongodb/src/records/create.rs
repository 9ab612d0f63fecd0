//! Creates the collections of records with their indexes: when they are declared, or before the first write to them.
//!
//! Annals' own collections wait for their first write, because most tenants use few of the features that declare them:
//!
//! ```text
//!  declaration    1 the entry is added, pending                            reads find no collection, and answer that there are no records
//!  first write    2 the collection is created with all indexes of the entry
//!                 3 the entry stops being pending, provided that it has no other indexes than those of step 2; if it has, step 2 again
//!                 4 the entry is read, and the write begins
//! ```
//!
//! INVARIANTS:
//! - No transaction is based on a pending entry (batch.rs). So a collection has every index of its entry before the first record, and
//!   nothing is created inside a transaction.
//! - An index is added to a pending entry only by a write that finds it pending. An index that is added later is created first.
//!
//! Each step may be repeated, also by several processes at once: a process that dies in between leaves the entry pending, and the next
//! writer completes it.
//!
//! All other collections are created when they are declared. These are the collections of users, of whose indexes only the server can tell
//! whether they are possible, and the layouts of other software, which expects the indexes from the start. A collection with a text index
//! is created too, because the server refuses a text search in a missing one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use annals_core::bson::{Document, doc};
use annals_core::{Code, Collection, Index, Invalid, RecordError, StoreError};
use annals_system::sleep;
use mongodb::Database;
use mongodb::error::{Error, ErrorKind};

use super::catalog::{Catalog, Known};
use super::physical::{expiry, physical, same};
use super::text;
use crate::options::Options;
use crate::refused::{code_of, message_of, passes, reading};

const NAMESPACE_NOT_FOUND: i32 = 26;
const NAMESPACE_EXISTS: i32 = 48;
const DUPLICATE_KEY: i32 = 11000;
const CONFLICTS: [i32; 2] = [85, 86];

/// How often a command is sent again while another primary is elected, which takes seconds, and the pause before that.
const TRIES: u32 = 60;
const PAUSE: Duration = Duration::from_millis(250);

/// Beginning of the names of Annals' own collections, which nothing else declares or writes.
const OWN: &str = "annals-";
/// Beginning of the names of the builds of projections, whose indexes are of users.
const PROJECTIONS: &str = "annals-projection-";

/// The turns of writers, by collection.
type Turns = HashMap<String, Arc<tokio::sync::Mutex<()>>>;

/// What of a declaration does not exist.
pub(super) struct Missing {
    /// Whether the collection itself does not exist.
    pub(super) collection: bool,
    indexes: Vec<Document>,
}

/// Creates the collections of one database.
pub(super) struct Creator {
    database: Database,
    catalog: Arc<Catalog>,
    /// Whether missing collections and indexes are created.
    creates: bool,
    /// Whether no collection waits for its first write.
    all_at_start: bool,
    /// The collections that this process is creating. Writers of one take turns, so that it is created once.
    turns: Mutex<Turns>,
}

impl Creator {
    pub(super) fn new(database: Database, catalog: Arc<Catalog>, options: &Options) -> Self {
        let (creates, all_at_start) = (options.auto_init_schema, options.create_all_at_start);
        Self { database, catalog, creates, all_at_start, turns: Mutex::default() }
    }

    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether missing collections and indexes are created.
    pub(super) fn creates(&self) -> bool {
        self.creates
    }

    /// Returns whether a collection that does not exist is created before the first write to it, and not when it is declared.
    pub(super) fn waits(&self, declared: &Collection) -> bool {
        self.creates && !self.all_at_start && is_own(&declared.name) && declared.text_index().is_none()
    }

    /// Creates the collection of a pending entry, unless it exists by now. Returns the entry, which is no longer pending.
    pub(super) async fn ready(&self, name: &str) -> Result<Arc<Known>, RecordError> {
        let turn = self.turns().entry(name.to_owned()).or_default().clone();
        let _turn = turn.lock().await;
        loop {
            let known = self.catalog.read(name).await?;
            let known = known.ok_or_else(|| RecordError::UnknownCollection(name.to_owned()))?;
            if !known.pending {
                self.turns().remove(name);
                return Ok(known);
            }
            let missing = self.missing(&known).await?;
            self.add(&known, missing).await?;
            self.catalog.created(&known).await?;
        }
    }

    /// Returns what of a declaration does not exist.
    pub(super) async fn missing(&self, declared: &Collection) -> Result<Missing, RecordError> {
        let there = listed(&self.database, &declared.name).await.map_err(|error| reading(&error))?;
        let mut indexes: Vec<Document> = Vec::new();
        for index in &declared.indexes {
            let Some(due) = physical(index)? else { continue };
            let name = |found: &&Document| found.get_str("name").is_ok_and(|name| name == index.name());
            if let Some(found) = there.iter().flatten().find(name) {
                if !same(found, &due) || expiry(found) != expiry(&due) {
                    let message = format!(
                        "exists as {found}, but {due} is declared; declare it as it exists, or give the new one another name"
                    );
                    return Err(conflict(declared, index, message));
                }
            } else if !there.iter().flatten().chain(&indexes).any(|found| same(found, &due)) {
                indexes.push(due);
            }
        }
        Ok(Missing { collection: there.is_none(), indexes })
    }

    /// Creates what is missing, or refuses it if nothing may be created.
    pub(super) async fn add(&self, declared: &Collection, missing: Missing) -> Result<(), RecordError> {
        match self.creates {
            true => make(&self.database, declared, missing.collection, missing.indexes).await,
            false => Ok(all_there(declared, missing.collection, &missing.indexes)?),
        }
    }
}

/// Returns whether nothing but Annals declares and writes this collection.
fn is_own(name: &str) -> bool {
    name.starts_with(OWN) && !name.starts_with(PROJECTIONS)
}

/// Returns the error for an index that exists with another definition.
pub(super) fn conflict(collection: &Collection, index: &Index, message: String) -> RecordError {
    RecordError::IndexConflict { collection: collection.name.clone(), index: index.name().to_owned(), message }
}

/// Lists the existing indexes; `None` if the collection does not exist.
async fn listed(database: &Database, collection: &str) -> mongodb::error::Result<Option<Vec<Document>>> {
    match run(database, doc! { "listIndexes": collection, "cursor": { "batchSize": 200 } }).await {
        Ok(answer) => {
            let batch = answer.get_document("cursor").ok().and_then(|cursor| cursor.get_array("firstBatch").ok());
            Ok(Some(batch.into_iter().flatten().filter_map(|index| index.as_document().cloned()).collect()))
        }
        Err(error) if code_of(&error) == Some(NAMESPACE_NOT_FOUND) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Refuses a declaration that would have to create something, and names what is missing.
fn all_there(declared: &Collection, absent: bool, missing: &[Document]) -> Result<(), StoreError> {
    let name = &declared.name;
    let names: Vec<_> = missing.iter().filter_map(|index| index.get_str("name").ok()).collect();
    let what = match (absent, names.is_empty()) {
        (false, true) => return Ok(()),
        (true, true) => format!("collection {name} is missing"),
        (true, false) => format!("collection {name} is missing, with its indexes {}", names.join(", ")),
        (false, false) => format!("indexes {} of collection {name} are missing", names.join(", ")),
    };
    let instead = match is_own(name) {
        true => "start once with auto_init_schema and create_all_at_start on",
        false => "create them, or switch it on",
    };
    Err(StoreError::ReadOnly(format!("{what}, and auto_init_schema is off; {instead}")))
}

/// Creates the indexes in a single command, which creates all or none, and with them a collection that is absent.
async fn make(
    database: &Database,
    declared: &Collection,
    absent: bool,
    missing: Vec<Document>,
) -> Result<(), RecordError> {
    if missing.is_empty() {
        if !absent {
            return Ok(());
        }
        let command = doc! { "create": &declared.name, "writeConcern": { "w": "majority" } };
        return match run(database, command).await {
            Err(error) if code_of(&error) != Some(NAMESPACE_EXISTS) => Err(refused(declared, &missing, &error)),
            _ => Ok(()),
        };
    }
    let command =
        doc! { "createIndexes": &declared.name, "indexes": missing.clone(), "writeConcern": { "w": "majority" } };
    run(database, command).await.map_err(|error| refused(declared, &missing, &error))?;
    Ok(())
}

/// Runs a command that may be repeated. The driver does not repeat it by itself, and a first write waits for an election like any other.
async fn run(database: &Database, command: Document) -> mongodb::error::Result<Document> {
    let is_passing = |error: &Error| {
        passes(error) || matches!(&*error.kind, ErrorKind::Io(_) | ErrorKind::ConnectionPoolCleared { .. })
    };
    let mut tries = 0;
    loop {
        match database.run_command(command.clone()).await {
            Err(error) if tries < TRIES && is_passing(&error) => {
                tries += 1;
                sleep(PAUSE).await;
            }
            answer => return answer,
        }
    }
}

fn refused(declared: &Collection, missing: &[Document], error: &Error) -> RecordError {
    let message = message_of(error);
    let answer = error.server_response().and_then(|answer| Document::try_from(&**answer).ok()).unwrap_or_default();
    let pattern = answer.get_document("keyPattern").ok();
    let of_pattern = |index: &&Document| index.get_document("key").ok() == pattern;
    // If several are on the same fields, only the server's message names the index.
    let named =
        |index: &&Document| index.get_str("name").is_ok_and(|name| message.contains(&format!("index: {name} ")));
    let unique = |index: &&Document| index.get_bool("unique").unwrap_or(false);
    let index = missing.iter().filter(of_pattern).find(named);
    let index = index.or_else(|| missing.iter().find(of_pattern)).or_else(|| missing.iter().find(named));
    let index = index.or_else(|| missing.iter().find(unique));
    let name = index.and_then(|index| index.get_str("name").ok()).unwrap_or_default().to_owned();
    let collection = declared.name.clone();
    match code_of(error) {
        Some(DUPLICATE_KEY) => {
            let key = Box::new(answer.get_document("keyValue").cloned().unwrap_or_default());
            RecordError::DuplicateKey { collection, index: name, key, change: 0 }
        }
        Some(code) if CONFLICTS.contains(&code) => RecordError::IndexConflict { collection, index: name, message },
        // The error names no index: a collection has at most one text index, and other software created another.
        Some(67) if message.contains("only one text index") => {
            let text = missing.iter().find(|index| text::is_text(index));
            let index = text.and_then(|index| index.get_str("name").ok()).unwrap_or_default().to_owned();
            RecordError::IndexConflict { collection, index, message }
        }
        // A document with parallel arrays, or a declaration that the server refuses.
        Some(171) => Invalid::new(Code::InvalidRecord, "document", message).into(),
        Some(67 | 72 | 73 | 197) => Invalid::new(Code::InvalidCollection, "indexes", message).into(),
        _ => reading(error).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collections_that_users_or_other_software_know_do_not_wait_for_their_first_write() {
        for name in ["annals-leases", "annals-partner-deliveries", "annals-guarded", "annals-projections"] {
            assert!(is_own(name), "{name}");
        }
        for name in ["orders", "order_snapshot", "sagas", "dlq_messages", "events", "annals", "annals-projection-x-1"] {
            assert!(!is_own(name), "{name}");
        }
    }
}
