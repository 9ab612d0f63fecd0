//! Appends verdicts: they are checked against the stream's state at majority, and stored by one transaction that moves the state from its
//! expected value.
//!
//! ```text
//! judge ─▶ repeat, moved ─▶ answer
//!   ▲ └──▶ begin: state {progress, head} moved · offset moved · entries inserted ─▶ commit, majority ─▶ answer
//!   │                └ not there any more ┐                                           └ unknown ─▶ commit again … ─▶ fence ─▶ state
//!   └───────────────────────────────────┴─────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! So if two filters write to one stream, one comes first, and the other is checked against the result. INVARIANT: every answer is based
//! on data at majority.

use annals_core::bson::raw::RawDocumentBuf;
use annals_core::{Appended, Code, Invalid, StoreError, StreamError, Verdicts};
use annals_system::Instant;
use async_trait::async_trait;
use mongodb::ClientSession;
use mongodb::bson::{Document, doc};
use mongodb::error::Error;

use super::collections::Collections;
use super::meta::{self, Meta};
use super::reader::{refused, repeat};
use super::{Inner, entries};
use crate::layout::names::EVENT_LOG_METADATA;
use crate::layout::stream::NO_PARTITION;
use crate::layout::writer::decimal;
use crate::refused::message_of;
use crate::transaction::{Backoff, Ended, Fill, NotInserted, TIME_MAX, attempt, insert};

/// Why nothing was stored.
enum Left {
    /// The stream is not in the expected state.
    Moved,
    /// An entry was refused.
    Refused(StoreError),
}

pub(super) async fn append(inner: &Inner, verdicts: &Verdicts) -> Result<Appended, StreamError> {
    told_from_none(verdicts)?;
    within_log(inner, verdicts).await?;
    let collections = &inner.collections;
    let known = inner.known(&verdicts.stream);
    let begin = || meta::begin(collections, (&verdicts.stream, verdicts.public), &inner.identity, inner.create);
    known.collection.get_or_try_init(begin).await?;
    let _turn = known.turn.lock().await;
    let ends = Instant::now() + TIME_MAX;
    let mut backoff = Backoff::default();
    // The token of an append that may have succeeded in an earlier iteration.
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
        let moves = Moves { collections, verdicts, meta: &meta, head, by: &by, entries: &due };
        let error = match attempt(inner.log.means(), &moves, ends).await {
            Ended::Stored => {
                inner.waiting.moved(&verdicts.stream, head);
                return Ok(Appended { positions: meta.head..head, duplicate: false });
            }
            Ended::Left(Left::Moved) => continue,
            Ended::Left(Left::Refused(error)) => return Err(error.into()),
            Ended::Refused(error) => {
                let sentence = format!("MongoDB refuses the verdicts: {}", message_of(&error));
                return Err(StoreError::ReadOnly(sentence).into());
            }
            Ended::Again(error) => error,
            // After the second unknown outcome there is no time left to resolve it.
            Ended::Unknown(error) if unknown.is_some() => return Err(unreachable(&error)),
            Ended::Unknown(error) => {
                fence(collections, &verdicts.stream).await.map_err(|_| unreachable(&error))?;
                unknown = Some(by);
                continue;
            }
        };
        if Instant::now() >= ends {
            return Err(unreachable(&error));
        }
        backoff.pause(inner.random.bits()).await;
    }
}

fn unreachable(error: &Error) -> StreamError {
    StoreError::Unreachable(message_of(error)).into()
}

/// Refuses the partition whose text the layout uses for "no partition".
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

/// Waits until a transaction on this stream has ended in either way, by writing to the document that it writes to.
async fn fence(collections: &Collections, stream: &str) -> mongodb::error::Result<()> {
    let states = collections.database.collection::<Document>(&collections.states);
    states.update_one(doc! { "_id": stream }, doc! { "$inc": { "fence": 1_i64 } }).await.map(|_| ())
}

/// The content of a transaction.
struct Moves<'a> {
    collections: &'a Collections,
    verdicts: &'a Verdicts,
    /// The expected state.
    meta: &'a Meta,
    head: u64,
    by: &'a str,
    entries: &'a [RawDocumentBuf],
}

#[async_trait]
impl Fill for Moves<'_> {
    type Left = Left;

    async fn fill(&self, session: &mut ClientSession) -> mongodb::error::Result<Result<(), Left>> {
        let Self { collections, verdicts, meta, head, by, entries } = self;
        let database = &collections.database;
        let states = database.collection::<Document>(&collections.states);
        let believed = doc! { "_id": &*verdicts.stream, "progress": meta.progress as i64, "head": meta.head as i64 };
        let then = doc! { "$set": { "progress": verdicts.to as i64, "head": *head as i64, "by": *by } };
        if states.update_one(believed, then).session(&mut *session).await?.matched_count != 1 {
            return Ok(Err(Left::Moved));
        }
        if entries.is_empty() {
            return Ok(Ok(()));
        }
        let offsets = database.collection::<Document>(EVENT_LOG_METADATA);
        let offset = doc! { "$set": { "NextEventOffset": decimal(*head) } };
        offsets.update_one(doc! { "_id": &meta.collection }, offset).upsert(true).session(&mut *session).await?;
        let error = insert(database, session, &meta.collection, entries).await?;
        Ok(error.map_or(Ok(()), |error| Err(Left::Refused(not_inserted(&meta.collection, &error.into())))))
    }
}

/// Returns the error for an entry that was refused. The state was the expected one, so an existing entry was not written by this store.
fn not_inserted(collection: &str, error: &NotInserted) -> StoreError {
    let Some((_, value)) = &error.duplicate else {
        return StoreError::ReadOnly(format!("MongoDB refuses an entry of {collection}: {}", error.message));
    };
    let what = if error.has_same_id() { "at its position" } else { "of its event" };
    let sentence = format!(
        "{collection} has an entry {what} that this store has not written ({value}); stop the other software that writes to it"
    );
    StoreError::other(Code::MalformedDocument, sentence)
}
