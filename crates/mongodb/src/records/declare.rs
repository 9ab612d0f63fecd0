//! Declares collections: compares the declaration with what exists, and creates what is missing. Nothing is dropped.
//!
//! Some declared indexes are not created, because the server cannot have them and answers are the same without. These are another index on
//! `_id`, and an index that differs from another only in its name. A partial condition is omitted if it merely limits what a non-unique
//! index contains.

use std::sync::Arc;

use annals_core::bson::{Bson, Document, doc};
use annals_core::order::Direction;
use annals_core::{Code, Collection, Condition, Index, Invalid, RecordError, StoreError, Test, index_path};
use mongodb::Database;

use super::catalog::{Catalog, Known};
use super::document::OWN;
use super::{feed, filter, text};
use crate::layout::names;
use crate::refused::{code_of, message_of, reading};

const NAMESPACE_NOT_FOUND: i32 = 26;
const NAMESPACE_EXISTS: i32 = 48;
const DUPLICATE_KEY: i32 = 11000;
const CONFLICTS: [i32; 2] = [85, 86];

/// Declares a collection, and returns the resulting catalog entry. With `create` off, everything declared must already exist.
pub(super) async fn declare(
    database: &Database,
    catalog: &Catalog,
    declared: &Collection,
    create: bool,
) -> Result<Arc<Known>, RecordError> {
    refuse_own(declared)?;
    let known = catalog.read(&declared.name).await?;
    if let Some(known) = &known
        && compare(declared, known)?.is_empty()
    {
        return Ok(known.clone());
    }
    declared.one_text_index(known.iter().flat_map(|known| &known.indexes))?;
    let there = listed(database, &declared.name).await.map_err(|error| reading(&error))?;
    let mut missing: Vec<Document> = Vec::new();
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
        } else if !there.iter().flatten().chain(&missing).any(|found| same(found, &due)) {
            missing.push(due);
        }
    }
    match create {
        true => make(database, declared, there.is_none(), missing).await?,
        false => all_there(declared, there.is_none(), &missing)?,
    }
    let is_new = known.is_none() && there.is_none();
    if is_new && declared.feed {
        feed::start(database, &declared.name).await?;
    }
    if !is_new || !catalog.add_new(declared).await? {
        catalog.add(declared).await?;
    }
    // Another process may have declared a different index of the same name at the same time.
    let known = catalog.read(&declared.name).await?;
    let known = known.ok_or_else(|| RecordError::UnknownCollection(declared.name.clone()))?;
    compare(declared, &known)?;
    Ok(known)
}

/// Returns the indexes that are new, and refuses those that differ from a known one of the same name.
fn compare<'a>(declared: &'a Collection, known: &Collection) -> Result<Vec<&'a Index>, RecordError> {
    let mut new = Vec::new();
    for index in &declared.indexes {
        match known.indexes.iter().find(|known| known.name() == index.name()) {
            Some(known) if known == index => {}
            Some(known) => {
                let message = format!(
                    "is already declared as {known:?}, and now as {index:?}; declare it as it exists, or give the new one another name"
                );
                return Err(conflict(declared, index, message));
            }
            None => new.push(index),
        }
    }
    Ok(new)
}

fn conflict(collection: &Collection, index: &Index, message: String) -> RecordError {
    RecordError::IndexConflict { collection: collection.name.clone(), index: index.name().to_owned(), message }
}

/// Refuses collections that this store writes itself, and indexes on our own field.
fn refuse_own(declared: &Collection) -> Result<(), Invalid> {
    const OWNED: [&str; 16] = [
        names::EVENT_LOG,
        names::EVENT_LOG_METADATA,
        names::AGGREGATES,
        names::ENTRIES,
        names::HELD,
        names::COLLECTIONS,
        names::SEQUENCER,
        names::IDENTITY,
        names::OWNER,
        names::BLOCKS,
        names::STREAMS,
        crate::layout::mapping::NAMES,
        feed::NOTES,
        feed::STATE,
        super::catalog::CATALOG,
        super::expiry::EXPIRIES,
    ];
    let invalid = |path: String, message: &str| Err(Invalid::new(Code::InvalidCollection, path, message.to_owned()));
    let name = &*declared.name;
    if let Some(why) = names::unfit(name) {
        return invalid("name".to_owned(), &format!("{name:?} {why}; use another name"));
    }
    if OWNED.contains(&name) || names::aggregate_of(name).is_some() {
        return invalid("name".to_owned(), &format!("{name:?} is a collection of the store's own; use another name"));
    }
    for (n, index) in declared.indexes.iter().enumerate() {
        let ours = |path: &str| filter::visible(path) != path;
        if index.fields().iter().any(|(path, _)| ours(path)) {
            return invalid(index_path(n), &format!("is on {OWN:?}, which a store on MongoDB reserves"));
        }
    }
    Ok(())
}

/// Returns the index as the server creates it; `None` if it is not created.
pub(super) fn physical(index: &Index) -> Result<Option<Document>, RecordError> {
    let fields = index.fields();
    let key: Document = match index {
        Index::Text(index) => return Ok(Some(text::physical(index))),
        Index::Hashed(index) => doc! { &index.path: "hashed" },
        Index::Ordered(_) if matches!(fields.as_slice(), [("_id", _)]) => return Ok(None),
        Index::Ordered(_) => {
            let way = |way| if way == Direction::Descending { -1_i32 } else { 1 };
            fields.iter().map(|(path, direction)| ((*path).to_owned(), way(*direction).into())).collect()
        }
    };
    let mut due = doc! { "key": key, "name": index.name() };
    if index.is_unique() {
        due.insert("unique", true);
    }
    let partial = match index.partial() {
        None => None,
        Some(condition) if is_bound(condition) => filter::compile(condition),
        Some(_) if index.is_unique() => {
            let what = format!(
                "index {:?}: a unique index that is partial with tests other than EQ, GT, GTE, LT, LTE, IN, BETWEEN, EXISTS",
                index.name()
            );
            return Err(StoreError::NotSupported(what).into());
        }
        Some(_) => None,
    };
    match (index.is_sparse(), partial) {
        (true, None) => {
            due.insert("sparse", true);
        }
        (true, Some(partial)) => {
            // The server does not allow both options together.
            let any: Vec<Bson> = fields.iter().map(|(path, _)| doc! { *path: { "$exists": true } }.into()).collect();
            due.insert("partialFilterExpression", doc! { "$and": [partial, { "$or": any }] });
        }
        (false, Some(partial)) => {
            due.insert("partialFilterExpression", partial);
        }
        (false, None) => {}
    }
    if let Some(seconds) = index.expires_after_seconds().and_then(|seconds| i32::try_from(seconds).ok()) {
        due.insert("expireAfterSeconds", seconds);
    }
    Ok(Some(due))
}

/// Returns whether the server accepts the condition for a partial index.
fn is_bound(condition: &Condition) -> bool {
    match condition {
        Condition::All => true,
        Condition::And(children) | Condition::Or(children) => children.iter().all(is_bound),
        Condition::Field { test, .. } => matches!(
            test,
            Test::Eq(_)
                | Test::Gt(_)
                | Test::Gte(_)
                | Test::Lt(_)
                | Test::Lte(_)
                | Test::In(_)
                | Test::Between(..)
                | Test::Exists(true)
        ),
        _ => false,
    }
}

/// Returns whether two indexes are the same to the server, apart from their names and expiry.
fn same(found: &Document, due: &Document) -> bool {
    if text::is_text(due) {
        return text::same(found, due);
    }
    let flag = |index: &Document, name| index.get_bool(name).unwrap_or(false);
    let kind = |value: &Bson| match value {
        Bson::Int32(n) => Some(Bson::Int64(i64::from(*n))),
        Bson::Int64(n) => Some(Bson::Int64(*n)),
        Bson::Double(n) => Some(Bson::Int64(*n as i64)),
        Bson::String(kind) if kind == "hashed" => Some(value.clone()),
        _ => None,
    };
    let keys = |index: &Document| -> Option<Vec<(String, Bson)>> {
        index.get_document("key").ok()?.iter().map(|(path, way)| Some((path.clone(), kind(way)?))).collect()
    };
    keys(found).is_some()
        && keys(found) == keys(due)
        && flag(found, "unique") == flag(due, "unique")
        && flag(found, "sparse") == flag(due, "sparse")
        && found.get("collation").is_none()
        && found.get_document("partialFilterExpression").ok() == due.get_document("partialFilterExpression").ok()
}

fn expiry(index: &Document) -> Option<i64> {
    match index.get("expireAfterSeconds")? {
        Bson::Int32(seconds) => Some((*seconds).into()),
        Bson::Int64(seconds) => Some(*seconds),
        Bson::Double(seconds) => Some(*seconds as i64),
        _ => None,
    }
}

/// Lists the existing indexes; `None` if the collection does not exist.
async fn listed(database: &Database, collection: &str) -> mongodb::error::Result<Option<Vec<Document>>> {
    match database.run_command(doc! { "listIndexes": collection, "cursor": { "batchSize": 200 } }).await {
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
    Err(StoreError::ReadOnly(format!("{what}, and auto_init_schema is off; create them, or switch it on")))
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
        return match database.create_collection(&declared.name).await {
            Err(error) if code_of(&error) != Some(NAMESPACE_EXISTS) => Err(refused(declared, &missing, &error)),
            _ => Ok(()),
        };
    }
    let command =
        doc! { "createIndexes": &declared.name, "indexes": missing.clone(), "writeConcern": { "w": "majority" } };
    database.run_command(command).await.map_err(|error| refused(declared, &missing, &error))?;
    Ok(())
}

fn refused(declared: &Collection, missing: &[Document], error: &mongodb::error::Error) -> RecordError {
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
