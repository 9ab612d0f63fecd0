//! Writes a batch of a log as one transaction: the offset, the events, the entries, the aggregates, the held and released commits, and the
//! stream position. So a deposed leader writes nothing, no reader sees part of a batch, and a crash leaves nothing to repair.

use std::collections::VecDeque;
use std::ops::Range;

use annals_system::sleep;
use mongodb::ClientSession;
use mongodb::bson::{Document, RawDocumentBuf, doc};
use mongodb::error::{Error, TRANSIENT_TRANSACTION_ERROR, UNKNOWN_TRANSACTION_COMMIT_RESULT};

use super::Ended;
use super::aggregates::{self, Standing, Standings};
use super::assign::{Batch, CommitKey, Numbered};
use super::bound::{self, Bound};
use super::held;
use super::place::{Place, read_next};
use super::state::{self, Token};
use super::step::{AtStep, Step};
use crate::connect::strict;
use crate::layout::names::{ENTRIES, EVENT_LOG, EVENT_LOG_METADATA, SEQUENCER};
use crate::layout::writer::decimal;
use crate::layout::{entry, event};
use crate::log::Log;
use crate::refused::{code_of, message_of};

/// Approximate limit of the bytes of commits in one transaction.
const BYTES_MAX: usize = 12 * 1024 * 1024;
/// Approximate limit of the events in one transaction.
const EVENTS_MAX: usize = 10_000;
/// Retry limit for transactions that the server aborted.
const TRIES: usize = 100;
/// Attempts with several commits before the transaction is halved.
const TRIES_WHOLE: usize = 25;
/// The size in bytes of the largest document that MongoDB stores.
const DOCUMENT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The outcome of a write.
pub(super) enum Written {
    Done,
    /// A unique index refused one of these commits, so some of them may already be in the log. None of them was written.
    Known(Range<usize>),
    /// The server will never accept these commits; the reason is given for each. Neither they nor the rest of the batch was written.
    Refused(Vec<(CommitKey, String)>),
}

/// The size limit of a transaction. It is reduced if the server reports that its cache is too small.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    bytes: usize,
    events: usize,
}

impl Default for Room {
    fn default() -> Self {
        Self { bytes: BYTES_MAX, events: EVENTS_MAX }
    }
}

impl Room {
    fn halve(&mut self) {
        *self = Self { bytes: (self.bytes / 2).max(1), events: (self.events / 2).max(1) };
    }
}

/// The documents that one transaction writes.
#[derive(Default)]
struct Documents<'a> {
    events: Vec<RawDocumentBuf>,
    entries: Vec<RawDocumentBuf>,
    aggregates: Standings<'a>,
}

/// Writes a batch in as many transactions as its size requires, usually one. Commits that are written are recorded in `place` at once. If
/// the server refuses a transaction because of its content, it is halved until the refused commit is found.
pub(super) async fn write(
    place: &mut Place,
    batch: &Batch<'_>,
    token: Option<&Token>,
    alone: bool,
) -> Result<Written, Ended> {
    if batch.is_empty() {
        return Ok(Written::Done);
    }
    let all = &batch.numbered;
    let room = if alone { Room { bytes: 0, events: 0 } } else { place.room };
    let (mut due, mut refused) = (parts(all, room), Vec::new());
    while let Some(range) = due.pop_front() {
        // Only the last transaction reaches the position, and it includes the rest of the batch. Refused commits must be held before the
        // position is saved.
        let last = due.is_empty() && refused.is_empty();
        let (token, rest) = if last { (token, Some(batch)) } else { (None, None) };
        let part = &all[range.clone()];
        let mut documents = match documents(place, part)? {
            Ok(documents) => documents,
            Err((at, why)) => {
                let at = range.start + at;
                due.push_front(range);
                due = without(due, all, at);
                refused.push((key_of(&all[at]), why));
                continue;
            }
        };
        let next = place.next + documents.events.len() as u64;
        let log = place.log.clone();
        place.aggregates.identify(&log, &mut documents.aggregates).await?;
        let why = match transaction(place, &mut documents, next, rest, token).await? {
            Transacted::Done => {
                place.aggregates.remember(&documents.aggregates);
                (place.at_step)(Step::BatchCommitted);
                place.note(part, next);
                (place.at_step)(Step::BatchTold);
                continue;
            }
            Transacted::Known => return Ok(Written::Known(range)),
            Transacted::Refused(why) => why,
        };
        let Range { start, end } = range;
        match part {
            // Nothing of a commit was refused, so the fault concerns the log.
            [] => return Err(Ended::Damaged(format!("database {}: {}", log.database.name(), why.sentence))),
            [one] if !last || (batch.held.is_empty() && batch.released.is_empty() && token.is_none()) => {
                due = without(due, all, start);
                refused.push((key_of(one), why.sentence));
            }
            // Either the commit or the rest of the batch may be refused: write them separately.
            [_] => due.extend([start..end, end..end]),
            _ => {
                if why.is_room {
                    place.room.halve();
                }
                let middle = start + (end - start) / 2;
                due.push_front(middle..end);
                due.push_front(start..middle);
            }
        }
    }
    Ok(if refused.is_empty() { Written::Done } else { Written::Refused(refused) })
}

fn key_of(one: &Numbered<'_>) -> CommitKey {
    (one.collection.to_owned(), one.commit.key.clone())
}

/// Returns the ranges that remain without a refused commit and the later commits of its aggregate.
fn without(due: VecDeque<Range<usize>>, all: &[Numbered<'_>], refused: usize) -> VecDeque<Range<usize>> {
    let mut left = VecDeque::new();
    for range in due {
        let mut start = range.start;
        for at in range.clone() {
            if at >= refused && all[at].key == all[refused].key {
                left.extend((start < at).then_some(start..at));
                start = at + 1;
            }
        }
        left.extend((start < range.end).then_some(start..range.end));
    }
    left
}

/// Splits the commits into ranges that each fit into a transaction. Returns at least one range, which may be empty.
fn parts(numbered: &[Numbered<'_>], room: Room) -> VecDeque<Range<usize>> {
    let mut parts = VecDeque::new();
    let (mut start, mut bytes, mut events) = (0, 0, 0);
    for (at, one) in numbered.iter().enumerate() {
        let size: usize = one.commit.events.iter().map(|event| event.data.as_bytes().len()).sum();
        if at > start && (bytes + size > room.bytes || events + one.commit.events.len() > room.events) {
            parts.push_back(start..at);
            (start, bytes, events) = (at, 0, 0);
        }
        bytes += size;
        events += one.commit.events.len();
    }
    parts.push_back(start..numbered.len());
    parts
}

/// The index within its part of a commit that cannot become a document, and the reason.
type Unwritable = (usize, String);

fn documents<'a>(place: &Place, part: &[Numbered<'a>]) -> Result<Result<Documents<'a>, Unwritable>, Ended> {
    let failed = |error: mongodb::bson::error::Error| Ended::Damaged(format!("a commit of the log: {error}"));
    let too_large = |what: &str, bytes: usize| {
        format!(
            "too large: {what} would have {bytes} bytes, and MongoDB stores at most {DOCUMENT_BYTES_MAX} in a document"
        )
    };
    let mut documents = Documents::default();
    let (tenant, database) = (&*place.log.tenant, place.log.database.name());
    let mapping = &*place.log.adopted.reader.mapping;
    for (of, one) in part.iter().enumerate() {
        let first = place.next + documents.events.len() as u64;
        let after = one.after();
        let common = event::Common::of(one.commit, tenant, one.before.applied, mapping);
        for (at, each) in one.commit.events.iter().enumerate() {
            let event = event::write(one.commit, at, each, first + at as u64, &common).map_err(failed)?;
            let bytes = event.as_bytes().len();
            if bytes > DOCUMENT_BYTES_MAX {
                return Ok(Err((of, too_large(&format!("body[{at}] as a document of {EVENT_LOG}"), bytes))));
            }
            documents.events.push(event);
        }
        let entry = entry::write(one.commit, database, one.collection, first, after.applied).map_err(failed)?;
        let bytes = entry.as_bytes().len();
        if bytes > DOCUMENT_BYTES_MAX {
            return Ok(Err((of, too_large(&format!("its document of {ENTRIES}, with all types and tags,"), bytes))));
        }
        documents.entries.push(entry);
        if one.commit.applied {
            let new = one.before.applied == 0;
            let standing = documents.aggregates.entry(one.key).or_insert(Standing { applied: 0, new, id: None });
            standing.applied = after.applied;
        }
    }
    Ok(Ok(documents))
}

/// The outcome of a transaction.
enum Transacted {
    Done,
    Known,
    Refused(Refusal),
}

/// Why the server will never accept the content of a transaction.
struct Refusal {
    sentence: String,
    /// Whether a smaller transaction may be accepted.
    is_room: bool,
}

/// Returns the refusal if the server rejected the content itself and would reject it again, as opposed to the user's rights or a temporary
/// state.
fn refusal(error: &Error) -> Option<Refusal> {
    const TOO_LARGE_FOR_CACHE: i32 = 388;
    // Bad values, documents and keys that are too large, failed validation, and values that an index cannot hold.
    const CONTENT: [i32; 11] = [2, 9, 22, 121, 146, 171, 10334, 16766, 17280, 17419, 17420];
    let message = message_of(error);
    match code_of(error)? {
        TOO_LARGE_FOR_CACHE => {
            let sentence = format!(
                "too large for the server's cache: its events are one transaction, and MongoDB says {message:?}; give mongod more \
                 cache (docs/mongodb.md), then retry"
            );
            Some(Refusal { sentence, is_room: true })
        }
        code if CONTENT.contains(&code) => {
            Some(Refusal { sentence: format!("refused: MongoDB says {message:?}"), is_room: false })
        }
        _ => None,
    }
}

async fn transaction(
    place: &mut Place,
    documents: &mut Documents<'_>,
    next: u64,
    rest: Option<&Batch<'_>>,
    token: Option<&Token>,
) -> Result<Transacted, Ended> {
    const DUPLICATE_KEY: i32 = 11000;
    let log = place.log.clone();
    for tries in 0..TRIES {
        let moves = (place.next, next);
        let step = place.steps.begin().await;
        let attempted =
            attempt(&log, &place.bound, &mut place.session, documents, moves, rest, token, place.at_step).await;
        drop(step);
        match attempted {
            Ok(Filled::Whole) => return Ok(Transacted::Done),
            Ok(Filled::Moved) => {
                // If the metadata is gone, the log has failed, not the leader.
                read_next(&place.log).await?;
                return Err(Ended::Deposed("another process has moved the log"));
            }
            Ok(Filled::Replaced(name)) => return Err(Ended::Damaged(replaced(&log, name))),
            Ok(Filled::AggregateThere) => {
                place.aggregates.forget();
                documents.aggregates.values_mut().for_each(|one| (one.new, one.id) = (false, None));
            }
            Err(error) if code_of(&error) == Some(DUPLICATE_KEY) => return Ok(Transacted::Known),
            // A cache that is nearly full can look like a write conflict.
            Err(error)
                if error.contains_label(TRANSIENT_TRANSACTION_ERROR)
                    && tries >= TRIES_WHOLE
                    && documents.entries.len() > 1 =>
            {
                return Ok(Transacted::Refused(Refusal { sentence: message_of(&error), is_room: true }));
            }
            Err(error) if error.contains_label(TRANSIENT_TRANSACTION_ERROR) => {
                sleep(std::time::Duration::from_millis(5)).await;
            }
            // The outcome of the commit is unknown. The offset decides, because it moves atomically with everything else.
            Err(error) if error.contains_label(UNKNOWN_TRANSACTION_COMMIT_RESULT) => {
                let now = read_next(&place.log).await?;
                if now != place.next {
                    // Moved by this transaction or by another leader; the state is reloaded in both cases.
                    return Err(Ended::Deposed("the outcome of a transaction was unknown"));
                }
            }
            Err(error) => return refusal(&error).map(Transacted::Refused).ok_or_else(|| error.into()),
        }
    }
    let name = log.database.name();
    Err(Ended::Damaged(format!(
        "database {name}: the server gave up a transaction {TRIES} times: it meets another one"
    )))
}

fn replaced(log: &Log, name: &str) -> String {
    let database = log.database.name();
    format!(
        "{database}.{name} was dropped or renamed by other software, so nothing is written to it; put it back from a backup of the database"
    )
}

/// The outcome inside a transaction. Only [`Filled::Whole`] is committed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Filled {
    Whole,
    /// The offset is not at its expected value.
    Moved,
    /// An aggregate that was believed to be new already has a document, or a cached `_id` of one is stale.
    AggregateThere,
    /// A collection of the log was replaced.
    Replaced(&'static str),
}

/// Runs one transaction: writes everything or nothing.
#[expect(clippy::too_many_arguments, reason = "parts of the place that are borrowed apart")]
async fn attempt(
    log: &Log,
    bound: &Bound,
    session: &mut ClientSession,
    documents: &Documents<'_>,
    (from, to): (u64, u64),
    rest: Option<&Batch<'_>>,
    token: Option<&Token>,
    at_step: AtStep,
) -> mongodb::error::Result<Filled> {
    session.start_transaction().write_concern(strict()).await?;
    let written = fill(log, bound, session, documents, (from, to), rest, token, at_step).await;
    match written {
        Ok(Filled::Whole) => {}
        other => {
            // If the abort does not reach the server, the server expires the transaction.
            let _ = session.abort_transaction().await;
            return other;
        }
    }
    let mut tries = 0;
    loop {
        match session.commit_transaction().await {
            Ok(()) => return Ok(Filled::Whole),
            Err(error) if error.contains_label(UNKNOWN_TRANSACTION_COMMIT_RESULT) && tries < 3 => tries += 1,
            Err(error) => return Err(error),
        }
    }
}

#[expect(clippy::too_many_arguments, reason = "those of the attempt")]
async fn fill(
    log: &Log,
    bound: &Bound,
    session: &mut ClientSession,
    documents: &Documents<'_>,
    (from, to): (u64, u64),
    rest: Option<&Batch<'_>>,
    token: Option<&Token>,
    at_step: AtStep,
) -> mongodb::error::Result<Filled> {
    let database = &log.database;
    let metadata = database.collection::<Document>(EVENT_LOG_METADATA);
    let believed = doc! { "_id": EVENT_LOG, "NextEventOffset": decimal(from) };
    let moved = metadata.update_one(believed, doc! { "$set": { "NextEventOffset": decimal(to) } });
    if moved.session(&mut *session).await?.matched_count != 1 {
        return Ok(Filled::Moved);
    }
    at_step(Step::OffsetMoved);
    let inserts = [(EVENT_LOG, bound.events, &documents.events), (ENTRIES, bound.entries, &documents.entries)];
    for (name, uuid, documents) in inserts {
        if !bound::insert(database, name, uuid, documents, session).await? {
            return Ok(Filled::Replaced(name));
        }
    }
    at_step(Step::EventsWritten);
    if !aggregates::write(log, session, &documents.aggregates).await? {
        return Ok(Filled::AggregateThere);
    }
    if let Some(batch) = rest {
        held::write(database, session, &batch.held, &batch.released).await?;
    }
    if let Some(token) = token {
        let state = database.collection::<Document>(SEQUENCER);
        state.update_one(state::of_log(), state::set(token, to)).upsert(true).session(&mut *session).await?;
    }
    at_step(Step::BatchWritten);
    Ok(Filled::Whole)
}
