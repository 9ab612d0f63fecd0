//! Appending verdicts: judged by the stream's state at majority, stored by one transaction that moves the state from there.
//!
//! ```text
//! judge ─▶ repeat, moved ─▶ answer
//!   ▲ └──▶ begin: state {progress, head} moved · offset moved · entries inserted ─▶ commit, majority ─▶ answer
//!   │                └ not there any more ┐                                           └ unknown ─▶ commit again … ─▶ fence ─▶ state
//!   └───────────────────────────────────┴─────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! So of two filters that write to one stream one comes first, and the other is judged by what that left. Nothing is answered that does
//! not rest on majority.

use std::time::Duration;

use annals_core::bson::raw::{RawArrayBuf, RawDocumentBuf, cstr};
use annals_core::{Appended, Code, Invalid, StoreError, StreamError, Verdicts};
use mongodb::ClientSession;
use mongodb::bson::{Document, doc};
use mongodb::error::{Error, TRANSIENT_TRANSACTION_ERROR, UNKNOWN_TRANSACTION_COMMIT_RESULT};
use mongodb::options::ReadConcern;
use tokio::time::Instant;

use super::collections::Collections;
use super::meta::{self, Meta};
use super::reader::{refused, repeat};
use super::{Inner, entries};
use crate::connect::strict;
use crate::layout::names::EVENT_LOG_METADATA;
use crate::layout::stream::NO_PARTITION;
use crate::layout::writer::decimal;
use crate::refused::{code_of, message_of};
use crate::sessions::was_ended;

/// How long a transaction is tried again that the server gave up, or of which it is not known whether it happened.
const TIME_MAX: Duration = Duration::from_secs(30);
/// Between two tries, at first and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(200));
/// Bytes of one command, but for one entry that is larger; the server takes 16 MiB.
const COMMAND_BYTES_MAX: usize = 12 * 1024 * 1024;

/// How a try ended.
enum Try {
    Stored,
    /// The stream is not where it was believed to be; nothing was stored.
    Moved,
    /// The server gave it up, and nothing was stored.
    Again(Error),
    /// The server does not take it.
    Refused(StoreError),
    /// The commit was sent, and its outcome could not be found out in time.
    Unknown(Error),
}

pub(super) async fn append(inner: &Inner, verdicts: &Verdicts) -> Result<Appended, StreamError> {
    told_from_none(verdicts)?;
    within_log(inner, verdicts).await?;
    let collections = &inner.collections;
    let known = inner.known(&verdicts.stream);
    let begin = || meta::begin(collections, &verdicts.stream, &inner.identity, inner.create);
    known.collection.get_or_try_init(begin).await?;
    let _turn = known.turn.lock().await;
    let ends = now() + TIME_MAX;
    let mut pause = PAUSES.0;
    // An append that may have happened in an earlier round of the loop.
    let mut unknown = None;
    loop {
        let meta = meta::read(collections, &verdicts.stream).await.map_err(refused)?;
        let gone = || StoreError::Damaged(format!("{}: {:?} is gone", collections.states, verdicts.stream));
        let meta = meta.ok_or_else(gone)?;
        let duplicate = unknown.is_none() || meta.by != unknown;
        if verdicts.from != meta.progress {
            if verdicts.to > meta.progress {
                return Err(StreamError::Moved { from: verdicts.from, progress: meta.progress });
            }
            let first = repeat(collections, &meta, verdicts).await?;
            inner.waiting.moved(&verdicts.stream, meta.head);
            return Ok(Appended { duplicate, ..first });
        }
        let due = entries::of(collections, &verdicts.included, meta.head).await?;
        let head = meta.head + due.len() as u64;
        let by = format!("{:032x}", inner.random.bits());
        let moves = Moves { verdicts, meta: &meta, head, by: &by };
        let error = match attempt(inner, &moves, &due, ends).await {
            Try::Stored => {
                inner.waiting.moved(&verdicts.stream, head);
                return Ok(Appended { positions: meta.head..head, duplicate: false });
            }
            Try::Moved => continue,
            Try::Refused(error) => return Err(error.into()),
            Try::Again(error) => error,
            // The second time there is no time left to find it out again.
            Try::Unknown(error) if unknown.is_some() => return Err(unreachable(&error)),
            Try::Unknown(error) => {
                fence(collections, &verdicts.stream).await.map_err(|_| unreachable(&error))?;
                unknown = Some(by);
                continue;
            }
        };
        if now() >= ends {
            return Err(unreachable(&error));
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSES.1);
    }
}

/// A deadline's clock; nothing of it is stored.
fn now() -> Instant {
    Instant::now()
}

fn unreachable(error: &Error) -> StreamError {
    StoreError::Unreachable(message_of(error)).into()
}

/// The layout has a text for no partition, so nobody else can have it.
fn told_from_none(verdicts: &Verdicts) -> Result<(), Invalid> {
    let is_none = |included: &annals_core::Included| included.partition.as_deref() == Some(NO_PARTITION);
    match verdicts.included.iter().position(is_none) {
        Some(at) => {
            let message = format!("{NO_PARTITION} stands for no partition on MongoDB; leave the partition out");
            Err(Invalid::new(Code::InvalidId, format!("included[{at}].partition"), message))
        }
        None => Ok(()),
    }
}

async fn within_log(inner: &Inner, verdicts: &Verdicts) -> Result<(), StreamError> {
    if verdicts.to <= inner.log.seen() {
        return Ok(());
    }
    let head = inner.log.head().await.map_err(refused)?;
    if verdicts.to > head { Err(StreamError::BeyondLog { to: verdicts.to, head }) } else { Ok(()) }
}

/// Waits until a transaction on this stream has ended, one way or the other: it writes where that wrote.
async fn fence(collections: &Collections, stream: &str) -> mongodb::error::Result<()> {
    let states = collections.database.collection::<Document>(&collections.states);
    states.update_one(doc! { "_id": stream }, doc! { "$inc": { "fence": 1_i64 } }).await.map(|_| ())
}

/// What a transaction makes of a stream.
struct Moves<'a> {
    verdicts: &'a Verdicts,
    /// How it is believed to be.
    meta: &'a Meta,
    head: u64,
    by: &'a str,
}

async fn attempt(inner: &Inner, moves: &Moves<'_>, entries: &[RawDocumentBuf], ends: Instant) -> Try {
    let filled = async {
        let mut taken = inner.log.means().sessions.take().await?;
        let session = &mut taken.session;
        session.start_transaction().read_concern(ReadConcern::snapshot()).write_concern(strict()).await?;
        match fill(&inner.collections, session, moves, entries).await {
            Ok(None) => Ok(Ok(taken)),
            Ok(Some(not)) => {
                taken.abort().await;
                Ok(Err(not))
            }
            Err(error) => {
                taken.abort().await;
                Err(error)
            }
        }
    };
    match filled.await {
        Ok(Ok(mut taken)) => {
            let tried = commit(&mut taken.session, ends).await;
            taken.done();
            tried
        }
        Ok(Err(not)) => not,
        Err(error) => judged(error),
    }
}

/// An error before the commit was sent: nothing was stored.
fn judged(error: Error) -> Try {
    if error.contains_label(TRANSIENT_TRANSACTION_ERROR) || was_ended(&error) || code_of(&error).is_none() {
        return Try::Again(error);
    }
    Try::Refused(StoreError::ReadOnly(format!("MongoDB refuses the verdicts: {}", message_of(&error))))
}

/// Sends the commit until its outcome is known: the server knows which of its transactions happened.
async fn commit(session: &mut ClientSession, ends: Instant) -> Try {
    loop {
        let error = match session.commit_transaction().await {
            Ok(()) => return Try::Stored,
            Err(error) => error,
        };
        if !error.contains_label(UNKNOWN_TRANSACTION_COMMIT_RESULT) && !was_ended(&error) {
            return judged(error);
        }
        tracing::warn!(error = message_of(&error), "whether verdicts were stored is unknown; asking again");
        if now() >= ends {
            return Try::Unknown(error);
        }
        tokio::time::sleep(PAUSES.1).await;
    }
}

/// Writes everything; otherwise says why the transaction is of no use.
async fn fill(
    collections: &Collections,
    session: &mut ClientSession,
    Moves { verdicts, meta, head, by }: &Moves<'_>,
    entries: &[RawDocumentBuf],
) -> mongodb::error::Result<Option<Try>> {
    let database = &collections.database;
    let states = database.collection::<Document>(&collections.states);
    let believed = doc! { "_id": &*verdicts.stream, "progress": meta.progress as i64, "head": meta.head as i64 };
    let then = doc! { "$set": { "progress": verdicts.to as i64, "head": *head as i64, "by": *by } };
    if states.update_one(believed, then).session(&mut *session).await?.matched_count != 1 {
        return Ok(Some(Try::Moved));
    }
    if entries.is_empty() {
        return Ok(None);
    }
    let offsets = database.collection::<Document>(EVENT_LOG_METADATA);
    let offset = doc! { "$set": { "NextEventOffset": decimal(*head) } };
    offsets.update_one(doc! { "_id": &meta.collection }, offset).upsert(true).session(&mut *session).await?;
    for part in parts(entries) {
        let answer = database.run_raw_command(insert(&meta.collection, part)).session(&mut *session).await?;
        if let Some(error) = answer.get_array("writeErrors").ok().and_then(|errors| errors.first()?.as_document()) {
            return Ok(Some(not_inserted(&meta.collection, error)));
        }
    }
    Ok(None)
}

/// Entries that fit into one command.
fn parts(entries: &[RawDocumentBuf]) -> Vec<&[RawDocumentBuf]> {
    let mut parts = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for (at, entry) in entries.iter().enumerate() {
        let size = entry.as_bytes().len() + 16;
        if at > start && bytes + size > COMMAND_BYTES_MAX {
            parts.push(&entries[start..at]);
            (start, bytes) = (at, 0);
        }
        bytes += size;
    }
    parts.push(&entries[start..]);
    parts
}

/// A command of our own: the driver's own insert leaves out which index a duplicate is in.
fn insert(collection: &str, entries: &[RawDocumentBuf]) -> RawDocumentBuf {
    let mut documents = RawArrayBuf::new();
    entries.iter().for_each(|entry| documents.push(&**entry));
    let mut command = RawDocumentBuf::new();
    command.append(cstr!("insert"), collection);
    command.append(cstr!("ordered"), true);
    command.append(cstr!("documents"), documents);
    command
}

/// The state was where it was believed to be, so an entry that is there already is not of this store.
fn not_inserted(collection: &str, error: &Document) -> Try {
    const DUPLICATE_KEY: i32 = 11000;
    let message = error.get_str("errmsg").unwrap_or("the server gave no reason");
    if !error.get_i32("code").is_ok_and(|code| code == DUPLICATE_KEY) {
        return Try::Refused(StoreError::ReadOnly(format!("MongoDB refuses an entry of {collection}: {message}")));
    }
    let of_position = error.get_document("keyPattern").is_ok_and(|keys| keys.contains_key("_id"));
    let what = if of_position { "at its position" } else { "of its event" };
    let value = error.get_document("keyValue").map(ToString::to_string).unwrap_or_default();
    let sentence = format!(
        "{collection} has an entry {what} that this store has not written ({value}); stop the other software that writes to it"
    );
    Try::Refused(StoreError::other(Code::MalformedDocument, sentence))
}
