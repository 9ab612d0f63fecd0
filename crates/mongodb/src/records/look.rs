//! Reads the records that changes concern, inside the transaction that makes the changes. See `batch.rs`.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use annals_core::bson::{Bson, RawDocumentBuf, doc};
use annals_core::{Condition, Expected, Matcher, RecordChange};
use mongodb::ClientSession;

use super::batch::Place;
use super::catalog::Known;
use super::judge::{Judge, Key, State, encoded, key_of};
use super::write::Work;
use super::{document, markers};

/// Ids that are looked up together.
const IDS_MAX: usize = 1_000;

/// Reads the records that the changes concern: whether each exists, and whether the conditions of changes hold for it. Conditions are
/// evaluated as the documents arrive, and only documents that may have expired are kept.
pub(super) async fn look(
    place: &Place,
    collections: &HashMap<String, Arc<Known>>,
    jobs: &[Work],
    session: &mut ClientSession,
    judge: &mut Judge<'_>,
) -> mongodb::error::Result<HashMap<Key, RawDocumentBuf>> {
    let mut wanted: HashMap<&str, Wanted<'_>> = HashMap::new();
    for (job, work) in jobs.iter().enumerate() {
        match work {
            Work::Changes(changes) => {
                for (at, change) in changes.iter().enumerate() {
                    wanted.entry(change.collection()).or_default().add(change, (job, at));
                }
            }
            Work::Expired(records) | Work::Mark(records) => {
                for (collection, id) in records {
                    let wanted = wanted.entry(collection).or_default();
                    wanted.whole = true;
                    wanted.keep = true;
                    wanted.ids.entry(encoded(id)).or_insert_with(|| id.clone());
                }
            }
        }
    }
    let mut kept = HashMap::new();
    for (name, wanted) in wanted {
        let expires = |known: &Known| known.indexes.iter().any(|index| index.expires_after_seconds().is_some());
        let marked = collections.get(name).is_some_and(|known| known.notes && expires(known));
        let ids: Vec<&Bson> = wanted.ids.values().collect();
        for ids in ids.chunks(IDS_MAX) {
            let ids: Vec<Bson> = ids.iter().map(|id| (*id).clone()).collect();
            if marked || wanted.keep {
                markers::marked(place, name, &ids, session, judge).await?;
            }
            let records = place.database.collection::<RawDocumentBuf>(name);
            let mut find = records.find(doc! { "_id": { "$in": ids } });
            if !wanted.whole {
                find = find.projection(doc! { "_id": 1, document::OWN: 1 });
            }
            let mut found = find.session(&mut *session).await?;
            while found.advance(&mut *session).await? {
                let stored = found.current();
                let id = document::owned_id(stored);
                let encoded = encoded(&id);
                let given = wanted.whole.then(|| document::given(stored));
                for (place, condition) in wanted.conditions.get(&encoded).into_iter().flatten() {
                    let matches = |given: &RawDocumentBuf| Matcher::new(condition).matches(given);
                    let holds = **condition == Condition::All || given.as_ref().is_some_and(matches);
                    judge.holds.insert(*place, holds);
                }
                let key = (name.to_owned(), encoded);
                if let Some(given) = given.as_ref().filter(|_| wanted.set.contains(&key.1)) {
                    judge.documents.insert(key.clone(), given.clone());
                }
                judge.states.insert(key.clone(), State::Stored { revision: document::revision_of(stored), id });
                if let Some(given) = given.filter(|_| wanted.keep) {
                    kept.insert(key, given);
                }
            }
        }
    }
    Ok(kept)
}

/// A change's position in the batch, and its condition on the stored record.
type Conditional<'a> = ((usize, usize), &'a Condition);

/// What to read from a collection.
#[derive(Default)]
struct Wanted<'a> {
    ids: HashMap<Vec<u8>, Bson>,
    /// The conditions of changes, by record.
    conditions: HashMap<Vec<u8>, Vec<Conditional<'a>>>,
    /// Whether whole documents are needed.
    whole: bool,
    keep: bool,
    /// Records of which fields are changed.
    set: HashSet<Vec<u8>>,
}

impl<'a> Wanted<'a> {
    fn add(&mut self, change: &'a RecordChange, place: (usize, usize)) {
        let (_, key) = key_of(change);
        let (id, expected) = match change {
            RecordChange::Insert { document, .. } => (document::owned_id(document), None),
            RecordChange::Replace { document, expected, .. } => (document::owned_id(document), Some(expected)),
            RecordChange::Delete { id, expected, .. } | RecordChange::Check { id, expected, .. } => {
                (id.clone(), Some(expected))
            }
            RecordChange::Set { id, expected, .. } => {
                self.whole = true;
                self.set.insert(key.clone());
                (id.clone(), Some(expected))
            }
        };
        if let Some(Expected::Matching(condition) | Expected::AbsentOr(condition)) = expected {
            self.whole |= *condition != Condition::All;
            self.conditions.entry(key.clone()).or_default().push((place, condition));
        }
        self.ids.entry(key).or_insert(id);
    }
}
