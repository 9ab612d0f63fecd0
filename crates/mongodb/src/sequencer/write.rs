//! A batch of a log as one transaction: the offset, the events, the entries, the aggregates, what is held and released, and the position
//! in the stream. So one that was deposed writes nothing, nobody sees a part, and a crash leaves nothing to be mended.

use annals_system::sleep;
use mongodb::ClientSession;
use mongodb::bson::{Document, RawDocumentBuf, doc};
use mongodb::error::{TRANSIENT_TRANSACTION_ERROR, UNKNOWN_TRANSACTION_COMMIT_RESULT};

use super::Ended;
use super::aggregates::{self, Standing, Standings};
use super::assign::{Batch, Numbered};
use super::place::{Place, read_next};
use super::state::{self, Token};
use super::step::{AtStep, Step};
use crate::connect::strict;
use crate::layout::names::{ENTRIES, EVENT_LOG, EVENT_LOG_METADATA, HELD, SEQUENCER};
use crate::layout::writer::decimal;
use crate::layout::{entry, event};
use crate::log::Log;
use crate::refused::code_of;

/// Bytes of the commits of one transaction, about.
const BYTES_MAX: usize = 12 * 1024 * 1024;
/// Events of one transaction, about.
const EVENTS_MAX: usize = 10_000;
/// How often a transaction that the server gave up is tried again.
const TRIES: usize = 100;

/// How writing ended.
pub(super) enum Written {
    Done,
    /// Something of it is in the log already; nothing was written.
    Known,
}

/// What one transaction writes.
#[derive(Default)]
struct Documents<'a> {
    events: Vec<RawDocumentBuf>,
    entries: Vec<RawDocumentBuf>,
    aggregates: Standings<'a>,
}

/// Writes as many transactions as the batch's size needs; all but the first are small in number. Commits that are written are noted in
/// `place` at once.
pub(super) async fn write(place: &mut Place, batch: &Batch<'_>, token: Option<&Token>) -> Result<Written, Ended> {
    if batch.is_empty() {
        return Ok(Written::Done);
    }
    let parts = parts(&batch.numbered);
    let count = parts.len();
    for (at, part) in parts.into_iter().enumerate() {
        // Only the last one has come to the position, and has the rest of the batch.
        let (token, rest) = if at + 1 == count { (token, Some(batch)) } else { (None, None) };
        let mut documents =
            documents(place, part).map_err(|error| Ended::Damaged(format!("a commit of the log: {error}")))?;
        let next = place.next + documents.events.len() as u64;
        let log = place.log.clone();
        place.aggregates.identify(&log, &mut documents.aggregates).await?;
        match transaction(place, &mut documents, next, rest, token).await? {
            Written::Done => {
                place.aggregates.remember(&documents.aggregates);
                (place.at_step)(Step::BatchCommitted);
                place.note(part, next);
                (place.at_step)(Step::BatchTold);
            }
            Written::Known => return Ok(Written::Known),
        }
    }
    Ok(Written::Done)
}

/// Parts that fit into a transaction each; at least one, which may be empty.
fn parts<'a, 'b>(numbered: &'b [Numbered<'a>]) -> Vec<&'b [Numbered<'a>]> {
    let mut parts = Vec::new();
    let (mut start, mut bytes, mut events) = (0, 0, 0);
    for (at, one) in numbered.iter().enumerate() {
        let size: usize = one.commit.events.iter().map(|event| event.data.as_bytes().len()).sum();
        if at > start && (bytes + size > BYTES_MAX || events + one.commit.events.len() > EVENTS_MAX) {
            parts.push(&numbered[start..at]);
            (start, bytes, events) = (at, 0, 0);
        }
        bytes += size;
        events += one.commit.events.len();
    }
    parts.push(&numbered[start..]);
    parts
}

fn documents<'a>(place: &Place, part: &[Numbered<'a>]) -> Result<Documents<'a>, mongodb::bson::error::Error> {
    let mut documents = Documents::default();
    let (tenant, database) = (&*place.log.tenant, place.log.database.name());
    let mapping = &*place.log.adopted.reader.mapping;
    for one in part {
        let first = place.next + documents.events.len() as u64;
        let after = one.after();
        let common = event::Common::of(one.commit, tenant, one.before.applied, mapping);
        for (at, each) in one.commit.events.iter().enumerate() {
            documents.events.push(event::write(one.commit, at, each, first + at as u64, &common)?);
        }
        documents.entries.push(entry::write(one.commit, database, one.collection, first, after.applied)?);
        if one.commit.applied {
            let new = one.before.applied == 0;
            let standing = documents.aggregates.entry(one.key).or_insert(Standing { applied: 0, new, id: None });
            standing.applied = after.applied;
        }
    }
    Ok(documents)
}

async fn transaction(
    place: &mut Place,
    documents: &mut Documents<'_>,
    next: u64,
    rest: Option<&Batch<'_>>,
    token: Option<&Token>,
) -> Result<Written, Ended> {
    const DUPLICATE_KEY: i32 = 11000;
    let log = place.log.clone();
    for _ in 0..TRIES {
        let moves = (place.next, next);
        match attempt(&log, &mut place.session, documents, moves, rest, token, place.at_step).await {
            Ok(Filled::Whole) => return Ok(Written::Done),
            Ok(Filled::Moved) => return Err(Ended::Deposed("another process has moved the log")),
            Ok(Filled::AggregateThere) => {
                place.aggregates.forget();
                documents.aggregates.values_mut().for_each(|one| (one.new, one.id) = (false, None));
            }
            Err(error) if code_of(&error) == Some(DUPLICATE_KEY) => return Ok(Written::Known),
            Err(error) if error.contains_label(TRANSIENT_TRANSACTION_ERROR) => {
                sleep(std::time::Duration::from_millis(5)).await;
            }
            // The commit's outcome is not known: the offset tells, because it moves with everything else.
            Err(error) if error.contains_label(UNKNOWN_TRANSACTION_COMMIT_RESULT) => {
                let now = read_next(&place.log).await?;
                if now != place.next {
                    // Moved by this transaction, or by a successor; either way it is read anew from here.
                    return Err(Ended::Deposed("the outcome of a transaction was unknown"));
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err(Ended::Deposed("the server gave up a transaction again and again"))
}

/// What became of the inside of a transaction. Only a whole one is committed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Filled {
    Whole,
    /// The offset is not where it is believed to be.
    Moved,
    /// An aggregate that no commit here was applied by is known by other software.
    AggregateThere,
}

/// Writes everything, or nothing.
async fn attempt(
    log: &Log,
    session: &mut ClientSession,
    documents: &Documents<'_>,
    (from, to): (u64, u64),
    rest: Option<&Batch<'_>>,
    token: Option<&Token>,
    at_step: AtStep,
) -> mongodb::error::Result<Filled> {
    session.start_transaction().write_concern(strict()).await?;
    let written = fill(log, session, documents, (from, to), rest, token, at_step).await;
    match written {
        Ok(Filled::Whole) => {}
        other => {
            // The server ends it by itself when this does not reach it.
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

async fn fill(
    log: &Log,
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
    for (name, inserts) in [(EVENT_LOG, &documents.events), (ENTRIES, &documents.entries)] {
        if !inserts.is_empty() {
            database.collection::<RawDocumentBuf>(name).insert_many(inserts).session(&mut *session).await?;
        }
    }
    at_step(Step::EventsWritten);
    if !aggregates::write(log, session, &documents.aggregates).await? {
        return Ok(Filled::AggregateThere);
    }
    let held = database.collection::<Document>(HELD);
    for one in rest.into_iter().flat_map(|batch| &batch.held) {
        held.update_one(doc! { "_id": one.id() }, one.update()).upsert(true).session(&mut *session).await?;
    }
    for one in rest.into_iter().flat_map(|batch| &batch.released) {
        held.delete_one(doc! { "_id": one.id() }).session(&mut *session).await?;
    }
    if let Some(token) = token {
        let state = database.collection::<Document>(SEQUENCER);
        state.update_one(state::of_log(), state::set(token)).upsert(true).session(&mut *session).await?;
    }
    at_step(Step::BatchWritten);
    Ok(Filled::Whole)
}
