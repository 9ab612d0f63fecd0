//! What came at once as one transaction: the counter, what is there, the judgement, the changes, their notes. See `write.rs`.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use annals_core::bson::{Bson, Document, RawDocumentBuf, doc};
use annals_core::{
    ChangeNumber, Clock, Collection, Condition, Expected, Matcher, Randomness, RecordChange, RecordError, StoreError,
};
use annals_system::{Instant, sleep};
use mongodb::error::{Error, TRANSIENT_TRANSACTION_ERROR, UNKNOWN_TRANSACTION_COMMIT_RESULT};
use mongodb::options::{ReadConcern, ReturnDocument};
use mongodb::{ClientSession, Database};

use super::checks;
use super::commands::{self, Refused};
use super::expiry::Due;
use super::feed::{NOTES, STATE, of_changes};
use super::judge::{Judge, Key, State, encoded, key_of};
use super::markers;
use super::{document, write::Work};
use crate::connect::strict;
use crate::layout::fields::natural;
use crate::refused::message_of;
use crate::sessions::{Sessions, was_ended};

/// How long a transaction is tried again that the server gave up, or of which it is not known whether it happened.
const TIME_MAX: Duration = Duration::from_secs(30);
/// Ids that are looked up at once.
const IDS_MAX: usize = 1_000;
const PAUSE: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(200);

pub(super) type Answer = Result<Vec<ChangeNumber>, RecordError>;

/// How an attempt ended.
enum Attempt {
    /// Everybody is answered.
    Answered(Vec<Answer>),
    /// Nothing was written: the server did not take a change. It is judged alone, so that a refusal rests on nothing that may yet fail.
    Refused { job: usize, error: RecordError },
    /// Nothing was written: another transaction came first.
    Again,
    /// The commit was sent, and its outcome is not known.
    Unknown { first: ChangeNumber, by: String, answers: Vec<Answer>, error: Error },
}

/// Where the records are.
pub(super) struct Place {
    pub(super) database: Database,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) random: Arc<dyn Randomness>,
    /// The newest number, in ten thousands, when notes were removed last.
    pub(super) trimmed: std::sync::atomic::AtomicU64,
    /// When it is to be looked for what has expired.
    pub(super) due: Due,
    pub(super) sessions: Arc<Sessions>,
}

/// Applies jobs, each whole or not at all, in their order.
pub(super) async fn run(
    place: &Place,
    collections: &HashMap<String, Arc<Collection>>,
    jobs: &[Work],
    by: &str,
) -> Vec<Answer> {
    if let Some(answers) = together(place, collections, jobs, by).await {
        return answers;
    }
    let mut answers = Vec::new();
    for job in jobs {
        answers.extend(together(place, collections, std::slice::from_ref(job), by).await.unwrap_or_default());
    }
    answers
}

/// None when they must be tried one by one. A server that is cut off from the majority may answer never; then it is not known what
/// happened.
async fn together(
    place: &Place,
    collections: &HashMap<String, Arc<Collection>>,
    jobs: &[Work],
    by: &str,
) -> Option<Vec<Answer>> {
    let trying = tokio::time::timeout(TIME_MAX + PAUSE_MAX, until_answered(place, collections, jobs, by)).await;
    trying.unwrap_or_else(|_| {
        let silent = || StoreError::Unreachable("MongoDB gave no answer in time".to_owned());
        Some(jobs.iter().map(|_| Err(silent().into())).collect())
    })
}

async fn until_answered(
    place: &Place,
    collections: &HashMap<String, Arc<Collection>>,
    jobs: &[Work],
    by: &str,
) -> Option<Vec<Answer>> {
    let ends = Instant::now() + TIME_MAX;
    let mut pause = PAUSE;
    let mut tries = 0_u32;
    loop {
        tries += 1;
        // A name for this try, so that its notes can be told from those of another.
        let by = format!("{by}-{tries}");
        let error = match attempt(place, collections, jobs, &by).await {
            Ok(Attempt::Answered(answers)) => return Some(answers),
            Ok(Attempt::Refused { .. }) if jobs.len() > 1 => return None,
            Ok(Attempt::Refused { job, error }) => {
                debug_assert_eq!(job, 0);
                return Some(vec![settled(place, Err(error)).await]);
            }
            Ok(Attempt::Again) => None,
            Ok(Attempt::Unknown { first, by, answers, error }) => match resolve(place, first, &by).await {
                Ok(true) => return Some(answers),
                Ok(false) => None,
                Err(_) => return Some(all(jobs, &error)),
            },
            Err(error) if error.contains_label(TRANSIENT_TRANSACTION_ERROR) || was_ended(&error) => Some(error),
            Err(error) => return Some(all(jobs, &error)),
        };
        if Instant::now() >= ends {
            let sentence = error.map_or("other writers always came first".to_owned(), |error| message_of(&error));
            return Some(jobs.iter().map(|_| Err(StoreError::Unreachable(sentence.clone()).into())).collect());
        }
        sleep(jittered(pause, place.random.bits())).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Half of a pause to all of it. Two writers that met each other would otherwise meet again after the same pause.
fn jittered(pause: Duration, bits: u128) -> Duration {
    let half = pause / 2;
    half + half.mul_f64(f64::from(bits as u32) / f64::from(u32::MAX))
}

fn all(jobs: &[Work], error: &Error) -> Vec<Answer> {
    jobs.iter().map(|_| Err(StoreError::Unreachable(message_of(error)).into())).collect()
}

/// A refusal, once what it rests on is at majority: a write that changes nothing waits for all before it.
async fn settled(place: &Place, refusal: Answer) -> Answer {
    let state = place.database.collection::<Document>(STATE);
    match state.update_one(of_changes(), doc! { "$max": { "last": 0_i64 } }).await {
        Ok(_) => refusal,
        Err(error) => Err(StoreError::Unreachable(message_of(&error)).into()),
    }
}

/// Whether a transaction happened. The fence writes where it wrote, so it has ended before, one way or the other.
async fn resolve(place: &Place, first: ChangeNumber, by: &str) -> mongodb::error::Result<bool> {
    let state = place.database.collection::<Document>(STATE);
    state.update_one(of_changes(), doc! { "$inc": { "fence": 1_i64 } }).await?;
    let notes = place.database.collection::<Document>(NOTES);
    Ok(notes.find_one(doc! { "_id": first.cast_signed(), "by": by }).await?.is_some())
}

async fn attempt(
    place: &Place,
    collections: &HashMap<String, Arc<Collection>>,
    jobs: &[Work],
    by: &str,
) -> mongodb::error::Result<Attempt> {
    let mut taken = place.sessions.take().await?;
    let session = &mut taken.session;
    session.start_transaction().read_concern(ReadConcern::snapshot()).write_concern(strict()).await?;
    let filled = fill(place, collections, jobs, by, session).await;
    let (first, answers, expires) = match filled {
        Ok(Filled::Written { first, answers, expires }) => (first, answers, expires),
        Ok(Filled::Nothing(answers)) => {
            taken.abort().await;
            let mut settled_answers = Vec::new();
            for answer in answers {
                settled_answers.push(settled(place, answer).await);
            }
            return Ok(Attempt::Answered(settled_answers));
        }
        Ok(Filled::Refused(job, Some(error))) => {
            taken.abort().await;
            return Ok(Attempt::Refused { job, error });
        }
        Ok(Filled::Refused(_, None)) => {
            taken.abort().await;
            return Ok(Attempt::Again);
        }
        Err(error) => {
            taken.abort().await;
            return Err(error);
        }
    };
    let mut tries = 0;
    loop {
        let committed = session.commit_transaction().await;
        // After the commit: who looks before it does not see the marker.
        expires.into_iter().for_each(|at| place.due.at(at));
        let attempt = match committed {
            Ok(()) => Ok(Attempt::Answered(answers)),
            Err(error) if is_unknown(&error) && tries < 3 => {
                tries += 1;
                continue;
            }
            Err(error) if is_unknown(&error) => Ok(Attempt::Unknown { first, by: by.to_owned(), answers, error }),
            Err(error) => Err(error),
        };
        taken.done();
        return attempt;
    }
}

/// Whether a commit that ended so may have happened.
fn is_unknown(error: &Error) -> bool {
    error.contains_label(UNKNOWN_TRANSACTION_COMMIT_RESULT) || was_ended(error)
}

enum Filled {
    Written {
        first: ChangeNumber,
        answers: Vec<Answer>,
        /// The earliest expiry of what was written, in milliseconds.
        expires: Option<i64>,
    },
    /// Everything was refused, or nothing is to be done.
    Nothing(Vec<Answer>),
    /// None when another transaction came first.
    Refused(usize, Option<RecordError>),
}

async fn fill(
    place: &Place,
    collections: &HashMap<String, Arc<Collection>>,
    jobs: &[Work],
    by: &str,
    session: &mut ClientSession,
) -> mongodb::error::Result<Filled> {
    // The counter first: of two transactions at once the later ends here, before it has done anything.
    let state = place.database.collection::<RawDocumentBuf>(STATE);
    let counted = state.find_one_and_update(of_changes(), doc! { "$set": { "by": by } });
    let counted = counted.return_document(ReturnDocument::Before).session(&mut *session).await?;
    let last = counted.as_deref().and_then(|state| natural(state, "last"));
    let last = last.ok_or_else(|| Error::custom(format!("{STATE}: the newest number is not there")))?;
    let mut judge = Judge::new(collections, last);
    let expired = look(place, collections, jobs, session, &mut judge).await?;
    let now = place.clock.now().as_millis();
    let mut answers: Vec<Answer> = Vec::new();
    for (at, job) in jobs.iter().enumerate() {
        answers.push(match job {
            Work::Changes(changes) => judge.job(at, changes),
            Work::Expired(records) => {
                for (collection, id) in records {
                    let stored = expired.get(&(collection.clone(), encoded(id)));
                    judge.expire(at, now, collection, id, stored.map(|stored| &**stored));
                }
                Ok(Vec::new())
            }
        });
    }
    if judge.notes.is_empty() && judge.markers.is_empty() {
        return Ok(Filled::Nothing(answers));
    }
    let touches = checks::touches(&judge);
    judge.ops.extend(touches);
    if let Some(refused) = commands::send(&place.database, session, &judge.ops).await? {
        return Ok(told(collections, &judge, &refused));
    }
    markers::mark(place, session, &judge.markers).await?;
    if let Some(first) = judge.notes.first_mut() {
        first.insert("by", by);
    }
    for part in parts(&judge.notes) {
        place.database.collection::<Document>(NOTES).insert_many(part).session(&mut *session).await?;
    }
    let moved = doc! { "$set": { "last": (judge.next - 1).cast_signed() } };
    state.update_one(of_changes(), moved).session(&mut *session).await?;
    let expires = judge.markers.iter().filter_map(|marker| marker.at).min();
    Ok(Filled::Written { first: last + 1, answers, expires })
}

/// Notes or markers that fit into one command: an id may be large.
pub(super) fn parts(notes: &[Document]) -> Vec<&[Document]> {
    const BYTES_MAX: usize = 8 * 1024 * 1024;
    let mut parts = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for (at, note) in notes.iter().enumerate() {
        let size = note.to_vec().map_or(0, |bytes| bytes.len());
        if at > start && (bytes + size > BYTES_MAX || at - start >= 1_000) {
            parts.push(&notes[start..at]);
            (start, bytes) = (at, 0);
        }
        bytes += size;
    }
    if start < notes.len() {
        parts.push(&notes[start..]);
    }
    parts
}

fn told(collections: &HashMap<String, Arc<Collection>>, judge: &Judge<'_>, refused: &Refused) -> Filled {
    let Some((job, change, op)) = judge.ops.get(refused.op) else { return Filled::Refused(0, None) };
    let error = match collections.get(op.collection()) {
        Some(declared) if !refused.is_overtaken() => Some(refused.told(declared, *change)),
        _ => None,
    };
    Filled::Refused(*job, error)
}

/// Reads what the changes are about: whether it is there, and whether their conditions hold for it. Documents are looked at as they come,
/// and only those that may have expired are kept.
async fn look(
    place: &Place,
    collections: &HashMap<String, Arc<Collection>>,
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
            Work::Expired(records) => {
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
        let expires = collections
            .get(name)
            .is_some_and(|known| known.indexes.iter().any(|index| index.expires_after_seconds.is_some()));
        let ids: Vec<&Bson> = wanted.ids.values().collect();
        for ids in ids.chunks(IDS_MAX) {
            let ids: Vec<Bson> = ids.iter().map(|id| (*id).clone()).collect();
            if expires {
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

/// A change's place in the batch, and the condition that it has on what is stored.
type Conditional<'a> = ((usize, usize), &'a Condition);

/// What is wanted of a collection.
#[derive(Default)]
struct Wanted<'a> {
    ids: HashMap<Vec<u8>, Bson>,
    /// The conditions of changes, by the record that they are about.
    conditions: HashMap<Vec<u8>, Vec<Conditional<'a>>>,
    /// Whole documents.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_writers_that_met_pause_for_different_times() {
        let pause = Duration::from_millis(100);
        assert_eq!(jittered(pause, 0), Duration::from_millis(50));
        assert_eq!(jittered(pause, u128::MAX), pause);
        let middle = jittered(pause, u128::from(u32::MAX / 2));
        assert!(middle > Duration::from_millis(74) && middle < Duration::from_millis(76), "{middle:?}");
    }
}
