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
//! - The catalog never says that something exists which an election could roll back. A command that creates something is acknowledged by a
//!   majority. What was found may be what another process has just created, so it counts only once a majority has it (`Creator::add`).
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

use annals_core::bson::{Bson, Document, doc};
use annals_core::{Code, Collection, Index, Invalid, RecordError, StoreError};
use annals_system::sleep;
use mongodb::Database;
use mongodb::error::{Error, ErrorKind};

use super::catalog::{Catalog, Known};
use super::feed::STATE;
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
        // Another writer of this process may have completed it while this one waited.
        let known = self.catalog.declared(name).await?;
        if !known.pending {
            return Ok(known);
        }
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

    /// Creates what is missing, or refuses it if nothing may be created. Afterwards, a majority has everything that is declared.
    pub(super) async fn add(&self, declared: &Collection, missing: Missing) -> Result<(), RecordError> {
        if self.made(declared, missing).await? {
            return Ok(());
        }
        // A look between two writes to the same primary has seen nothing that the second one does not confirm.
        loop {
            let election = self.settled().await?;
            let missing = self.missing(declared).await?;
            let made = self.made(declared, missing).await?;
            if made || self.settled().await? == election {
                return Ok(());
            }
        }
    }

    /// Creates what is missing, or refuses it. Returns whether a majority is known to have it.
    async fn made(&self, declared: &Collection, missing: Missing) -> Result<bool, RecordError> {
        if !self.creates {
            all_there(declared, missing.collection, &missing.indexes)?;
            return Ok(false);
        }
        make(&self.database, declared, missing).await
    }

    /// Waits until a majority has all that the primary has. Returns the election of the primary; `None` on a sharded cluster.
    async fn settled(&self) -> Result<Option<Bson>, StoreError> {
        let nothing = doc! { "q": { "_id": "settled" }, "u": { "$max": { "at": 0_i64 } } };
        let command = doc! { "update": STATE, "updates": [nothing], "writeConcern": { "w": "majority" } };
        let ran = run(&self.database, command).await.map_err(|error| reading(&error))?;
        Ok(ran.answer.get("electionId").cloned())
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
        Ok(Ran { answer, .. }) => {
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

/// Creates the indexes in a single command, which creates all or none, and with them a collection that is absent. Returns whether a
/// majority is known to have all: only if this command has created all of it. The server does not wait for what it finds.
async fn make(database: &Database, declared: &Collection, missing: Missing) -> Result<bool, RecordError> {
    let Missing { collection: absent, indexes: missing } = missing;
    let majority = doc! { "w": "majority" };
    let command = match (missing.is_empty(), absent) {
        (true, false) => return Ok(false),
        (true, true) => doc! { "create": &declared.name, "writeConcern": majority },
        (false, _) => doc! { "createIndexes": &declared.name, "indexes": missing.clone(), "writeConcern": majority },
    };
    match run(database, command).await {
        Ok(Ran { answer, once }) => {
            let with_collection = answer.get_bool("createdCollectionAutomatically").unwrap_or(false);
            Ok(once && (missing.is_empty() || with_collection))
        }
        Err(error) if code_of(&error) == Some(NAMESPACE_EXISTS) => Ok(false),
        Err(error) => Err(refused(declared, &missing, &error)),
    }
}

/// The answer to a command.
struct Ran {
    answer: Document,
    /// Whether the command was sent once.
    once: bool,
}

/// Runs a command that may be repeated. The driver does not repeat it by itself, and a first write waits for an election like any other.
async fn run(database: &Database, command: Document) -> mongodb::error::Result<Ran> {
    let is_passing = |error: &Error| {
        passes(error) || matches!(&*error.kind, ErrorKind::Io(_) | ErrorKind::ConnectionPoolCleared { .. })
    };
    let mut tries = 0;
    loop {
        let error = match database.run_command(command.clone()).await {
            Ok(answer) => {
                let Some(why) = answer.get("writeConcernError") else { return Ok(Ran { answer, once: tries == 0 }) };
                Error::custom(format!("no majority has confirmed it: {why}"))
            }
            Err(error) if is_passing(&error) => error,
            Err(error) => return Err(error),
        };
        if tries == TRIES {
            return Err(error);
        }
        tries += 1;
        sleep(PAUSE).await;
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
