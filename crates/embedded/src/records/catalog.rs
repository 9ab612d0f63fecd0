//! The catalog: which collections and indexes exist.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use annals_core::order::Direction;
use annals_core::{Collection, Condition, Index, Invalid, Matcher, RecordError, StoreError, no_text_index};
use serde::{Deserialize, Serialize};

use super::keys;
use crate::engine::{Change, View};

/// All collections of a tenant.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Catalog {
    /// Incremented by each change of the catalog.
    version: u64,
    /// The highest number that was assigned to a collection or index.
    next_id: u32,
    collections: BTreeMap<String, KnownCollection>,
}

/// A collection and its indexes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct KnownCollection {
    pub(super) id: u32,
    pub(super) indexes: Vec<KnownIndex>,
    /// Whether its changes are recorded in a feed. Absent in catalogs of versions that kept one feed for all collections.
    #[serde(default)]
    pub(super) feed: bool,
}

/// An index, and what is known about its entries.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct KnownIndex {
    pub(super) id: u32,
    pub(super) index: Index,
    /// Whether a record ever had several entries. A range of entries may then contain a record twice, or contain it because of only one
    /// of its elements.
    pub(super) several_entries: bool,
    /// The partial condition, compiled.
    #[serde(skip)]
    pub(super) admits: Option<Matcher>,
    /// Whether the ids of records with equal entries are in descending order.
    #[serde(skip)]
    ids_descend: bool,
}

impl KnownIndex {
    /// Returns the paths and directions.
    pub(super) fn fields(&self) -> Vec<(&str, Direction)> {
        self.index.fields()
    }

    /// Returns whether the ids of records with equal entries are in descending order.
    pub(super) fn ids_descend(&self) -> bool {
        self.ids_descend
    }

    fn prepare(&mut self) {
        self.admits = self.index.partial().map(Matcher::new);
        self.ids_descend = self.fields().last().is_some_and(|(_, direction)| *direction == Direction::Descending);
    }
}

impl KnownCollection {
    pub(super) fn index(&self, name: &str) -> Option<&KnownIndex> {
        self.indexes.iter().find(|known| known.index.name() == name)
    }

    /// Returns the text index that a condition's text search uses, or `None` if the condition searches no text.
    ///
    /// # Errors
    /// `no_text_index`.
    pub(super) fn text_index(&self, condition: &Condition) -> Result<Option<&KnownIndex>, Invalid> {
        if condition.text_search().is_none() {
            return Ok(None);
        }
        self.indexes.iter().find(|known| known.index.as_text().is_some()).map(Some).ok_or_else(no_text_index)
    }

    /// Returns the matcher that evaluates documents against a condition.
    ///
    /// # Errors
    /// `no_text_index`.
    pub(super) fn matcher(&self, condition: &Condition) -> Result<Matcher, Invalid> {
        let index = self.text_index(condition)?.and_then(|known| known.index.as_text());
        Ok(index.map_or_else(|| Matcher::new(condition), |index| Matcher::by_text(condition, index)))
    }
}

/// Returns a declaration in the form in which the catalog stores it. A long in a partial condition becomes a JSON number and is read back
/// as a shorter type, so only declarations that were written and read compare as equal.
pub(super) fn as_stored(declared: Collection) -> Result<Collection, StoreError> {
    let failed = |error: serde_json::Error| StoreError::Failed(format!("the catalog: {error}"));
    let indexes = serde_json::to_vec(&declared.indexes).and_then(|bytes| serde_json::from_slice(&bytes));
    Ok(Collection { indexes: indexes.map_err(failed)?, ..declared })
}

impl Catalog {
    /// Loads the catalog from this view.
    pub(super) fn load(view: &(impl View + ?Sized)) -> Result<Self, StoreError> {
        let Some(bytes) = view.get(keys::CATALOG)? else { return Ok(Self::default()) };
        let mut catalog: Self = serde_json::from_slice(&bytes)
            .map_err(|error| StoreError::RecordsDamaged(format!("the catalog of records is damaged: {error}")))?;
        let indexes = catalog.collections.values_mut().flat_map(|collection| &mut collection.indexes);
        indexes.for_each(KnownIndex::prepare);
        Ok(catalog)
    }

    /// Stores a changed catalog under the next version.
    pub(super) fn store(&mut self, map: &mut Change) -> Result<(), StoreError> {
        self.version += 1;
        let bytes = serde_json::to_vec(self).map_err(|error| StoreError::Failed(format!("the catalog: {error}")))?;
        map.put(keys::CATALOG, &bytes);
        map.put(keys::CATALOG_VERSION, &self.version.to_be_bytes());
        Ok(())
    }

    /// Returns a declared collection.
    pub(super) fn collection(&self, name: &str) -> Result<&KnownCollection, RecordError> {
        self.collections.get(name).ok_or_else(|| RecordError::UnknownCollection(name.to_owned()))
    }

    /// Returns the number of a collection, or 0 if it is not declared.
    pub(super) fn id_of(&self, name: &str) -> u32 {
        self.collections.get(name).map_or(0, |collection| collection.id)
    }

    /// Returns the name of a collection.
    pub(super) fn name_of(&self, id: u32) -> Option<&str> {
        self.collections.iter().find(|(_, collection)| collection.id == id).map(|(name, _)| name.as_str())
    }

    /// Returns all collections with their names.
    pub(super) fn collections(&self) -> impl Iterator<Item = (&String, &KnownCollection)> {
        self.collections.iter()
    }

    /// Returns whether a declaration would change nothing.
    pub(super) fn has_all_of(&self, declared: &Collection) -> bool {
        let are_same = |a: Option<&Condition>, b: Option<&Condition>| match (a, b) {
            (Some(a), Some(b)) => a.is_same(b),
            (a, b) => a.is_none() && b.is_none(),
        };
        let is_known = |known: &KnownIndex, index: &Index| {
            known.index == *index && are_same(known.index.partial(), index.partial())
        };
        self.collections.get(&declared.name).is_some_and(|known| {
            (known.feed || !declared.feed)
                && declared.indexes.iter().all(|index| known.index(index.name()).is_some_and(|it| is_known(it, index)))
        })
    }

    /// Returns whether any index lets records expire.
    pub(super) fn expires(&self) -> bool {
        let mut indexes = self.collections.values().flat_map(|collection| &collection.indexes);
        indexes.any(|known| known.index.expires_after_seconds().is_some())
    }

    /// Returns the inconsistencies of the catalog, given the version stored beside it.
    pub(super) fn faults(&self, version: Option<&[u8]>) -> Vec<String> {
        let mut faults = Vec::new();
        let due = (self.version > 0).then(|| self.version.to_be_bytes());
        if version != due.as_ref().map(|due| &due[..]) {
            faults.push(format!(
                "the catalog of records has version {}, and a different version is stored beside it",
                self.version
            ));
        }
        let mut ids = std::collections::BTreeSet::new();
        for (name, collection) in &self.collections {
            let of_all = std::iter::once(collection.id).chain(collection.indexes.iter().map(|known| known.id));
            for id in of_all.filter(|id| !ids.insert(*id) || *id == 0 || *id > self.next_id) {
                faults.push(format!("collection {name}: the number {id} is assigned twice, or was never assigned"));
            }
        }
        faults
    }

    /// Adds a collection, unless it exists.
    pub(super) fn add_collection(&mut self, name: &str) {
        if !self.collections.contains_key(name) {
            let id = self.take_id();
            self.collections.insert(name.to_owned(), KnownCollection { id, indexes: Vec::new(), feed: false });
        }
    }

    /// Gives a collection a feed. Returns the number of the collection if it had none.
    pub(super) fn add_feed(&mut self, name: &str) -> Option<u32> {
        let collection = self.collections.get_mut(name).filter(|collection| !collection.feed)?;
        collection.feed = true;
        Some(collection.id)
    }

    /// Adds an index to an existing collection.
    pub(super) fn add_index(&mut self, name: &str, index: Index) -> KnownIndex {
        let mut known =
            KnownIndex { id: self.take_id(), index, several_entries: false, admits: None, ids_descend: false };
        known.prepare();
        if let Some(collection) = self.collections.get_mut(name) {
            collection.indexes.push(known.clone());
        }
        known
    }

    /// Records that some records have several entries in these indexes. Returns whether that changes the catalog.
    pub(super) fn note_several_entries(&mut self, indexes: &[u32]) -> bool {
        let known = self.collections.values_mut().flat_map(|collection| &mut collection.indexes);
        let mut news = false;
        for index in known.filter(|known| indexes.contains(&known.id)) {
            news |= !index.several_entries;
            index.several_entries = true;
        }
        news
    }

    fn take_id(&mut self) -> u32 {
        self.next_id += 1;
        self.next_id
    }
}

/// A cache of the catalogs that were read last, so that they are not decoded for each request.
#[derive(Default)]
pub(super) struct CatalogCache(Mutex<Vec<(u64, Arc<Catalog>)>>);

/// One for the durable state, and one for the current batch.
const KEPT: usize = 2;

impl CatalogCache {
    /// Returns the catalog of this view. A write that changes the catalog must not call this again, because its new version may still be
    /// undone.
    pub(super) fn of(&self, view: &(impl View + ?Sized)) -> Result<Arc<Catalog>, StoreError> {
        let version = match view.get(keys::CATALOG_VERSION)?.map(<[u8; 8]>::try_from) {
            None => return Ok(Arc::default()),
            Some(Ok(bytes)) => u64::from_be_bytes(bytes),
            Some(Err(_)) => {
                return Err(StoreError::RecordsDamaged("the catalog's version is damaged".to_owned()));
            }
        };
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, catalog)) = kept.iter().find(|(known, _)| *known == version) {
            return Ok(catalog.clone());
        }
        let catalog = Arc::new(Catalog::load(view)?);
        kept.push((version, catalog.clone()));
        if kept.len() > KEPT {
            kept.remove(0);
        }
        Ok(catalog)
    }
}
