//! Runs jobs that arrived together as one transaction: reads the records, evaluates the changes, writes them and their notes. See
//! `write.rs`.
//!
//! INVARIANTS:
//! - Everything that a job is evaluated against is written by its transaction, or by one that conflicts with it. That is: records that it
//!   changes, records that it checks (checks.rs), and the writer that represents its catalog entries (fence.rs). So two transactions on
//!   different records never wait for each other, and two that depend on each other never both commit.
//! - No transaction is based on a pending entry: the collections that it writes have all their indexes before it begins (create.rs).
//! - A commit is resent until its outcome is known: the server answers a repeat on the same session like the first. The outcome is never
//!   inferred from the presence of what was written.
//! - A refusal is returned once the data it relies on is at majority. Either the transaction in which it was evaluated ensures that, or a
//!   separate write that changes nothing and waits for all earlier ones. That write goes to a document that no transaction writes.
//!
//! Failures: if another transaction came first, the server aborted this one, or its session was ended (the process was believed dead), the
//! transaction is retried. If a connection broke or a primary stepped down during the commit, the commit is repeated. If the server does
//! not respond within `TIME_MAX`, the outcome is unknown and reported as such.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use annals_core::bson::{Document, doc};
use annals_core::{Clock, Randomness, RecordError, Revision, StoreError};
use annals_system::{Instant, sleep};
use mongodb::error::{Error, TRANSIENT_TRANSACTION_ERROR, UNKNOWN_TRANSACTION_COMMIT_RESULT};
use mongodb::options::ReadConcern;
use mongodb::{ClientSession, Database};

use super::catalog::Known;
use super::commands::{self, Refused};
use super::create::Creator;
use super::expiry::Due;
use super::feed::{self, Feeds, STATE};
use super::fence::{Entries, Fence};
use super::judge::{Judge, encoded};
use super::look::look;
use super::revisions::Revisions;
use super::write::Work;
use super::{checks, markers};
use crate::connect::strict;
use crate::refused::message_of;
use crate::sessions::{Sessions, was_ended};

/// How long a transaction is retried, and its commit repeated.
const TIME_MAX: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(200);

pub(super) type Answer = Result<Vec<Revision>, RecordError>;

/// The outcome of jobs.
#[derive(Default)]
pub(super) struct Outcome {
    /// One answer per job.
    pub(super) answers: Vec<Answer>,
    /// The newest change numbers of the feeds.
    pub(super) feeds: Feeds,
}

impl Outcome {
    /// Returns the same error for every job.
    fn all(jobs: &[Work], error: &StoreError) -> Self {
        Self { answers: jobs.iter().map(|_| Err(error.clone().into())).collect(), feeds: Feeds::new() }
    }
}

/// The outcome of an attempt.
enum Attempt {
    /// Every job has its answer.
    Answered(Outcome),
    /// Nothing was written: the server refused a change. The job is retried alone, so that its refusal does not rely on other jobs that
    /// may still fail.
    Refused { job: usize, error: RecordError },
    /// Nothing was written: another transaction came first.
    Again,
    /// Nothing was written: the catalog entries are stale.
    Stale,
    /// The commit was sent, and its outcome is unknown.
    Unknown(Error),
}

/// The order in which changes are sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// The order of the changes.
    Changes,
    /// By collection, in the given order within each: this needs few commands.
    Collections,
}

/// The database of the records, and what writers share.
pub(super) struct Place {
    pub(super) database: Database,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) random: Arc<dyn Randomness>,
    pub(super) revisions: Revisions,
    pub(super) fence: Fence,
    pub(super) creator: Arc<Creator>,
    /// When to look for expired records.
    pub(super) due: Due,
    pub(super) sessions: Arc<Sessions>,
}

/// Applies jobs in order, each completely or not at all.
pub(super) async fn run(place: &Place, jobs: &[Work]) -> Outcome {
    if let Some(outcome) = together(place, jobs).await {
        return outcome;
    }
    let mut outcome = Outcome::default();
    for job in jobs {
        let alone = together(place, std::slice::from_ref(job)).await.unwrap_or_default();
        outcome.answers.extend(alone.answers);
        outcome.feeds.extend(alone.feeds);
    }
    outcome
}

/// Runs the jobs in one transaction; `None` if they must be run one by one. If the server does not respond in time, as when it is cut off
/// from the majority, the outcome is unknown.
async fn together(place: &Place, jobs: &[Work]) -> Option<Outcome> {
    let trying = tokio::time::timeout(TIME_MAX + PAUSE_MAX, until_answered(place, jobs)).await;
    trying.unwrap_or_else(|_| {
        let silent = StoreError::Unreachable("MongoDB did not answer in time".to_owned());
        Some(Outcome::all(jobs, &silent))
    })
}

async fn until_answered(place: &Place, jobs: &[Work]) -> Option<Outcome> {
    let ends = Instant::now() + TIME_MAX;
    let mut pause = PAUSE;
    let mut names = BTreeSet::new();
    jobs.iter().for_each(|job| job.add_collections(&mut names));
    let mut order = if names.len() > 1 { Order::Collections } else { Order::Changes };
    loop {
        let entries = match place.fence.entries(&names).await {
            Ok(entries) => entries,
            Err(error) => return Some(Outcome::all(jobs, &error)),
        };
        match ready(place, &entries).await {
            Ok(true) => {}
            Ok(false) => continue,
            Err(RecordError::Store(error @ StoreError::Unreachable(_))) => return Some(Outcome::all(jobs, &error)),
            Err(_) if jobs.len() > 1 => return None,
            Err(error) => return Some(Outcome { answers: vec![Err(error)], feeds: Feeds::new() }),
        }
        let error = match attempt(place, &entries, jobs, order, ends).await {
            Ok(Attempt::Answered(outcome)) => return Some(outcome),
            Ok(Attempt::Refused { .. }) if jobs.len() > 1 => return None,
            // In order of collections, another refused change may precede it in the batch; the answer is the first refusal in order of
            // changes.
            Ok(Attempt::Refused { .. }) if order == Order::Collections => {
                order = Order::Changes;
                continue;
            }
            Ok(Attempt::Refused { job, error }) => {
                debug_assert_eq!(job, 0);
                let answers = vec![settled(place, Err(error)).await];
                return Some(Outcome { answers, feeds: Feeds::new() });
            }
            Ok(Attempt::Stale) if Instant::now() < ends => continue,
            Ok(Attempt::Again | Attempt::Stale) => None,
            Ok(Attempt::Unknown(error)) => return Some(Outcome::all(jobs, &unreachable(&error))),
            Err(error) if error.contains_label(TRANSIENT_TRANSACTION_ERROR) || was_ended(&error) => Some(error),
            Err(error) => return Some(Outcome::all(jobs, &unreachable(&error))),
        };
        if Instant::now() >= ends {
            let sentence = error.map_or("it lost to other writers each time".to_owned(), |error| message_of(&error));
            return Some(Outcome::all(jobs, &StoreError::Unreachable(sentence)));
        }
        sleep(jittered(pause, place.random.bits())).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Creates the collections of pending entries. Returns false if there were some, because those entries have changed.
///
/// A caller has done that before its job (`MongoRecords::write`). An entry is pending here if it was cached long ago, or if other software
/// deleted the catalog and the collection was declared again since.
async fn ready(place: &Place, entries: &Entries) -> Result<bool, RecordError> {
    let pending = entries.collections.iter().filter(|(_, known)| known.pending);
    let pending: Vec<&String> = pending.map(|(name, _)| name).collect();
    for name in &pending {
        place.creator.ready(name).await?;
    }
    Ok(pending.is_empty())
}

/// Returns a random pause between half and all of the given one, so that two conflicting writers do not conflict again after the same
/// pause.
fn jittered(pause: Duration, bits: u128) -> Duration {
    let half = pause / 2;
    half + half.mul_f64(f64::from(bits as u32) / f64::from(u32::MAX))
}

fn unreachable(error: &Error) -> StoreError {
    StoreError::Unreachable(message_of(error))
}

/// Returns a refusal once the data it relies on is at majority: a write that changes nothing waits for all earlier ones.
async fn settled(place: &Place, refusal: Answer) -> Answer {
    let state = place.database.collection::<Document>(STATE);
    match state.update_one(doc! { "_id": "settled" }, doc! { "$max": { "at": 0_i64 } }).await {
        Ok(_) => refusal,
        Err(error) => Err(unreachable(&error).into()),
    }
}

async fn attempt(
    place: &Place,
    entries: &Entries,
    jobs: &[Work],
    order: Order,
    ends: Instant,
) -> mongodb::error::Result<Attempt> {
    let mut taken = place.sessions.take().await?;
    let session = &mut taken.session;
    session.start_transaction().read_concern(ReadConcern::snapshot()).write_concern(strict()).await?;
    let filled = fill(place, entries, jobs, order, session).await;
    let (outcome, expires) = match filled {
        Ok(Filled::Written { outcome, expires }) => (outcome, expires),
        Ok(Filled::Nothing(answers)) => {
            taken.abort().await;
            let mut settled_answers = Vec::new();
            for answer in answers {
                settled_answers.push(settled(place, answer).await);
            }
            return Ok(Attempt::Answered(Outcome { answers: settled_answers, feeds: Feeds::new() }));
        }
        Ok(Filled::Stale) => {
            taken.abort().await;
            return Ok(Attempt::Stale);
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
    let committed = commit(place, session, ends).await;
    // After the commit: a sweep that ran before it has not seen the marker.
    expires.into_iter().for_each(|at| place.due.at(at));
    taken.done();
    match committed {
        Ok(()) => Ok(Attempt::Answered(outcome)),
        Err(error) if is_unknown(&error) => Ok(Attempt::Unknown(error)),
        Err(error) => Err(error),
    }
}

/// Commits repeatedly until the outcome is known or the time is up.
async fn commit(place: &Place, session: &mut ClientSession, ends: Instant) -> mongodb::error::Result<()> {
    let mut pause = PAUSE;
    loop {
        match session.commit_transaction().await {
            Err(error) if is_unknown(&error) && Instant::now() + pause < ends => {
                sleep(jittered(pause, place.random.bits())).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
            outcome => return outcome,
        }
    }
}

/// Returns whether a commit that failed with this error may have succeeded.
fn is_unknown(error: &Error) -> bool {
    error.contains_label(UNKNOWN_TRANSACTION_COMMIT_RESULT) || was_ended(error)
}

enum Filled {
    Written {
        outcome: Outcome,
        /// The earliest expiry among the records written, in milliseconds.
        expires: Option<i64>,
    },
    /// Everything was refused, or there is nothing to write.
    Nothing(Vec<Answer>),
    /// The catalog entries are stale.
    Stale,
    /// `None` if another transaction came first.
    Refused(usize, Option<RecordError>),
}

async fn fill(
    place: &Place,
    entries: &Entries,
    jobs: &[Work],
    order: Order,
    session: &mut ClientSession,
) -> mongodb::error::Result<Filled> {
    if !place.fence.enter(entries, session).await? {
        return Ok(Filled::Stale);
    }
    let collections = &entries.collections;
    let mut judge = Judge::new(collections, &place.revisions);
    let found = look(place, collections, jobs, session, &mut judge).await?;
    let now = place.clock.now().as_millis();
    let mut answers: Vec<Answer> = Vec::new();
    for (at, job) in jobs.iter().enumerate() {
        let stored = |collection: &String, id| found.get(&(collection.clone(), encoded(id))).map(|stored| &**stored);
        answers.push(match job {
            Work::Changes(changes) => judge.job(at, changes),
            Work::Expired(records) => {
                records.iter().for_each(|(name, id)| judge.expire(at, now, name, id, stored(name, id)));
                Ok(Vec::new())
            }
            Work::Mark(records) => {
                records.iter().for_each(|(name, id)| judge.mark(at, name, id, stored(name, id)));
                Ok(Vec::new())
            }
        });
    }
    if judge.ops.is_empty() && judge.notes.is_empty() && judge.markers.is_empty() {
        return Ok(Filled::Nothing(answers));
    }
    let touches = checks::touches(&judge);
    judge.ops.extend(touches);
    if order == Order::Collections {
        commands::by_collection(&mut judge.ops);
    }
    if let Some(refused) = commands::send(&place.database, session, &judge.ops).await? {
        return Ok(told(collections, &judge, &refused));
    }
    markers::mark(place, session, &judge.markers).await?;
    // Written last: from here on, no other transaction with notes of these collections can commit before this one.
    let feeds = feed::append(&place.database, session, &judge.notes).await?;
    let expires = judge.markers.iter().filter_map(|marker| marker.at).min();
    Ok(Filled::Written { outcome: Outcome { answers, feeds }, expires })
}

/// Splits notes or markers into parts that fit into one command each: an id may be large.
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

fn told(collections: &HashMap<String, Arc<Known>>, judge: &Judge<'_>, refused: &Refused) -> Filled {
    let Some((job, change, op)) = judge.ops.get(refused.op) else { return Filled::Refused(0, None) };
    let error = match collections.get(op.collection()) {
        Some(declared) if !refused.is_overtaken() => Some(refused.told(declared, *change)),
        _ => None,
    };
    Filled::Refused(*job, error)
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
