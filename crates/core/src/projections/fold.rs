//! Folding of events into records. The result does not depend on the length of pages: it is as if events were folded one at a time.

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bson::raw::RawDocumentBuf;
use bson::{Bson, Document, RawBson, RawBsonRef};

use super::ProjectionDefinition;
use crate::archive::RetentionPlan;
use crate::browse::{browse_document, browse_id};
use crate::order::{encode, encoded};
use crate::{Expected, RecordChange, RecordedEvent};

/// A reducer in Rust: applies an event to the record of its key. `None` means no record, before and after. `_id` is set to the key.
pub type Reducer = dyn Fn(&mut Option<Document>, &RecordedEvent) -> Result<(), String> + Send + Sync;

/// Why an event cannot be folded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit {
    /// The operation and its field, for example `increment.total`; or `key`.
    pub path: String,
    /// What is wrong.
    pub message: String,
}

impl Misfit {
    pub(super) fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into() }
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// A definition with everything that is needed to fold events.
#[derive(Clone)]
pub struct Projector {
    definition: ProjectionDefinition,
    reducer: Option<Arc<Reducer>>,
    /// When documents of the browse view expire.
    retention: Option<Arc<RetentionPlan>>,
}

/// The first event of a page that does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfolded {
    /// Its index in the page.
    pub at: usize,
    /// Why it does not fit.
    pub misfit: Misfit,
}

/// The keys of a page's events.
#[derive(Debug, Default)]
pub struct Folded {
    /// The keys of each event, one for each of its rules.
    keys: Vec<Vec<Key>>,
    /// The first event without a valid key.
    unfolded: Option<Unfolded>,
}

#[derive(Debug, Clone)]
struct Key {
    /// Equal for values that compare as equal.
    bytes: Vec<u8>,
    value: Bson,
}

/// The records that a build is working on: those that the current page needs, and those kept from earlier pages.
#[derive(Debug, Default)]
pub struct Working {
    records: HashMap<Vec<u8>, Known>,
    /// The keys of changed records, in the order of their first change.
    changed: Vec<Vec<u8>>,
    bytes: usize,
    /// Whether a record that is not in memory does not exist.
    is_whole: bool,
    /// Whether no page needs a record of an earlier page.
    is_of_each: bool,
}

#[derive(Debug)]
struct Known {
    key: Bson,
    record: Option<Document>,
    is_stored: bool,
    is_changed: bool,
    bytes: usize,
}

/// The changes that a page has made.
#[derive(Debug, Default)]
pub struct Changed {
    /// The changes of records, one for each key.
    pub changes: Vec<RecordChange>,
    /// The bytes of their documents.
    pub bytes: usize,
}

/// The most records, and the most bytes of them, that are kept for later pages.
const KEPT_MAX: (usize, usize) = (20_000, 32 * 1024 * 1024);

impl Projector {
    /// Creates a projector for a declarative definition, or for one with a reducer of the program.
    pub fn new(definition: ProjectionDefinition, reducer: Option<Arc<Reducer>>) -> Self {
        Self { definition, reducer, retention: None }
    }

    /// Lets documents of the browse view expire according to these settings.
    pub fn retain(&mut self, plan: Arc<RetentionPlan>) {
        self.retention = Some(plan);
    }

    /// Returns the settings that determine when documents of the browse view expire.
    pub fn retention(&self) -> Option<&Arc<RetentionPlan>> {
        self.retention.as_ref()
    }

    /// Returns the definition.
    pub fn definition(&self) -> &ProjectionDefinition {
        &self.definition
    }

    /// Determines the keys of events, up to the first event without a valid key.
    pub fn keys(&self, events: &[RecordedEvent]) -> Folded {
        let mut folded = Folded::default();
        for (at, event) in events.iter().enumerate() {
            match self.keys_of(event) {
                Ok(keys) => folded.keys.push(keys),
                Err(misfit) => {
                    folded.unfolded = Some(Unfolded { at, misfit });
                    break;
                }
            }
        }
        folded
    }

    fn keys_of(&self, event: &RecordedEvent) -> Result<Vec<Key>, Misfit> {
        if self.definition.is_browse() {
            return Ok(vec![Key::of(browse_id(event.sequence_number).into())]);
        }
        let usual = self.definition.key_of();
        let key = |own: Option<&super::expression::Expression>| match own.or(usual) {
            None => Ok(Key::of(Bson::String(event.commit.aggregate.id.to_string()))),
            Some(expression) => match expression.value(event) {
                Some(Bson::Array(_) | Bson::RegularExpression(_) | Bson::Undefined) => {
                    Err(Misfit::new("key", "an array, a regular expression or undefined cannot be the key of a record"))
                }
                Some(value) if expression.is_whole(event) => Ok(Key::of(value)),
                _ => {
                    let missing = expression.missing(event).unwrap_or_default();
                    Err(Misfit::new("key", format!("the event has no {missing}")))
                }
            },
        };
        if self.definition.is_program() {
            return Ok(vec![key(None)?]);
        }
        self.definition.rules(&event.event_type).iter().map(|rule| key(rule.key.as_ref())).collect()
    }

    /// Folds events whose keys were determined and whose records are loaded. After an error, `work` is unusable.
    ///
    /// # Errors
    /// [`Unfolded`], with the first event that does not fit.
    pub fn fold(&self, events: &[RecordedEvent], folded: Folded, work: &mut Working) -> Result<(), Unfolded> {
        for (at, (event, keys)) in events.iter().zip(folded.keys).enumerate() {
            for (n, key) in keys.into_iter().enumerate() {
                self.fold_one(event, n, key, work).map_err(|misfit| Unfolded { at, misfit })?;
            }
        }
        folded.unfolded.map_or(Ok(()), Err)
    }

    fn fold_one(&self, event: &RecordedEvent, n: usize, key: Key, work: &mut Working) -> Result<(), Misfit> {
        let Key { bytes, value } = key;
        let known = match work.records.get_mut(&bytes) {
            Some(known) => known,
            None => {
                let absent = Known { key: value, record: None, is_stored: false, is_changed: false, bytes: 0 };
                work.records.entry(bytes.clone()).or_insert(absent)
            }
        };
        match &self.reducer {
            Some(reducer) => reduce(&**reducer, &mut known.record, event)?,
            None if self.definition.is_browse() => {
                let mut document = browse_document(event, self.definition.retention_days());
                if let Some(plan) = &self.retention {
                    plan.stamp(&mut document);
                }
                known.record = Some(document);
            }
            None => self.definition.rules(&event.event_type)[n].apply(&mut known.record, event)?,
        }
        if let Some(record) = &mut known.record
            && record.get("_id") != Some(&known.key)
        {
            // `_id` comes first, as on MongoDB.
            let mut keyed = Document::from_iter([("_id".to_owned(), known.key.clone())]);
            record.remove("_id");
            keyed.extend(std::mem::take(record));
            *record = keyed;
        }
        if !known.is_changed {
            known.is_changed = true;
            work.changed.push(bytes);
        }
        Ok(())
    }
}

fn reduce(reducer: &Reducer, record: &mut Option<Document>, event: &RecordedEvent) -> Result<(), Misfit> {
    let failed = |message: String| Misfit::new("reducer", message);
    match catch_unwind(AssertUnwindSafe(|| reducer(record, event))) {
        Ok(reduced) => reduced.map_err(failed),
        Err(panic) => Err(failed(format!("it panicked: {}", said(&*panic)))),
    }
}

fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

impl Key {
    fn of(value: Bson) -> Self {
        Self { bytes: key_bytes(&value).unwrap_or_default(), value }
    }
}

/// Returns bytes that are equal for values that compare as equal.
pub(crate) fn key_bytes(value: &Bson) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(24);
    match value {
        Bson::String(text) => encode(RawBsonRef::String(text), &mut out),
        Bson::Int64(number) => encode(RawBsonRef::Int64(*number), &mut out),
        other => encode(RawBson::try_from(other.clone()).ok()?.as_raw_bson_ref(), &mut out),
    }
    Some(out)
}

impl Working {
    /// Starts on an empty collection.
    pub fn of_nothing() -> Self {
        Self { is_whole: true, ..Self::default() }
    }

    /// Starts on an empty collection in which each event has its own record.
    pub fn of_each() -> Self {
        Self { is_whole: true, is_of_each: true, ..Self::default() }
    }

    /// Returns the keys of records that a page needs and that are not loaded.
    pub fn wanted(&self, folded: &Folded) -> Vec<Bson> {
        if self.is_whole {
            return Vec::new();
        }
        let mut seen = HashSet::new();
        let keys = folded.keys.iter().flatten();
        let wanted = keys.filter(|key| !self.records.contains_key(&key.bytes) && seen.insert(&key.bytes));
        wanted.map(|key| key.value.clone()).collect()
    }

    /// Adds a stored record to work on.
    ///
    /// # Errors
    /// A sentence, if the document cannot be read.
    pub fn insert(&mut self, document: RawDocumentBuf) -> Result<(), String> {
        let bytes = document.as_bytes().len();
        let record = Document::try_from(&*document).map_err(|error| error.to_string())?;
        let id = document.get("_id").map_err(|error| error.to_string())?.ok_or("a record without an _id")?;
        let key = record.get("_id").cloned().unwrap_or(Bson::Null);
        self.bytes += bytes;
        let known = Known { key, record: Some(record), is_stored: true, is_changed: false, bytes };
        self.records.insert(encoded(id), known);
        Ok(())
    }

    /// Returns the changes of a page, which must all be written to this collection.
    ///
    /// # Errors
    /// A sentence, if a record cannot be converted to BSON.
    pub fn changes(&self, collection: &str) -> Result<Changed, String> {
        let mut changed = Changed { changes: Vec::with_capacity(self.changed.len()), bytes: 0 };
        for bytes in &self.changed {
            let Some(known) = self.records.get(bytes) else { continue };
            match &known.record {
                Some(record) => {
                    let document = RawDocumentBuf::try_from(record).map_err(|error| error.to_string())?;
                    changed.bytes += document.as_bytes().len();
                    changed.changes.push(RecordChange::put(collection, document));
                }
                None if known.is_stored => {
                    let any = Expected::AbsentOr(crate::Condition::All);
                    changed.changes.push(RecordChange::delete_if(collection, known.key.clone(), any));
                }
                None => {}
            }
        }
        Ok(changed)
    }

    /// Marks the changes as stored, and drops the loaded records if there are too many.
    pub fn stored(&mut self, changed: &Changed) {
        if self.is_of_each {
            *self = Self::of_each();
            return;
        }
        let mut sizes = changed.changes.iter();
        for bytes in std::mem::take(&mut self.changed) {
            let Some(known) = self.records.get_mut(&bytes) else { continue };
            let had_change = known.record.is_some() || known.is_stored;
            let size = if had_change { sizes.next().map_or(0, RecordChange::bytes) } else { 0 };
            self.bytes = self.bytes - known.bytes + size;
            (known.is_changed, known.is_stored, known.bytes) = (false, known.record.is_some(), size);
        }
        if self.records.len() > KEPT_MAX.0 || self.bytes > KEPT_MAX.1 {
            *self = Self::default();
        }
    }
}
