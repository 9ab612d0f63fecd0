//! Evaluates changes one after the other, each against the records as the earlier ones leave them. Pure: the stored records were read
//! before.

use std::collections::HashMap;
use std::sync::Arc;

use annals_core::bson::Bson;
use annals_core::bson::raw::{RawDocument, RawDocumentBuf};
use annals_core::order::{self, document_keys};
use annals_core::{
    ChangeKind, Code, Collection, Expected, Invalid, Matcher, RecordChange, RecordError, Revision, text_entries,
    with_fields,
};

use super::catalog::Known;
use super::feed::Note;
use super::revisions::Revisions;
use super::{document, expiry};

/// A record by its collection and the encoding of its `_id`.
pub(super) type Key = (String, Vec<u8>);

/// The current state of a record.
#[derive(Clone)]
pub(super) enum State {
    Absent,
    Stored {
        revision: Revision,
        id: Bson,
    },
    /// Written by a change of this transaction.
    Written {
        revision: Revision,
        document: Arc<RawDocumentBuf>,
    },
}

/// A write that is sent to the server for a change.
pub(super) enum Op {
    Insert {
        collection: String,
        document: RawDocumentBuf,
    },
    Replace {
        collection: String,
        id: Bson,
        document: RawDocumentBuf,
    },
    Delete {
        collection: String,
        id: Bson,
    },
    /// Changes fields of an existing record, and sets its revision.
    Set {
        collection: String,
        id: Bson,
        fields: Vec<(String, Bson)>,
        unset: Vec<String>,
        revision: Revision,
        id_at: i32,
    },
    /// Makes the transaction conflict with others that change the record.
    Touch {
        collection: String,
        id: Bson,
    },
}

impl State {
    /// The revision of the record; 0 if it is absent.
    fn revision(&self) -> Revision {
        match self {
            Self::Absent => 0,
            Self::Stored { revision, .. } | Self::Written { revision, .. } => *revision,
        }
    }
}

impl Op {
    pub(super) fn collection(&self) -> &str {
        match self {
            Self::Insert { collection, .. }
            | Self::Replace { collection, .. }
            | Self::Set { collection, .. }
            | Self::Delete { collection, .. }
            | Self::Touch { collection, .. } => collection,
        }
    }

    pub(super) fn key(&self) -> Key {
        let id = match self {
            Self::Insert { document, .. } => order::encoded(document::id_of(document)),
            Self::Replace { id, .. } | Self::Set { id, .. } | Self::Delete { id, .. } | Self::Touch { id, .. } => {
                encoded(id)
            }
        };
        (self.collection().to_owned(), id)
    }
}

/// A record that was checked and is not changed by the change that checked it.
pub(super) struct Checked {
    pub(super) job: usize,
    pub(super) change: usize,
    pub(super) collection: String,
    pub(super) id: Bson,
    /// Whether the record exists.
    pub(super) there: bool,
}

/// The marker to write for a record: when it expires; `None` if it no longer does.
pub(super) struct Marker {
    pub(super) collection: String,
    pub(super) id: Bson,
    pub(super) at: Option<i64>,
}

/// The input and the results of an evaluation.
pub(super) struct Judge<'a> {
    pub(super) collections: &'a HashMap<String, Arc<Known>>,
    revisions: &'a Revisions,
    /// The stored records; records without an entry are absent.
    pub(super) states: HashMap<Key, State>,
    /// The stored documents of which fields are changed.
    pub(super) documents: HashMap<Key, RawDocumentBuf>,
    /// Whether the condition of a change, given by job and index, holds for the stored record.
    pub(super) holds: HashMap<(usize, usize), bool>,
    /// Records that have markers. Those of collections without a feed have none.
    pub(super) marked: HashMap<Key, i64>,
    pub(super) ops: Vec<(usize, usize, Op)>,
    pub(super) notes: Vec<Note>,
    pub(super) markers: Vec<Marker>,
    pub(super) checked: Vec<Checked>,
    undo: Vec<(Key, Option<State>, Option<i64>)>,
}

impl<'a> Judge<'a> {
    pub(super) fn new(collections: &'a HashMap<String, Arc<Known>>, revisions: &'a Revisions) -> Self {
        Self {
            collections,
            revisions,
            states: HashMap::new(),
            documents: HashMap::new(),
            holds: HashMap::new(),
            marked: HashMap::new(),
            ops: Vec::new(),
            notes: Vec::new(),
            markers: Vec::new(),
            checked: Vec::new(),
            undo: Vec::new(),
        }
    }

    /// Applies the changes of a job, all or none.
    pub(super) fn job(&mut self, job: usize, changes: &[RecordChange]) -> Result<Vec<Revision>, RecordError> {
        let before = (self.ops.len(), self.notes.len(), self.markers.len(), self.checked.len());
        self.undo.clear();
        let numbers = changes.iter().enumerate().map(|(at, change)| self.apply(job, at, change)).collect();
        if let Err(error) = numbers {
            self.ops.truncate(before.0);
            self.notes.truncate(before.1);
            self.markers.truncate(before.2);
            self.checked.truncate(before.3);
            for (key, state, marked) in std::mem::take(&mut self.undo).into_iter().rev() {
                put_back(&mut self.states, &key, state);
                put_back(&mut self.marked, &key, marked);
            }
            return Err(error);
        }
        if self.ops.len() == before.0 {
            // It changes nothing, so it is consistent with its snapshot, whatever else the transaction writes.
            self.checked.truncate(before.3);
        }
        numbers
    }

    fn apply(&mut self, job: usize, at: usize, change: &RecordChange) -> Result<Revision, RecordError> {
        let key = key_of(change);
        let state = self.states.get(&key).cloned().unwrap_or(State::Absent);
        let name = change.collection();
        if !self.collections.contains_key(name) {
            return Err(RecordError::UnknownCollection(name.to_owned()));
        }
        match change {
            RecordChange::Insert { document, .. } => {
                if !matches!(state, State::Absent) {
                    let taken = [("_id".to_owned(), document::owned_id(document))].into_iter().collect();
                    let (collection, index) = (name.to_owned(), "_id_".to_owned());
                    return Err(RecordError::DuplicateKey { collection, index, key: Box::new(taken), change: at });
                }
                self.put(job, at, key, name, state, document)
            }
            RecordChange::Replace { document, expected, .. } => {
                self.check((job, at), name, &document::owned_id(document), &state, expected)?;
                self.put(job, at, key, name, state, document)
            }
            RecordChange::Delete { id, expected, .. } => {
                self.check((job, at), name, id, &state, expected)?;
                let stored = match &state {
                    // There is nothing to delete. The other changes of the batch depend on that, as on a check.
                    State::Absent => {
                        let (collection, id) = (name.to_owned(), id.clone());
                        self.checked.push(Checked { job, change: at, collection, id, there: false });
                        return Ok(0);
                    }
                    State::Stored { id, .. } => id.clone(),
                    State::Written { document, .. } => document::owned_id(document),
                };
                let revision = self.revisions.after(state.revision());
                self.delete(job, at, key, name, stored);
                Ok(revision)
            }
            RecordChange::Set { id, fields, unset, expected, .. } => {
                self.check((job, at), name, id, &state, expected)?;
                let document = match &state {
                    State::Absent => with_fields(&document::only_id(id)?, fields, unset),
                    State::Written { document, .. } => with_fields(document, fields, unset),
                    State::Stored { .. } => match self.documents.get(&key) {
                        Some(there) => with_fields(there, fields, unset),
                        None => Err(Invalid::new(Code::InvalidRecord, "fields", "are of a record that cannot be read")),
                    },
                };
                let document = document.map_err(|error| error.inside(&format!("changes[{at}]")))?;
                let set = !matches!(state, State::Absent) && fields.iter().all(|(_, value)| document::is_plain(value));
                let revision = self.put(job, at, key, name, state, &document)?;
                // If the server would interpret a value, the whole document is sent instead.
                if set && let Some((_, _, op)) = self.ops.last_mut() {
                    let (collection, id_at) = (name.to_owned(), document::id_at(&document));
                    let (id, fields, unset) = (document::owned_id(&document), fields.clone(), unset.clone());
                    *op = Op::Set { collection, id, fields, unset, revision, id_at };
                }
                Ok(revision)
            }
            RecordChange::Check { id, expected, .. } => {
                self.check((job, at), name, id, &state, expected)?;
                let (revision, id, there) = match state {
                    State::Absent => (0, id.clone(), false),
                    State::Stored { revision, id } => (revision, id, true),
                    State::Written { revision, .. } => return Ok(revision),
                };
                self.checked.push(Checked { job, change: at, collection: name.to_owned(), id, there });
                Ok(revision)
            }
        }
    }

    fn check(
        &self,
        (job, at): (usize, usize),
        collection: &str,
        id: &Bson,
        state: &State,
        expected: &Expected,
    ) -> Result<(), RecordError> {
        let actual = match state {
            State::Absent => None,
            State::Stored { revision, .. } | State::Written { revision, .. } => Some(*revision),
        };
        let as_expected = match (expected, state) {
            (Expected::AbsentOr(_) | Expected::Absent, State::Absent) => true,
            (_, State::Absent) | (Expected::Absent, _) => false,
            (Expected::Present, _) => true,
            (Expected::Revision(revision), _) => actual == Some(*revision),
            (Expected::Matching(_) | Expected::AbsentOr(_), State::Stored { .. }) => {
                self.holds.get(&(job, at)).copied().unwrap_or(false)
            }
            (Expected::Matching(condition) | Expected::AbsentOr(condition), State::Written { document, .. }) => {
                Matcher::new(condition).matches(document)
            }
        };
        if as_expected {
            return Ok(());
        }
        Err(RecordError::NotAsExpected { collection: collection.to_owned(), id: id.to_string(), change: at, actual })
    }

    fn put(
        &mut self,
        job: usize,
        at: usize,
        key: Key,
        name: &str,
        state: State,
        document: &RawDocumentBuf,
    ) -> Result<Revision, RecordError> {
        let declared = self.collections.get(name).ok_or_else(|| RecordError::UnknownCollection(name.to_owned()))?;
        fits_indexes(declared, document)?;
        let id = document::owned_id(document);
        let there = !matches!(state, State::Absent);
        if !there && self.marked.contains_key(&key) {
            // The server deleted the record when it expired, and the deletion is not noted yet.
            self.note(name, &id, ChangeKind::Deleted);
        }
        self.note(name, &id, if there { ChangeKind::Replaced } else { ChangeKind::Inserted });
        let revision = self.revisions.after(state.revision());
        let stored = document::stored(document, revision);
        let collection = name.to_owned();
        let op = match there {
            true => Op::Replace { collection, id: id.clone(), document: stored },
            false => Op::Insert { collection, document: stored },
        };
        self.ops.push((job, at, op));
        let expires = if declared.notes { expiry::of_document(declared, document) } else { None };
        if expires.is_some() || self.marked.contains_key(&key) {
            self.markers.push(Marker { collection: name.to_owned(), id, at: expires });
        }
        self.set(key, State::Written { revision, document: Arc::new(document.clone()) }, expires);
        Ok(revision)
    }

    fn delete(&mut self, job: usize, at: usize, key: Key, name: &str, id: Bson) {
        self.note(name, &id, ChangeKind::Deleted);
        self.ops.push((job, at, Op::Delete { collection: name.to_owned(), id: id.clone() }));
        if self.marked.contains_key(&key) {
            self.markers.push(Marker { collection: name.to_owned(), id, at: None });
        }
        self.set(key, State::Absent, None);
    }

    /// Deletes a record if it has expired, or notes that the server has already deleted it.
    pub(super) fn expire(&mut self, job: usize, now: i64, collection: &str, id: &Bson, stored: Option<&RawDocument>) {
        let key = (collection.to_owned(), encoded(id));
        if !self.marked.contains_key(&key) {
            return;
        }
        let declared = self.collections.get(collection);
        let due = stored.zip(declared).and_then(|(stored, declared)| expiry::of_document(declared, stored));
        let notes = declared.is_some_and(|declared| declared.notes);
        match (stored, due) {
            (None, _) => {
                self.note(collection, id, ChangeKind::Deleted);
                self.markers.push(Marker { collection: collection.to_owned(), id: id.clone(), at: None });
                self.set(key, State::Absent, None);
            }
            (Some(stored), Some(due)) if due <= now => {
                self.delete(job, 0, key, collection, document::owned_id(stored));
            }
            // Other software changed it, or an earlier version marked it and the collection has no feed.
            (Some(_), due) => {
                let at = due.filter(|_| notes);
                self.markers.push(Marker { collection: collection.to_owned(), id: id.clone(), at });
            }
        }
    }

    /// Adds a marker to a record that expires and has none.
    pub(super) fn mark(&mut self, job: usize, collection: &str, id: &Bson, stored: Option<&RawDocument>) {
        let key = (collection.to_owned(), encoded(id));
        let declared = self.collections.get(collection).filter(|declared| declared.notes);
        let due = declared.zip(stored).and_then(|(declared, stored)| expiry::of_document(declared, stored));
        let Some(at) = due.filter(|_| !self.marked.contains_key(&key)) else { return };
        // A concurrent transaction that changes the record has seen no marker, so the two must not both commit.
        self.ops.push((job, 0, Op::Touch { collection: collection.to_owned(), id: id.clone() }));
        self.markers.push(Marker { collection: collection.to_owned(), id: id.clone(), at: Some(at) });
        self.marked.insert(key, at);
    }

    fn set(&mut self, key: Key, state: State, expires: Option<i64>) {
        let marked = match expires {
            Some(at) => self.marked.insert(key.clone(), at),
            None => self.marked.remove(&key),
        };
        let before = self.states.insert(key.clone(), state);
        self.undo.push((key, before, marked));
    }

    fn note(&mut self, collection: &str, id: &Bson, what: ChangeKind) {
        if self.collections.get(collection).is_some_and(|declared| declared.notes) {
            self.notes.push(Note { collection: collection.to_owned(), id: id.clone(), what });
        }
    }
}

fn put_back<V>(map: &mut HashMap<Key, V>, key: &Key, value: Option<V>) {
    match value {
        Some(value) => map.insert(key.clone(), value),
        None => map.remove(key),
    };
}

/// Returns the key of the record that a change concerns.
pub(super) fn key_of(change: &RecordChange) -> Key {
    let id = match change {
        RecordChange::Insert { document, .. } | RecordChange::Replace { document, .. } => {
            order::encoded(document::id_of(document))
        }
        RecordChange::Delete { id, .. } | RecordChange::Set { id, .. } | RecordChange::Check { id, .. } => encoded(id),
    };
    (change.collection().to_owned(), id)
}

pub(super) fn encoded(id: &Bson) -> Vec<u8> {
    annals_core::bson::RawBson::try_from(id.clone())
        .map(|raw| order::encoded(raw.as_raw_bson_ref()))
        .unwrap_or_default()
}

fn fits_indexes(declared: &Collection, document: &RawDocument) -> Result<(), Invalid> {
    for index in &declared.indexes {
        if index.partial().is_some_and(|partial| !Matcher::new(partial).matches(document)) {
            continue;
        }
        if let Some(words) = index.as_text() {
            text_entries(words, document)?;
            continue;
        }
        document_keys(document, &index.fields()).map_err(|error| {
            Invalid::new(Code::InvalidRecord, "document", format!("does not fit index {}: {error}", index.name()))
        })?;
    }
    Ok(())
}
