//! A commit that changes prepare keys: the keys and the commit's document are written in one transaction, so neither a refusal nor a crash
//! leaves a key without its commit. A move of a key without a commit (`prepare.rs`) uses the same path.
//!
//! INVARIANTS:
//! - Every key that is evaluated is also written, so the server lets only one of two transactions on a key succeed.
//! - A refusal relies on a key that a majority confirmed after it was read: an aborted transaction confirms nothing.
//! - A commit is resent until its outcome is known: the server answers a repeated commit like the first.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use annals_core::{CommitError, Invalid, KeyChanges, KeyHolder, StoreError, Timestamp};
use annals_system::{Instant, sleep};
use mongodb::ClientSession;
use mongodb::bson::{RawDocumentBuf, doc};
use mongodb::error::{Error, TRANSIENT_TRANSACTION_ERROR, UNKNOWN_TRANSACTION_COMMIT_RESULT};
use mongodb::options::ReadConcern;
use uuid::Uuid;

use super::Log;
use super::batch::{Outcome, judged};
use crate::answers::no_answer;
use crate::connect::strict;
use crate::layout::prepare;
use crate::layout::writer::Writer;
use crate::refused::{COLLECTION_UUID_MISMATCH, code_of, is_garbled, malformed, message_of, not_ready};
use crate::sessions::{Session, was_ended};

/// Pause between two attempts; it grows.
const PAUSE: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// The content of one transaction.
#[derive(Clone, Copy)]
pub(super) struct Task<'a> {
    pub(super) keys: &'a KeyChanges,
    /// The commit's collection, its UUID and the document. `None` if keys change without a commit: a taken key is then reported before one
    /// that is not held.
    pub(super) commit: Option<(&'a str, Uuid, &'a [u8])>,
    pub(super) now: Timestamp,
}

/// The outcome of a commit with keys.
pub(super) enum Keyed {
    Outcome(Outcome),
    /// `key_taken` or `key_not_held`: nothing was written.
    Refused(CommitError),
}

/// The holders of the keys that a commit names; keys without a holder are absent.
type Holders = HashMap<(String, String), KeyHolder>;

/// Prepares the collections of these keys.
pub(super) async fn ready(log: &Log, keys: &KeyChanges) -> Result<(), CommitError> {
    for name in keys.names().map(|(name, _)| &**name).collect::<BTreeSet<_>>() {
        let collection = prepare::collection(name, || path_of(keys, name))?;
        log.keys_schema.ensure(&collection).await.map_err(not_ready)?;
    }
    Ok(())
}

fn path_of(keys: &KeyChanges, name: &str) -> String {
    let place = keys.release.iter().position(|release| *release.name == *name);
    let place = place.map(|at| format!("release[{at}].name"));
    let reserved = || keys.reserve.iter().position(|reserve| *reserve.name == *name).unwrap_or_default();
    place.unwrap_or_else(|| format!("reserve[{}].name", reserved()))
}

fn collection(name: &str) -> Result<String, Invalid> {
    prepare::collection(name, || "keys".to_owned())
}

/// Returns why these changes would be refused now, if so.
pub(super) async fn refusal(log: &Log, keys: &KeyChanges, now: Timestamp) -> Result<Option<CommitError>, CommitError> {
    let mut holders = Holders::new();
    for (name, key) in keys.names() {
        if let Some(holder) = confirmed(log, name, key).await? {
            holders.insert((name.to_string(), key.to_string()), holder);
        }
    }
    Ok(judge(Task { keys, commit: Some(("", Uuid::nil(), &[])), now }, &holders).err())
}

fn judge(task: Task<'_>, holders: &Holders) -> Result<Vec<Change>, CommitError> {
    let of = |name: &str, key: &str| holders.get(&(name.to_owned(), key.to_owned())).cloned();
    let Task { keys, commit, now } = task;
    if commit.is_none() {
        KeyChanges { release: Vec::new(), reserve: keys.reserve.clone() }.judge(of, now)?;
    }
    let made = keys.judge(of, now)?;
    Ok(made.into_iter().map(|((name, key), holder)| (name.to_owned(), key.to_owned(), holder)).collect())
}

/// A key's name, the key, and its holder after the change.
type Change = (String, String, Option<KeyHolder>);

/// Reads the holder of a key with a linearizable read, which a majority confirms.
async fn confirmed(log: &Log, name: &str, key: &str) -> Result<Option<KeyHolder>, CommitError> {
    let keys = log.keys.collection::<RawDocumentBuf>(&collection(name)?);
    let find = keys.find_one(doc! { "_id": key }).read_concern(ReadConcern::linearizable()).max_time(log.outcome_time);
    let found = tokio::time::timeout(log.outcome_time, find).await;
    let found = found.map_err(|_| no_answer(log.outcome_time));
    let found = found.and_then(|found| found.map_err(|error| message_of(&error))).map_err(|why| {
        StoreError::Unreachable(format!("the key {key:?} of {name} could not be confirmed by a majority: {why}"))
    })?;
    found.map(|found| holder(log, &collection(name)?, &found)).transpose()
}

fn holder(log: &Log, collection: &str, found: &RawDocumentBuf) -> Result<KeyHolder, CommitError> {
    prepare::read(found).map_err(|why| malformed(&log.keys, collection, found, why).into())
}

/// Inserts a commit and changes its keys, or does neither.
pub(super) async fn carry_out(log: &Log, task: Task<'_>) -> Result<Keyed, CommitError> {
    let ends = Instant::now() + log.outcome_time;
    let mut pause = PAUSE;
    loop {
        let trying = attempt(log, task, ends);
        // Whether the commit may have been sent.
        let unknown = match ends.limit(trying).await {
            Some(Ok(Attempt::Ended(outcome))) => {
                if let Some((_, _, document)) = task.commit {
                    log.bulk.counts.batch(u64::from(outcome == Outcome::Stored), document.len());
                }
                return Ok(Keyed::Outcome(outcome));
            }
            Some(Ok(Attempt::Refused(refusal, mut holders))) => {
                if still(log, task, &refusal, &mut holders).await? {
                    return Ok(Keyed::Refused(refusal));
                }
                false
            }
            Some(Ok(Attempt::Again(error))) => {
                tracing::debug!(%error, "a change of keys met another transaction; trying again");
                false
            }
            Some(Err(refusal)) => return Err(refusal),
            None => true,
        };
        if Instant::now() + pause >= ends {
            let outcome = match unknown {
                true => Outcome::Unknown(no_answer(log.outcome_time)),
                false => Outcome::NotSent,
            };
            return Ok(Keyed::Outcome(outcome));
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Returns whether the refusal holds after a majority has confirmed the key that it names.
async fn still(log: &Log, task: Task<'_>, refusal: &CommitError, holders: &mut Holders) -> Result<bool, CommitError> {
    let (CommitError::KeyTaken { name, key } | CommitError::KeyNotHeld { name, key }) = refusal else {
        return Ok(true);
    };
    let place = (name.clone(), key.clone());
    match confirmed(log, name, key).await? {
        Some(holder) => drop(holders.insert(place, holder)),
        None => drop(holders.remove(&place)),
    }
    Ok(judge(task, holders).is_err_and(|again| again == *refusal))
}

enum Attempt {
    Ended(Outcome),
    Refused(CommitError, Holders),
    /// Nothing was written: another transaction came first, or the server was lost before the commit.
    Again(Error),
}

async fn attempt(log: &Log, task: Task<'_>, ends: Instant) -> Result<Attempt, CommitError> {
    let mut taken = match begin(log).await {
        Ok(taken) => taken,
        Err(error) => return Ok(Attempt::Again(error)),
    };
    let attempt = match fill(log, task, &mut taken.session).await {
        Ok(Filled::Written) => {
            let began = Instant::now();
            let attempt = finish(&mut taken.session, ends).await;
            log.bulk.counts.times.synced(began.elapsed());
            taken.done();
            return Ok(attempt);
        }
        Ok(Filled::Judged(refusal, holders)) => Ok(Attempt::Refused(refusal, holders)),
        Ok(Filled::Insert(outcome)) => Ok(Attempt::Ended(outcome)),
        Err(Fault::Server(error)) if lasts(&error) => Ok(Attempt::Ended(Outcome::Refused(message_of(&error)))),
        Err(Fault::Server(error)) => Ok(Attempt::Again(error)),
        Err(Fault::Read(error)) => Err(error),
    };
    taken.abort().await;
    attempt
}

async fn begin(log: &Log) -> mongodb::error::Result<Session> {
    let mut taken = log.means.sessions.take().await?;
    let begun = taken.session.start_transaction().read_concern(ReadConcern::snapshot());
    begun.write_concern(strict()).await?;
    Ok(taken)
}

/// Returns whether a retry cannot help: the user lacks the right, there is no room, or the server rejects the document. Temporary errors
/// have a label, except for a key that another transaction has just inserted.
fn lasts(error: &Error) -> bool {
    const DUPLICATE_KEY: i32 = 11000;
    let passes = error.contains_label(TRANSIENT_TRANSACTION_ERROR) || was_ended(error);
    !passes && code_of(error).is_some_and(|code| code != DUPLICATE_KEY)
}

async fn finish(session: &mut ClientSession, ends: Instant) -> Attempt {
    loop {
        let error = match session.commit_transaction().await {
            Ok(()) => return Attempt::Ended(Outcome::Stored),
            Err(error) => error,
        };
        if !error.contains_label(UNKNOWN_TRANSACTION_COMMIT_RESULT) && !was_ended(&error) {
            let given_up = error.contains_label(TRANSIENT_TRANSACTION_ERROR);
            let unknown = |error| Attempt::Ended(Outcome::Unknown(message_of(&error)));
            return if given_up { Attempt::Again(error) } else { unknown(error) };
        }
        if Instant::now() + PAUSE_MAX >= ends {
            return Attempt::Ended(Outcome::Unknown(message_of(&error)));
        }
        sleep(PAUSE_MAX).await;
    }
}

enum Filled {
    Written,
    Judged(CommitError, Holders),
    /// The outcome of inserting the commit, if it was not stored.
    Insert(Outcome),
}

enum Fault {
    Server(Error),
    Read(CommitError),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Server(error)
    }
}

async fn fill(log: &Log, task: Task<'_>, session: &mut ClientSession) -> Result<Filled, Fault> {
    let holders = holders(log, task.keys, session).await?;
    let changes = match judge(task, &holders) {
        Ok(changes) => changes,
        Err(refusal) => return Ok(Filled::Judged(refusal, holders)),
    };
    for (name, key, holder) in changes {
        let name = self::collection(&name).map_err(|invalid| Fault::Read(invalid.into()))?;
        let keys = log.keys.collection::<RawDocumentBuf>(&name);
        let one = doc! { "_id": &key };
        match holder {
            Some(holder) => {
                let document = prepare::write(&key, &holder).map_err(Error::custom)?;
                keys.replace_one(one, document).upsert(true).session(&mut *session).await.map(drop)?;
            }
            None => keys.delete_one(one).session(&mut *session).await.map(drop)?,
        }
    }
    let Some((collection, into, document)) = task.commit else { return Ok(Filled::Written) };
    let mut command = Writer::with_capacity(document.len() + 200);
    command.text("insert", collection);
    command.array("documents", |array| array.whole("0", document));
    command.uuid("collectionUUID", into);
    let command = command.raw().map_err(Error::custom)?;
    let answer = match log.database.run_raw_command(command).session(&mut *session).await {
        Err(error) if is_garbled(&error) => return Ok(Filled::Insert(Outcome::Duplicate(Vec::new()))),
        Err(error) if code_of(&error) == Some(COLLECTION_UUID_MISMATCH) => {
            return Ok(Filled::Insert(Outcome::Replaced));
        }
        answer => answer?,
    };
    let answer = RawDocumentBuf::try_from(&answer).map_err(Error::custom)?;
    match judged(&answer) {
        Outcome::Stored => Ok(Filled::Written),
        // Another transaction came first.
        Outcome::Unknown(why) => Err(Error::custom(why).into()),
        outcome => Ok(Filled::Insert(outcome)),
    }
}

/// Reads the holders of the keys in the transaction's snapshot.
async fn holders(log: &Log, keys: &KeyChanges, session: &mut ClientSession) -> Result<Holders, Fault> {
    let mut wanted: HashMap<&str, BTreeSet<&str>> = HashMap::new();
    for (name, key) in keys.names() {
        wanted.entry(name).or_default().insert(key);
    }
    let mut holders = Holders::new();
    for (name, keys) in wanted {
        let collection = collection(name).map_err(|invalid| Fault::Read(invalid.into()))?;
        let ids: Vec<&str> = keys.into_iter().collect();
        let found = log.keys.collection::<RawDocumentBuf>(&collection);
        let mut found = found.find(doc! { "_id": { "$in": ids } }).session(&mut *session).await?;
        while let Some(found) = found.next(&mut *session).await.transpose()? {
            // Only strings are requested, and a string equals no other type.
            let key = found.get_str("_id").unwrap_or_default().to_owned();
            let holder = holder(log, &collection, &found).map_err(Fault::Read)?;
            holders.insert((name.to_owned(), key), holder);
        }
    }
    Ok(holders)
}
