//! Records in memory, as simple as possible: every query reads everything.

use std::collections::{BTreeMap, BTreeSet};

use annals_core::bson::raw::{RawDocument, RawDocumentBuf};
use annals_core::bson::{Bson, RawBson, RawBsonRef};
use annals_core::order::{self, Direction, document_keys};
use annals_core::{
    ChangeKind, ChangeNumber, ChangesError, Code, Collection, Condition, Expected, GroupPage, GroupQuery, Index,
    Invalid, Matcher, Record, RecordChange, RecordError, RecordQuery, RecordedChange, Revision, SortBy, no_text_index,
    text_entries, with_fields,
};

use super::groups;

/// Records in memory with the required behaviour. The number of each change is the revision that it made.
#[derive(Debug, Default, Clone)]
pub struct RecordsModel {
    collections: BTreeMap<String, Kept>,
    revision: Revision,
}

#[derive(Debug, Default, Clone)]
struct Kept {
    indexes: Vec<Index>,
    /// Its changes; `None` if it has no feed.
    feed: Option<Vec<RecordedChange>>,
    /// The records, by the encoding of the id.
    records: BTreeMap<Vec<u8>, Record>,
}

impl RecordsModel {
    /// Returns all changes of a collection, in order.
    ///
    /// # Errors
    /// Those of the port.
    pub fn changes(&self, collection: &str) -> Result<&[RecordedChange], ChangesError> {
        let unknown = || ChangesError::UnknownCollection(collection.to_owned());
        let kept = self.collections.get(collection).ok_or_else(unknown)?;
        kept.feed.as_deref().ok_or_else(|| ChangesError::NoFeed(collection.to_owned()))
    }

    /// Returns the number of a collection's newest change.
    ///
    /// # Errors
    /// Those of the port.
    pub fn last_change(&self, collection: &str) -> Result<ChangeNumber, ChangesError> {
        Ok(self.changes(collection)?.last().map_or(0, |last| last.number))
    }

    /// Returns how many changes there were.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Declares a collection.
    ///
    /// # Errors
    /// Those of the port.
    pub fn declare(&mut self, declared: &Collection) -> Result<(), RecordError> {
        declared.validate()?;
        let mut kept = self.collections.get(&declared.name).cloned().unwrap_or_default();
        declared.one_text_index(&kept.indexes)?;
        for index in &declared.indexes {
            match kept.indexes.iter().find(|known| known.name() == index.name()) {
                Some(known) if known == index => {}
                Some(_) => {
                    let (collection, index) = (declared.name.clone(), index.name().to_owned());
                    return Err(RecordError::IndexConflict { collection, index, message: String::new() });
                }
                None => {
                    kept.indexes.push(index.clone());
                    for (id, record) in &kept.records {
                        kept.check_unique(&declared.name, index, id, &record.document, 0)?;
                    }
                }
            }
        }
        if declared.feed {
            kept.feed.get_or_insert_default();
        }
        self.collections.insert(declared.name.clone(), kept);
        Ok(())
    }

    /// Returns the declared collections, in the order of their names.
    pub fn collections(&self) -> Vec<Collection> {
        let declared = |(name, kept): (&String, &Kept)| Collection {
            name: name.clone(),
            indexes: kept.indexes.clone(),
            feed: kept.feed.is_some(),
        };
        self.collections.iter().map(declared).collect()
    }

    /// Applies all changes or none.
    ///
    /// # Errors
    /// Those of the port.
    pub fn write(&mut self, changes: &[RecordChange]) -> Result<Vec<Revision>, RecordError> {
        let mut next = self.clone();
        for (n, change) in changes.iter().enumerate() {
            change.validate().map_err(|error| Invalid { path: format!("changes[{n}].{}", error.path), ..error })?;
        }
        let numbers = changes.iter().enumerate().map(|(n, change)| next.apply(n, change)).collect::<Result<_, _>>()?;
        *self = next;
        Ok(numbers)
    }

    fn apply(&mut self, n: usize, change: &RecordChange) -> Result<Revision, RecordError> {
        let name = change.collection().to_owned();
        let number = self.revision + 1;
        let kept = self.collections.get_mut(&name).ok_or_else(|| RecordError::UnknownCollection(name.clone()))?;
        let (id, what) = match change {
            RecordChange::Insert { document, .. } => {
                let id = id_of(document);
                if kept.records.contains_key(&encoded(&id)) {
                    let key = Box::new([("_id".to_owned(), id)].into_iter().collect());
                    return Err(RecordError::DuplicateKey { collection: name, index: "_id_".into(), key, change: n });
                }
                kept.put(&name, n, number, document)?;
                (id, ChangeKind::Inserted)
            }
            RecordChange::Replace { document, expected, .. } => {
                let id = id_of(document);
                let there = kept.records.get(&encoded(&id));
                check(&name, n, &id, there, expected)?;
                let what = if there.is_some() { ChangeKind::Replaced } else { ChangeKind::Inserted };
                kept.put(&name, n, number, document)?;
                (id, what)
            }
            RecordChange::Delete { id, expected, .. } => {
                check(&name, n, id, kept.records.get(&encoded(id)), expected)?;
                match kept.records.remove(&encoded(id)) {
                    Some(record) => (id_of(&record.document), ChangeKind::Deleted),
                    None => return Ok(0),
                }
            }
            RecordChange::Set { id, fields, unset, expected, .. } => {
                let there = kept.records.get(&encoded(id));
                check(&name, n, id, there, expected)?;
                let what = if there.is_some() { ChangeKind::Replaced } else { ChangeKind::Inserted };
                let new = || RawDocumentBuf::try_from(&annals_core::bson::doc! { "_id": id.clone() }).expect("an id");
                let document = there.map_or_else(new, |record| record.document.clone());
                let document = with_fields(&document, fields, unset);
                let document = document.map_err(|error| error.inside(&format!("changes[{n}]")))?;
                kept.put(&name, n, number, &document)?;
                (id_of(&document), what)
            }
            RecordChange::Check { id, expected, .. } => {
                let there = kept.records.get(&encoded(id));
                check(&name, n, id, there, expected)?;
                return Ok(there.map_or(0, |record| record.revision));
            }
        };
        self.revision = number;
        if let Some(feed) = &mut kept.feed {
            feed.push(RecordedChange { number, collection: name, id, what });
        }
        Ok(number)
    }

    /// Returns the record with this id.
    ///
    /// # Errors
    /// Those of the port.
    pub fn get(&self, collection: &str, id: &Bson) -> Result<Option<Record>, RecordError> {
        Ok(self.kept(collection)?.records.get(&encoded(id)).cloned())
    }

    /// Returns every record that a query matches, in order. Its limit and cursor are ignored.
    ///
    /// # Errors
    /// Those of the port.
    pub fn find(&self, query: &RecordQuery) -> Result<Vec<Record>, RecordError> {
        let found = self.placed(query)?;
        let wanted =
            |record: &Record| Record { document: query.projection.of(&record.document), revision: record.revision };
        Ok(found.into_iter().map(|(_, record)| wanted(record)).collect())
    }

    /// Does the same, and returns the records' places in the order and all their fields.
    pub(super) fn placed(&self, query: &RecordQuery) -> Result<Vec<(Place, &Record)>, RecordError> {
        query.validate()?;
        query.condition.without_text_search().judgeable()?;
        let kept = self.kept(&query.collection)?;
        let matcher = kept.matcher(&query.condition)?;
        let mut found = Vec::new();
        for (id, record) in kept.records.iter().filter(|(_, record)| matcher.matches(&record.document)) {
            found.push((place(&query.sort, &record.document, id)?, record));
        }
        found.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(found)
    }

    /// Returns the indexes that make records expire, with their collections.
    #[cfg(test)]
    pub(super) fn expiring(&self) -> Vec<(String, Index)> {
        let indexes =
            self.collections.iter().flat_map(|(name, kept)| kept.indexes.iter().map(move |index| (name, index)));
        let expiring = indexes.filter(|(_, index)| index.expires_after_seconds().is_some());
        expiring.map(|(name, index)| (name.clone(), index.clone())).collect()
    }

    /// Returns how many records a condition matches.
    ///
    /// # Errors
    /// Those of the port.
    pub fn count(&self, collection: &str, condition: &Condition) -> Result<u64, RecordError> {
        condition.validate()?;
        condition.without_text_search().judgeable()?;
        let kept = self.kept(collection)?;
        let matcher = kept.matcher(condition)?;
        Ok(kept.records.values().filter(|record| matcher.matches(&record.document)).count() as u64)
    }

    /// Returns a page of groups.
    ///
    /// # Errors
    /// Those of the port.
    pub fn group(&self, query: &GroupQuery) -> Result<GroupPage, RecordError> {
        query.validate()?;
        let after = query.after_key()?;
        let records = self.find(&RecordQuery::new(&*query.collection).matching(query.condition.clone()))?;
        let mut groups = groups::of(query, &records);
        if let Some(after) = after {
            let behind = order::encoded(RawBson::try_from(after).expect("a key").as_raw_bson_ref());
            groups.retain(|key, _| *key > behind);
        }
        let mut page = GroupPage::default();
        for (_, group) in groups {
            if page.groups.len() == query.limit {
                page.next = page.groups.last().map(|last| query.cursor_after(&last.key));
                break;
            }
            page.groups.push(group?);
        }
        Ok(page)
    }

    fn kept(&self, collection: &str) -> Result<&Kept, RecordError> {
        self.collections.get(collection).ok_or_else(|| RecordError::UnknownCollection(collection.to_owned()))
    }
}

impl Kept {
    fn matcher(&self, condition: &Condition) -> Result<Matcher, Invalid> {
        let index = self.indexes.iter().find_map(Index::as_text);
        match (condition.text_search(), index) {
            (None, _) => Ok(Matcher::new(condition)),
            (Some(_), Some(index)) => Ok(Matcher::by_text(condition, index)),
            (Some(_), None) => Err(no_text_index()),
        }
    }

    fn put(&mut self, name: &str, n: usize, number: Revision, document: &RawDocumentBuf) -> Result<(), RecordError> {
        let id = encoded(&id_of(document));
        for index in &self.indexes {
            entries(index, document)?;
            self.check_unique(name, index, &id, document, n)?;
        }
        self.records.insert(id, Record { document: document.clone(), revision: number });
        Ok(())
    }

    fn check_unique(
        &self,
        name: &str,
        index: &Index,
        id: &[u8],
        document: &RawDocument,
        n: usize,
    ) -> Result<(), RecordError> {
        let own = entries(index, document)?;
        if !index.is_unique() {
            return Ok(());
        }
        for (other, record) in &self.records {
            let taken = entries(index, &record.document)?;
            if let Some(entry) = own.intersection(&taken).next().filter(|_| other != id) {
                let key = Box::new(index.readable_entry(document, entry));
                let (collection, index) = (name.to_owned(), index.name().to_owned());
                return Err(RecordError::DuplicateKey { collection, index, key, change: n });
            }
        }
        Ok(())
    }
}

/// Returns whether two refusals are the same, apart from their wording.
pub fn same_refusal(a: &RecordError, b: &RecordError) -> bool {
    let facts = |error: &RecordError| match error {
        RecordError::NotAsExpected { collection, change, actual, .. } => (collection.clone(), *change, *actual),
        RecordError::DuplicateKey { collection, index, change, .. } => (format!("{collection}/{index}"), *change, None),
        RecordError::IndexConflict { collection, index, .. } => (format!("{collection}/{index}"), 0, None),
        RecordError::UnknownCollection(collection) => (collection.clone(), 0, None),
        _ => (String::new(), 0, None),
    };
    a.code() == b.code() && facts(a) == facts(b)
}

fn check(
    collection: &str,
    n: usize,
    id: &Bson,
    there: Option<&Record>,
    expected: &Expected,
) -> Result<(), RecordError> {
    let holds = |condition, record: &Record| Matcher::new(condition).matches(&record.document);
    let as_expected = match (expected, there) {
        (Expected::Present, there) => there.is_some(),
        (Expected::Absent, there) => there.is_none(),
        (Expected::Revision(revision), there) => there.is_some_and(|record| record.revision == *revision),
        (Expected::Matching(condition), there) => there.is_some_and(|record| holds(condition, record)),
        (Expected::AbsentOr(condition), there) => there.is_none_or(|record| holds(condition, record)),
    };
    if as_expected {
        return Ok(());
    }
    let actual = there.map(|record| record.revision);
    Err(RecordError::NotAsExpected { collection: collection.to_owned(), id: id.to_string(), change: n, actual })
}

fn entries(index: &Index, document: &RawDocument) -> Result<BTreeSet<Vec<u8>>, Invalid> {
    if index.partial().is_some_and(|partial| !Matcher::new(partial).matches(document)) {
        return Ok(BTreeSet::new());
    }
    if let Some(words) = index.as_text() {
        return text_entries(words, document);
    }
    let fields = index.fields();
    let (keys, missing) = document_keys(document, &fields)
        .map_err(|error| Invalid::new(Code::InvalidRecord, "document", error.to_string()))?;
    if index.is_sparse() && missing == fields.len() {
        return Ok(BTreeSet::new());
    }
    Ok(keys.into_iter().collect())
}

/// The keys by which a record is sorted, and its id.
pub(super) type Place = (Vec<u8>, Vec<u8>);

fn place(sort: &[SortBy], document: &RawDocument, id: &[u8]) -> Result<Place, Invalid> {
    let fields: Vec<_> = sort.iter().map(|by| (by.path.as_str(), by.direction)).collect();
    let (keys, _) = document_keys(document, &fields)
        .map_err(|error| Invalid::new(Code::InvalidQuery, "sort", error.to_string()))?;
    let mut id = id.to_vec();
    if sort.last().is_some_and(|by| by.direction == Direction::Descending) {
        order::invert(&mut id);
    }
    Ok((keys.into_iter().min().unwrap_or_default(), id))
}

fn id_of(document: &RawDocument) -> Bson {
    let id = document.get("_id").ok().flatten().unwrap_or(RawBsonRef::Null);
    Bson::try_from(id).expect("the id can be read")
}

fn encoded(id: &Bson) -> Vec<u8> {
    order::encoded(RawBson::try_from(id.clone()).expect("an id can be stored").as_raw_bson_ref())
}
