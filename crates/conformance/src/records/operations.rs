//! Random operations on records, to compare a backend with the model.

use std::sync::Arc;

use annals_core::bson::{Bson, Document, RawDocumentBuf, doc};
use annals_core::order::Direction;
use annals_core::{
    Aggregation, Collection, Condition, Every, Expected, Fragment, GroupQuery, Index, Projection, Record, RecordChange,
    RecordError, RecordQuery, Records, Revision, SortBy, limits,
};

use super::groups;
use super::model::{RecordsModel, same_refusal};

/// Generates random operations, from so few values that they often interact.
pub struct RecordOperations {
    random: fastrand::Rng,
}

/// One operation.
#[derive(Debug, Clone)]
#[allow(clippy::large_enum_variant, reason = "a few of them at a time, in tests")]
pub enum RecordOperation {
    /// Declares a collection.
    Declare(Collection),
    /// Applies changes.
    Write(Vec<RecordChange>),
    /// Reads one record.
    Get(String, Bson),
    /// Finds records, page by page to the end, and counts them.
    Find(Box<RecordQuery>),
    /// Groups records, page by page to the end.
    Group(Box<GroupQuery>),
}

/// The collections of the operations.
const COLLECTIONS: [&str; 2] = ["things", "others"];

impl RecordOperation {
    /// Sends the operation to the records under test, and compares the answer with the model's.
    ///
    /// # Errors
    /// The answer that differs from the model's.
    pub async fn check(&self, records: &Arc<dyn Records>, model: &mut RecordsModel) -> Result<(), String> {
        match self {
            Self::Declare(collection) => {
                self.same(records.declare(collection.clone()).await, model.declare(collection))
            }
            Self::Write(changes) => {
                let answer: Result<Vec<Revision>, _> = records.write(changes.clone()).await;
                self.same(answer, model.write(changes))
            }
            Self::Get(collection, id) => self.same(records.get(collection, id).await, model.get(collection, id)),
            Self::Find(query) => {
                self.same(pages(records, RecordQuery::clone(query)).await, model.find(query))?;
                let counted = records.count(&query.collection, &query.condition).await;
                self.same(counted, model.count(&query.collection, &query.condition))
            }
            Self::Group(query) => {
                let (mut query, whole) = (query.clone(), GroupQuery { limit: limits::PAGE_MAX, ..*query.clone() });
                let mut all = Vec::new();
                let answer = loop {
                    match records.group(GroupQuery::clone(&query)).await {
                        Ok(page) => {
                            all.extend(page.groups);
                            match page.next {
                                Some(next) => query.after = Some(next),
                                None => break Ok(groups::comparable(&all)),
                            }
                        }
                        Err(error) => break Err(error),
                    }
                };
                self.same(answer, model.group(&whole).map(|page| groups::comparable(&page.groups)))
            }
        }
    }

    fn same<T: PartialEq + std::fmt::Debug>(
        &self,
        answer: Result<T, RecordError>,
        due: Result<T, RecordError>,
    ) -> Result<(), String> {
        let same = match (&answer, &due) {
            (Ok(answer), Ok(due)) => answer == due,
            (Err(answer), Err(due)) => same_refusal(answer, due),
            _ => false,
        };
        let message = || format!("{self:?} was answered {answer:?}, not {due:?}").chars().take(6_000).collect();
        if same { Ok(()) } else { Err(message()) }
    }
}

async fn pages(records: &Arc<dyn Records>, mut query: RecordQuery) -> Result<Vec<Record>, RecordError> {
    let mut all = Vec::new();
    loop {
        let page = records.find(query.clone()).await?;
        all.extend(page.records);
        match page.next {
            None => return Ok(all),
            Some(next) => query.after = Some(next),
        }
    }
}

impl RecordOperations {
    /// Returns the operations that follow from `seed`.
    pub fn new(seed: u64) -> Self {
        Self { random: fastrand::Rng::with_seed(seed) }
    }

    /// Returns the next operation. The model provides the existing records, so that some changes name their revisions.
    pub fn next_operation(&mut self, model: &RecordsModel) -> RecordOperation {
        let collection = COLLECTIONS[self.random.usize(0..2)];
        match self.random.u8(0..20) {
            0 | 1 => RecordOperation::Declare(self.any_collection(collection)),
            2..13 => {
                let count = if self.random.bool() { 1 } else { self.random.usize(1..8) };
                let changes = (0..count).map(|_| self.change_of_what_is_there(collection, model)).collect();
                RecordOperation::Write(changes)
            }
            13 | 14 => RecordOperation::Get(collection.to_owned(), self.any_id()),
            15 => RecordOperation::Group(Box::new(self.any_group(collection))),
            _ => RecordOperation::Find(Box::new(self.any_query(collection))),
        }
    }

    fn change_of_what_is_there(&mut self, collection: &str, model: &RecordsModel) -> RecordChange {
        let mut change = self.any_change(collection);
        if self.random.u8(0..3) == 0 {
            let id = match &change {
                RecordChange::Insert { document, .. } | RecordChange::Replace { document, .. } => document.get("_id"),
                RecordChange::Delete { .. } | RecordChange::Set { .. } | RecordChange::Check { .. } => Ok(None),
            };
            let id = id.ok().flatten().and_then(|id| Bson::try_from(id).ok()).unwrap_or_else(|| self.any_id());
            let there = model.get(collection, &id).ok().flatten();
            let revision = there.map_or(1, |record| record.revision);
            let wrong = u64::from(self.random.u8(0..4) == 0);
            if let RecordChange::Replace { expected, .. }
            | RecordChange::Delete { expected, .. }
            | RecordChange::Set { expected, .. }
            | RecordChange::Check { expected, .. } = &mut change
            {
                *expected = Expected::Revision(revision - wrong.min(revision));
            }
        }
        change
    }

    /// Returns a change of a record of this collection.
    pub fn any_change(&mut self, collection: &str) -> RecordChange {
        let document = self.any_document();
        match self.random.u8(0..15) {
            0..3 => RecordChange::insert(collection, document),
            3..6 => RecordChange::put(collection, document),
            6 | 7 => RecordChange::replace_if(collection, document, self.any_expected()),
            8 | 9 => RecordChange::delete_if(collection, self.any_id(), self.any_expected()),
            10..13 => self.any_fields(collection),
            _ => RecordChange::check(collection, self.any_id(), self.any_expected()),
        }
    }

    /// Returns a change of fields that may overlap, and whose paths may lead through a value that is not a document. It sets at most one
    /// array, so that it fits any index.
    fn any_fields(&mut self, collection: &str) -> RecordChange {
        let (mut fields, mut unset) = (Vec::new(), Vec::new());
        for _ in 0..self.random.usize(1..4) {
            let path = ["a", "b", "c", "c.x", "c.y", "d", "d.2", "d.10", "e.f.g", "_id"][self.random.usize(0..10)];
            // Most changes name no field twice.
            let known = fields.iter().any(|(known, _): &(String, Bson)| known[..1] == path[..1]);
            match (known, self.random.u8(0..3)) {
                (true, _) if self.random.u8(0..5) > 0 => {}
                (_, 0) => unset.push(path.to_owned()),
                _ => fields.push((path.to_owned(), self.any_value())),
            }
        }
        let (id, expected) = (self.any_id(), self.any_expected());
        RecordChange::Set { collection: collection.to_owned(), id, fields, unset, expected }
    }

    fn any_expected(&mut self) -> Expected {
        match self.random.u8(0..6) {
            0 | 1 => Expected::Present,
            5 => Expected::Absent,
            2 => Expected::Matching(self.any_condition(1)),
            3 => Expected::AbsentOr(self.any_condition(1)),
            _ => Expected::Revision(self.random.u64(1..50)),
        }
    }

    fn any_id(&mut self) -> Bson {
        let n = self.random.i32(0..25);
        match self.random.u8(0..6) {
            0 => Bson::Double(f64::from(n)),
            1 => format!("id {n}").into(),
            2 => doc! { "n": n % 3 }.into(),
            _ => n.into(),
        }
    }

    /// Returns a document with at most one array, so that it fits any index.
    fn any_document(&mut self) -> RawDocumentBuf {
        let mut document = doc! { "_id": self.any_id() };
        let array_at = self.random.usize(0..6);
        for (n, name) in ["a", "b", "c"].into_iter().enumerate() {
            if self.random.u8(0..5) == 0 {
                continue;
            }
            let value = if n == array_at {
                Bson::Array((0..self.random.usize(0..4)).map(|_| self.any_value_of(name)).collect())
            } else {
                self.any_value_of(name)
            };
            document.insert(name, value);
        }
        RawDocumentBuf::try_from(&document).expect("a document")
    }

    fn any_value_of(&mut self, name: &str) -> Bson {
        match name {
            "c" if self.random.bool() => {
                let mut inner = Document::new();
                if self.random.u8(0..4) > 0 {
                    inner.insert("x", self.any_value());
                }
                inner.into()
            }
            _ => self.any_value(),
        }
    }

    fn any_value(&mut self) -> Bson {
        let n = self.random.i32(0..5);
        match self.random.u8(0..12) {
            0 => Bson::Null,
            1 => Bson::Double(f64::from(n) + 0.5),
            2 => Bson::Int64(n.into()),
            3 => ["", "a", "b", "ab", "Ab"][self.random.usize(0..5)].into(),
            4 => Bson::Boolean(n > 2),
            5 => Bson::DateTime(annals_core::bson::DateTime::from_millis(n.into())),
            6 => Bson::Double(f64::NAN),
            _ => n.into(),
        }
    }

    fn any_path(&mut self) -> &'static str {
        ["a", "b", "c", "c.x", "_id", "d"][self.random.usize(0..6)]
    }

    fn any_condition(&mut self, depth: u8) -> Condition {
        let children = |this: &mut Self| (0..this.random.usize(1..4)).map(|_| this.any_condition(depth - 1)).collect();
        match self.random.u8(0..12) {
            0 => return Condition::All,
            1..4 if depth > 0 => return Condition::And(children(self)),
            4 if depth > 0 => return Condition::Or(children(self)),
            5 if depth > 0 => return Condition::Nor(children(self)),
            _ => {}
        }
        let path = self.any_path();
        let value = if path == "_id" { self.any_id() } else { self.any_value() };
        match self.random.u8(0..18) {
            0..4 => Condition::eq(path, value),
            4 => Condition::ne(path, value),
            5 => Condition::gt(path, value),
            6 => Condition::gte(path, value),
            7 => Condition::lt(path, value),
            8 => Condition::lte(path, value),
            9 => Condition::is_in(path, [value, self.any_value(), self.any_value()]),
            10 => Condition::not_in(path, [value, self.any_value()]),
            11 => Condition::between(path, value, self.any_value()),
            12 => Condition::all_in(path, [value]),
            13 => Condition::elem_match(path, Condition::is_in("x", [value, self.any_value()])),
            14 => Condition::contains(path, self.any_fragment()),
            15 => Condition::ends_with(path, self.any_fragment()),
            16 => Condition::starts_with(path, self.any_fragment()),
            _ => Condition::field(path, annals_core::Test::Exists(self.random.bool())),
        }
    }

    fn any_fragment(&mut self) -> Fragment {
        let fragment = Fragment::new(["", "a", "b", "A", "ab"][self.random.usize(0..5)]);
        if self.random.u8(0..3) == 0 { fragment.ignoring_case() } else { fragment }
    }

    /// Returns a query of this collection.
    pub fn any_query(&mut self, collection: &str) -> RecordQuery {
        let mut sort: Vec<SortBy> = Vec::new();
        for _ in 0..self.random.usize(0..3) {
            let path = self.any_path();
            // Each document has one array, so any two paths except a field and its inside can be sorted by.
            if sort.iter().all(|by| !by.path.starts_with(&path[..1])) {
                sort.push(SortBy { path: path.to_owned(), direction: self.any_direction() });
            }
        }
        let projection = match self.random.u8(0..4) {
            0 => Projection::only(["a", "c.x"]),
            1 => Projection::without(["b", "c.x"]),
            _ => Projection::Whole,
        };
        RecordQuery {
            condition: self.any_condition(2),
            sort,
            projection,
            limit: [1, 3, 10, 100][self.random.usize(0..4)],
            ..RecordQuery::new(collection)
        }
    }

    /// Returns a query of groups of this collection.
    fn any_group(&mut self, collection: &str) -> GroupQuery {
        let mut query =
            GroupQuery::new(collection).matching(self.any_condition(1)).limit([1, 2, 100][self.random.usize(0..3)]);
        if self.random.u8(0..5) > 0 {
            query = query.by(self.any_path());
            if self.random.u8(0..4) == 0 {
                query = query.every(if self.random.bool() { Every::Hour } else { Every::Day });
            }
        }
        for n in 0..self.random.usize(0..4) {
            query = query.figure(format!("f{n}"), Aggregation::ALL[self.random.usize(0..4)], self.any_path());
        }
        query
    }

    fn any_direction(&mut self) -> Direction {
        if self.random.bool() { Direction::Ascending } else { Direction::Descending }
    }

    fn any_collection(&mut self, name: &str) -> Collection {
        let mut collection = Collection::new(name);
        collection.feed = self.random.bool();
        for _ in 0..self.random.usize(0..3) {
            let mut fields: Vec<(&str, Direction)> = Vec::new();
            for _ in 0..self.random.usize(1..4) {
                let path = self.any_path();
                if fields.iter().all(|(known, _)| !known.starts_with(&path[..1])) {
                    fields.push((path, self.any_direction()));
                }
            }
            let mut index = Index::ordered(fields);
            index.sparse = self.random.u8(0..4) == 0;
            index.unique = self.random.u8(0..6) == 0;
            if self.random.u8(0..4) == 0 {
                index = index.partial(Condition::gt("a", 1));
            }
            // Some declarations use a name that already has another definition.
            if self.random.u8(0..4) > 0 {
                let suffix = format!(" {} {} {}", index.unique, index.sparse, index.partial.is_some());
                index.name += &suffix;
            }
            if collection.indexes.iter().all(|known| known.name() != index.name) {
                collection.indexes.push(index.into());
            }
        }
        collection
    }
}
