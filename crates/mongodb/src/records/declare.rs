//! Declares collections: compares the declaration with what exists, and adds what is missing. Nothing is dropped.

use std::sync::Arc;

use annals_core::{Code, Collection, Index, Invalid, RecordError, index_path};
use mongodb::Database;

use super::catalog::{Catalog, Known};
use super::create::{Creator, conflict};
use super::document::OWN;
use super::physical::physical;
use super::{feed, filter};
use crate::layout::names;

/// Declares a collection, and returns the resulting catalog entry. If nothing may be created, everything declared must already exist.
pub(super) async fn declare(
    database: &Database,
    catalog: &Catalog,
    creator: &Creator,
    declared: &Collection,
) -> Result<Arc<Known>, RecordError> {
    refuse_own(declared)?;
    loop {
        if let Some(known) = attempt(database, catalog, creator, declared).await? {
            return Ok(known);
        }
    }
}

/// Makes one attempt. Returns `None` if the entry has changed since it was read.
async fn attempt(
    database: &Database,
    catalog: &Catalog,
    creator: &Creator,
    declared: &Collection,
) -> Result<Option<Arc<Known>>, RecordError> {
    let known = catalog.read(&declared.name).await?;
    if let Some(known) = &known {
        let whole = compare(declared, known)?.is_empty();
        match known.pending {
            false if whole => return Ok(Some(known.clone())),
            false => {}
            true if !creator.waits(declared) => {
                creator.complete(&declared.name).await?;
                return Ok(None);
            }
            true if whole => return Ok(Some(known.clone())),
            true => {
                for index in &declared.indexes {
                    physical(index)?;
                }
                catalog.add_pending(declared).await?;
                return Ok(None);
            }
        }
    }
    declared.one_text_index(known.iter().flat_map(|known| &known.indexes))?;
    let there = creator.look(declared).await?;
    let is_new = known.is_none() && !there.collection;
    let waits = is_new && creator.waits(declared);
    if !waits {
        creator.add(declared, &there).await?;
    }
    if is_new && declared.feed {
        feed::start(database, &declared.name).await?;
    }
    if !is_new || !catalog.add_new(declared, waits).await? {
        if waits {
            return Ok(None);
        }
        catalog.add(declared).await?;
    }
    // Another process may have declared a different index of the same name at the same time.
    let known = catalog.read(&declared.name).await?;
    let known = known.ok_or_else(|| RecordError::UnknownCollection(declared.name.clone()))?;
    compare(declared, &known)?;
    Ok(Some(known))
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
