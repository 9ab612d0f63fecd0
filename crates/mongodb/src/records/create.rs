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
//! - The catalog never says that something exists which an election could roll back, or whose creation could still fail. So an index that
//!   was found is not taken for granted: it is sent again with those that are missing (`Creator::add`).
//!
//! Each step may be repeated, also by several processes at once: a process that dies in between leaves the entry pending, and the next
//! writer completes it.
//!
//! All other collections are created when they are declared. These are the collections of users, of whose indexes only the server can tell
//! whether they are possible, and the layouts of other software, which expects the indexes from the start. A collection with a text index
//! is created too, because the server refuses a text search in a missing one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use annals_core::bson::Document;
use annals_core::{Code, Collection, Index, Invalid, RecordError, StoreError};
use mongodb::Database;
use mongodb::error::Error;

use super::catalog::Catalog;
use super::physical::{expiry, physical, same};
use super::text;
use crate::layout::creation::{self, CONFLICTS, DUPLICATE_KEY, NAMESPACE_EXISTS, send_again};
use crate::options::Options;
use crate::refused::{code_of, message_of, reading};

/// Beginning of the names of Annals' own collections, which nothing else declares or writes.
const OWN: &str = "annals-";
/// Beginning of the names of the builds of projections, whose indexes are of users.
const PROJECTIONS: &str = "annals-projection-";

/// The turns of writers, by collection.
type Turns = HashMap<String, Arc<tokio::sync::Mutex<()>>>;

/// What of a declaration exists.
pub(super) struct There {
    /// Whether the collection exists.
    pub(super) collection: bool,
    /// The indexes that exist, or that the server is building.
    found: Vec<Document>,
    missing: Vec<Document>,
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

    /// Creates the collection of a pending entry before a write to it, unless it exists by now.
    pub(super) async fn ready(&self, name: &str) -> Result<(), RecordError> {
        self.complete(name).await.map_err(of_write)
    }

    /// Creates the collection of a pending entry, unless it exists by now. Afterwards, the entry is no longer pending.
    pub(super) async fn complete(&self, name: &str) -> Result<(), RecordError> {
        let turn = self.turns().entry(name.to_owned()).or_default().clone();
        let _turn = turn.lock().await;
        // Another writer of this process may have completed it while this one waited.
        if !self.catalog.declared(name).await?.pending {
            return Ok(());
        }
        loop {
            let known = self.catalog.read(name).await?;
            let known = known.ok_or_else(|| RecordError::UnknownCollection(name.to_owned()))?;
            if !known.pending {
                self.turns().remove(name);
                return Ok(());
            }
            let there = self.look(&known).await?;
            self.add(&known, &there).await?;
            self.catalog.created(&known).await?;
        }
    }

    /// Returns what of a declaration exists.
    pub(super) async fn look(&self, declared: &Collection) -> Result<There, RecordError> {
        let there = listed(&self.database, &declared.name).await.map_err(|error| reading(&error))?;
        let (mut found, mut missing): (Vec<Document>, Vec<Document>) = (Vec::new(), Vec::new());
        for index in &declared.indexes {
            let Some(due) = physical(index)? else { continue };
            let of_name = |listed: &&Document| listed.get_str("name").is_ok_and(|name| name == index.name());
            let named = there.iter().flatten().find(of_name);
            if let Some(named) = named
                && (!same(named, &due) || expiry(named) != expiry(&due))
            {
                let message = format!(
                    "exists as {named}, but {due} is declared; declare it as it exists, or give the new one another name"
                );
                return Err(conflict(declared, index, message));
            }
            match named.or_else(|| there.iter().flatten().find(|listed| same(listed, &due))) {
                Some(listed) => {
                    let listed = as_listed(due, listed);
                    if !found.contains(&listed) {
                        found.push(listed);
                    }
                }
                None if missing.iter().any(|other| same(other, &due)) => {}
                None => missing.push(due),
            }
        }
        Ok(There { collection: there.is_some(), found, missing })
    }

    /// Creates what is missing, or refuses it if nothing may be created. Afterwards, a majority has everything that is declared.
    ///
    /// Existing indexes are sent too (`layout/creation.rs`).
    pub(super) async fn add(&self, declared: &Collection, there: &There) -> Result<(), RecordError> {
        if !self.creates {
            return all_there(declared, there).map_err(RecordError::from);
        }
        let indexes: Vec<Document> = there.missing.iter().chain(&there.found).cloned().collect();
        let command = match (indexes.is_empty(), there.collection) {
            (true, true) => return Ok(()),
            (true, false) => creation::create(&declared.name),
            (false, _) => creation::create_indexes(&declared.name, indexes),
        };
        match send_again(&self.database, command).await {
            Err(error) if code_of(&error) != Some(NAMESPACE_EXISTS) => Err(refused(declared, &there.missing, &error)),
            _ => Ok(()),
        }
    }
}

/// Returns an index under the name that it has, and with its expiry: an index that is declared may differ from an existing one in these.
fn as_listed(mut due: Document, listed: &Document) -> Document {
    for option in ["name", "expireAfterSeconds"] {
        match listed.get(option) {
            Some(value) => drop(due.insert(option, value.clone())),
            None => drop(due.remove(option)),
        }
    }
    due
}

/// Converts the refusal of an index into that of the write that needs it. Whoever writes would take `duplicate_key` for an answer about its
/// own record, and might go on as if that existed.
fn of_write(error: RecordError) -> RecordError {
    match error {
        RecordError::DuplicateKey { collection, index, key, .. } => {
            let message = format!(
                "cannot be created, because other software wrote documents with the same {key}; delete all but one of them"
            );
            RecordError::IndexConflict { collection, index, message }
        }
        other => other,
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
    creation::listed(send_again(database, creation::list_indexes(collection)).await)
}

/// Refuses a declaration that would have to create something, and names what is missing.
fn all_there(declared: &Collection, there: &There) -> Result<(), StoreError> {
    let name = &declared.name;
    let names: Vec<_> = there.missing.iter().filter_map(|index| index.get_str("name").ok()).collect();
    let what = match (there.collection, names.is_empty()) {
        (true, true) => return Ok(()),
        (false, true) => format!("collection {name} is missing"),
        (false, false) => format!("collection {name} is missing, with its indexes {}", names.join(", ")),
        (true, false) => format!("indexes {} of collection {name} are missing", names.join(", ")),
    };
    let instead = match is_own(name) {
        true => "start once with auto_init_schema and create_all_at_start on",
        false => "create them, or switch it on",
    };
    Err(StoreError::ReadOnly(format!("{what}, and auto_init_schema is off; {instead}")))
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
    use annals_core::bson::doc;

    use super::*;

    #[test]
    fn an_existing_index_is_sent_as_it_is_called_and_not_as_it_is_declared() {
        let due = || doc! { "key": { "n": 1 }, "name": "declared", "unique": true, "expireAfterSeconds": 60 };
        let listed = doc! { "v": 2, "key": { "n": 1 }, "name": "n_1", "unique": true };
        assert_eq!(as_listed(due(), &listed), doc! { "key": { "n": 1 }, "name": "n_1", "unique": true });
        let listed = doc! { "v": 2, "key": { "n": 1 }, "name": "n_1", "expireAfterSeconds": 5 };
        assert_eq!(expiry(&as_listed(due(), &listed)), Some(5));
    }

    #[test]
    fn a_write_that_needs_an_index_which_documents_break_is_not_refused_as_a_duplicate_of_its_own_record() {
        let key = Box::new(doc! { "n": 7 });
        let (collection, index) = ("annals-things".to_owned(), "n_1".to_owned());
        let refused = of_write(RecordError::DuplicateKey { collection, index, key, change: 0 });
        assert_eq!(refused.code(), Code::IndexConflict);
        for part in ["annals-things", "n_1", "\"n\": 7"] {
            assert!(refused.to_string().contains(part), "{part} in {refused}");
        }
    }

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
